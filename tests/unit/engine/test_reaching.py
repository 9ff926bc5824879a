"""What a plan can tell of how far time may come in it, and that no timer calls twice for it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.support import Clock, driver_of, run
from tests.unit.systems import limited

from headrace import Computation, service
from headrace.errors import UserCodeError
from headrace.model.source import Range, Timing
from headrace.model.values.time import BEGINNING
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.watermark_bounds import watermark_bounds
from headrace.plan.epoch import InjectorPlan, ReadTask, WatermarkBound
from headrace.plan.ledger import Ledger
from headrace.plan.watermarks import Mark
from headrace.sources import memory
from headrace.store.memory import MemoryStore
from headrace.testing.simulator.workloads.source import SimulatedSource


class Pass(Computation):
    def process_record(self, record, ctx):
        ctx.produce(record.value)


def joined(**options: Any) -> Topology:
    """a -> A -> J <- b, and b -> B alone."""
    p = PipelineBuilder("joined")
    for name in ("a", "b"):
        p.read(name, memory([], timestamp="t"))
    p.compute(Pass, name="A", inputs={"a": "k"}, outputs="as", **options)
    p.compute(Pass, name="B", inputs={"b": "k"}, outputs="bs")
    p.compute(Pass, name="J", inputs={"as": "k", "b": "k"}, outputs="js")
    return p.freeze()


def reads(*given: tuple[str, str]) -> list[list[ReadTask]]:
    return [[ReadTask(stream, split, 0, Range(0, 9, 9), Mark(0, 0)) for stream, split in given]]


def test_a_split_that_is_not_read_caps_all_that_it_bounds() -> None:
    injectors = {
        "a": InjectorPlan({"x": Mark(50, 60), "y": Mark(70, 70)}, 80),
        "b": InjectorPlan({"z": Mark(20, 30)}, 30),
    }
    found = watermark_bounds(joined(), Ledger(), injectors, reads(("a", "x")))
    assert found == {"A": WatermarkBound(70), "B": WatermarkBound(20), "J": WatermarkBound(20)}


def test_what_was_committed_before_is_passed_on_whatever_holds_now() -> None:
    """A split that is found late holds nothing back that has gone on already."""
    injectors = {"a": InjectorPlan({"x": Mark(5, 5)}, 5), "b": InjectorPlan({"z": Mark(90, 90)}, 0)}
    ledger = Ledger(ins={"A": 45}, outs={"a": 40, "A": 42})
    assert watermark_bounds(joined(), ledger, injectors, [])["J"] == WatermarkBound(45)


def test_where_all_that_bounds_it_is_read_or_idle_its_injectors_tell() -> None:
    injectors = {
        "a": InjectorPlan({"x": Mark(50, 60), "idle": Mark(None, 75)}, 10),
        "b": InjectorPlan({}, 30),
    }
    found = watermark_bounds(joined(), Ledger(), injectors, reads(("a", "x")))
    assert found == {
        "A": WatermarkBound(None, ("a",), 75),
        "B": WatermarkBound(None, ("b",), 30),
        "J": WatermarkBound(None, ("a", "b"), 75),
    }


def test_behind_a_percentile_only_the_newest_record_tells() -> None:
    injectors = {"a": InjectorPlan({"x": Mark(50, 60)}, 10), "b": InjectorPlan({}, 30)}
    found = watermark_bounds(joined(watermark=0.9), Ledger(), injectors, [])
    assert found["A"] == found["J"] == WatermarkBound(None, (), BEGINNING)


def test_a_loop_comes_as_far_as_the_epoch_before() -> None:
    p = PipelineBuilder("loop")
    p.read("a", memory([], timestamp="t"))
    p.stream("back", feedback=True)
    p.compute(Pass, name="L", inputs={"a": "k", "back": "k"}, outputs="back")
    injectors = {"a": InjectorPlan({}, 30)}
    assert watermark_bounds(p.freeze(), Ledger(outs={"a": 12}), injectors, []) == {
        "L": WatermarkBound(12)
    }


# A timer that called in a plan which did not happen -----------------------

posts: list[Any] = []


@service
def post(what: Any) -> int:
    posts.append(what)
    return len(posts)


class Reminder(Computation):
    def process_record(self, record, ctx):
        if "after" in record.value:
            ctx.set_timer("remind", at=record.timestamp + record.value["after"])

    def process_timer(self, timer, ctx):
        ctx.produce(ctx.call(post, (ctx.key, timer.timestamp)))


class Held(Computation, ordered=True):
    def process_record(self, record, ctx):
        if "after" in record.value:
            ctx.produce(ctx.call(post, (ctx.key, record.timestamp)))


@pytest.mark.parametrize(("computation", "called"), [(Reminder, 20), (Held, 10)])
def test_what_an_idle_split_let_go_in_a_voided_plan_does_not_call_again(
    computation, called
) -> None:
    """The split wakes; a plan commits without the timer; directories go on; then it fires."""
    posts.clear()
    fast = [{"k": "k", "t": 10, "after": 10}, *({"k": "other", "t": t} for t in (100, 300))]
    slow = [{"k": "other", "t": t} for t in (5, 6, 7, 8, 200, 300)]
    source = SimulatedSource(Timing(timestamp="t", idle="1s"), {"fast": fast, "slow": slow})
    p = PipelineBuilder("reminding")
    p.read("in", source)
    p.compute(computation, name="R", inputs={"in": "k"}, outputs="out", services=True)
    clock = Clock()
    store = MemoryStore(limited(determinants_epochs=1))
    driver = driver_of(p.freeze(), store, clock=clock, until=None)
    source.show("fast", 2)
    source.show("slow", 1)
    run(driver)
    assert driver.ledger.ins["R"] == 5 and posts == []

    def fails(task, reports):
        raise UserCodeError("as if the code were wrong")

    clock.now += 2_000_000
    driver.substrate.disturb = fails
    with pytest.raises(UserCodeError):
        driver.step()
    assert posts == [("k", called)]
    driver.substrate.disturb = None
    for _ in range(3):
        source.show("slow", 1)
        driver.step()
    assert driver.ledger.ins["R"] == 8 and driver.ledger.epoch >= 4
    source.show("slow", 1)
    driver.step()
    assert driver.ledger.ins["R"] == 200, "as the fast one is idle now"
    assert posts == [("k", called)], "it was answered from the log"
    driver.step()
    assert driver.ledger.next_determinants(store.system.limits) == driver.ledger.epoch + 1, (
        "and directories go on"
    )
