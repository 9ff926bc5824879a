"""What to do next: every reason to run an epoch, to wait, and to end (PROTOCOL D4, D5, D9, D10)."""

from __future__ import annotations

import pytest
from tests.unit.rings import ring_of

from headrace import Computation
from headrace.limits import LIMITS
from headrace.model.source import Range
from headrace.model.values.time import BEGINNING, END
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.next_step import (
    Finish,
    Offer,
    Run,
    Settings,
    Wait,
    decide,
    missing,
)
from headrace.plan.epoch import OutboxFile, SplitState
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import SlotLedger
from headrace.plan.watermarks import Mark
from headrace.sources import memory

NOW = 1_000_000


class Pass(Computation):
    def process_record(self, record, ctx):
        ctx.produce(record.value)


def topology(*, loop: bool = False, **timing) -> Topology:
    """s -> A (-> back -> A)"""
    pipeline = PipelineBuilder("p")
    pipeline.read("s", memory([1], **timing))
    inputs = {"s": lambda v: "k"}
    if loop:
        pipeline.stream("back", feedback=True)
        inputs["back"] = lambda v: "k"
    pipeline.compute(Pass, inputs=inputs, outputs="back" if loop else "out", name="A")
    return pipeline.freeze()


def settings(until: str | None = "end", readers: int = 2) -> Settings:
    return Settings(until, readers, {"A": 2}, "print", 1000)


def begun(**splits: SplitState) -> Ledger:
    """A ledger after some epochs, with nothing left to do."""
    ledger = Ledger(epoch=5, wall=NOW - 10, splits={"s": splits})
    reached = max((state.mark.newest for state in splits.values()), default=0)
    ledger.outs = {"s": reached, "A": reached}
    ledger.ins = {"A": reached}
    return ledger


def split(mark: int, *, finished: bool = False, news: int = NOW - 10) -> SplitState:
    return SplitState(10, Mark(None if finished else mark, mark), finished, news)


ENDED = Offer({}, {}, True)
QUIET = Offer({"a": 0}, {}, False)


def next_step(
    given: Topology,
    ledger: Ledger,
    offer: Offer,
    *,
    until: str | None = "end",
    wall: int = NOW,
    rounds: int = 0,
    readers: int = 2,
):
    return decide(
        given,
        ledger,
        {"s": offer},
        settings(until, readers),
        ring_of=lambda name: ring_of(ledger, name),
        wall=wall,
        seed=1,
        final_rounds=rounds,
    )


# Reasons to run -----------------------------------------------------------


def test_input_is_a_reason_to_run() -> None:
    offer = Offer({"a": 0}, {"a": [Range(0, 5, 5)]}, False)
    step = next_step(topology(), Ledger(), offer)
    assert isinstance(step, Run)
    (task,) = step.plan.reads
    assert task[0].label == "s/a#00000" and step.plan.records == 5
    assert (step.plan.epoch, step.plan.seed, step.plan.fingerprint) == (1, 1, "print")
    assert step.plan.short and not step.plan.final


def test_without_input_a_pipeline_that_was_read_so_far_waits() -> None:
    assert next_step(topology(), begun(a=split(50)), QUIET) == Wait(None)


def test_waiting_feedback_is_a_reason_to_run() -> None:
    ledger = begun(a=split(50))
    ledger.outbox = {"A": [OutboxFile("f", "A", "back", "A/0", 10, 1)]}
    assert isinstance(next_step(topology(loop=True), ledger, QUIET), Run)


def test_a_wall_time_timer_is_a_reason_when_it_is_due_and_says_until_when_to_wait() -> None:
    ledger = begun(a=split(50))
    ledger.slots = {"A": {0: SlotLedger(next_wall_timer=NOW + 5), 1: SlotLedger()}}
    assert next_step(topology(), ledger, QUIET) == Wait(NOW + 5)
    step = next_step(topology(), ledger, QUIET, wall=NOW + 5)
    assert isinstance(step, Run) and step.plan.reads == []


def test_an_injector_whose_watermark_moved_is_a_reason_to_run_once() -> None:
    ledger = begun(a=split(50))
    ledger.outs["s"] = 40
    assert isinstance(next_step(topology(), ledger, QUIET), Run)
    ledger.outs["s"] = 50
    assert next_step(topology(), ledger, QUIET) == Wait(None)


def test_a_loop_whose_input_would_rise_is_a_reason_to_run_once() -> None:
    ledger = begun(a=split(50))
    ledger.ins["A"] = 40
    assert isinstance(next_step(topology(loop=True), ledger, QUIET), Run)
    ledger.ins["A"] = 50
    assert next_step(topology(loop=True), ledger, QUIET) == Wait(None)


# Time ---------------------------------------------------------------------


def test_the_wall_time_of_a_plan_is_later_than_that_of_every_plan_before() -> None:
    """[A standby with a slow clock.]"""
    offer = Offer({"a": 0}, {"a": [Range(0, 5, 5)]}, False)
    ledger = begun(a=split(50))
    step = next_step(topology(), ledger, offer, wall=3)
    assert isinstance(step, Run) and step.plan.wall == ledger.wall + 1


def test_a_split_that_has_not_begun_is_planned_with_its_lower_bound() -> None:
    offer = Offer({"a": 0, "b": 30}, {"a": [Range(0, 5, 5)]}, False)
    step = next_step(topology(), begun(a=split(50)), offer)
    assert step.plan.injectors["s"].marks == {"a": Mark(50, 50), "b": Mark(30, BEGINNING)}


def test_an_expected_split_holds_the_watermark_before_it_comes_and_when_it_has_vanished() -> None:
    given = topology(expected=["x", "y", "z"])
    ledger = begun(a=split(50), y=split(20), z=split(10, finished=True))
    timing = given.graph.injectors["s"].source.timing
    missed = missing(timing, {"a": 0}, ledger.splits["s"])
    assert missing(timing, {"a": 0}, ledger.splits["s"], {"x"}) == ["y"]
    offer = Offer({"a": 0}, {"a": [Range(0, 5, 5)]}, False, missing=missed)
    marks = next_step(given, ledger, offer).plan.injectors["s"].marks
    assert marks == {"a": Mark(50, 50), "x": Mark(BEGINNING, BEGINNING), "y": Mark(20, 20)}


def test_a_split_without_news_for_the_idle_time_no_longer_holds_the_watermark() -> None:
    given = topology(idle="1s")
    second = 1_000_000
    ledger = begun(a=split(50, news=NOW), b=split(20, news=NOW))
    ledger.outs = {"s": 20, "A": 20}
    offer = Offer({"a": 0, "b": 0}, {}, False)
    assert next_step(given, ledger, offer, wall=NOW + second - 1) == Wait(None)
    ledger.splits["s"]["a"] = split(50, news=NOW + second)
    step = next_step(given, ledger, offer, wall=NOW + second)
    assert isinstance(step, Run)
    assert step.plan.injectors["s"].marks == {"a": Mark(50, 50), "b": Mark(None, 20)}


def test_a_split_that_has_news_again_is_not_idle() -> None:
    ledger = begun(a=split(50, news=0))
    offer = Offer({"a": 0}, {"a": [Range(10, 15, 5)]}, False)
    step = next_step(topology(idle="1s"), ledger, offer, wall=10**9)
    assert step.plan.injectors["s"].marks == {"a": Mark(50, 50)}


def test_a_split_that_never_began_becomes_idle_after_its_discovery() -> None:
    given = topology(idle="1s")
    ledger = begun(a=split(50, news=NOW + 10**6))
    ledger.outs["s"] = 0
    offer = Offer({"a": 0, "empty": 0}, {}, False, {"a": NOW + 10**6, "empty": NOW})
    assert next_step(given, ledger, offer, wall=NOW + 999_999) == Wait(None)
    step = next_step(given, ledger, offer, wall=NOW + 10**6)
    assert step.plan.injectors["s"].marks["empty"] == Mark(None, BEGINNING)


# The end ------------------------------------------------------------------


def test_the_final_watermark_comes_in_an_epoch_of_its_own_after_all_sources_have_ended() -> None:
    ledger = begun(a=split(50, finished=True))
    step = next_step(topology(), ledger, ENDED)
    assert isinstance(step, Run)
    assert step.plan.final and step.plan.injectors["s"].final and step.plan.reads == []


def test_the_last_input_is_read_before_the_final_watermark() -> None:
    offer = Offer({"a": 0}, {"a": [Range(10, 12, 2, True)]}, True)
    step = next_step(topology(), begun(a=split(50)), offer)
    assert not step.plan.final and step.plan.records == 2


def test_a_full_outbox_is_drained_before_the_final_watermark() -> None:
    ledger = begun(a=split(50, finished=True))
    ledger.outbox = {"A": [OutboxFile("f", "A", "back", "A/0", 10, 1)]}
    assert not next_step(topology(loop=True), ledger, ENDED).plan.final


def final_ledger() -> Ledger:
    ledger = begun(a=split(50, finished=True))
    ledger.outs, ledger.ins = {"s": END, "A": END}, {"A": END}
    return ledger


def test_a_run_ends_when_every_watermark_is_final_and_the_outbox_is_empty() -> None:
    ledger = final_ledger()
    assert next_step(topology(), ledger, ENDED) == Finish("end")
    ledger.outs["A"] = 50
    assert next_step(topology(), ledger, ENDED).plan.final


def test_a_loop_goes_on_under_the_final_watermark_until_it_drains_or_is_capped() -> None:
    ledger = final_ledger()
    ledger.outbox = {"A": [OutboxFile("f", "A", "back", "A/0", 10, 1)]}
    given = topology(loop=True)
    assert next_step(given, ledger, ENDED, rounds=LIMITS.final_rounds_max - 1).plan.final
    assert next_step(given, ledger, ENDED, rounds=LIMITS.final_rounds_max) == Finish("end")


def test_without_an_end_nothing_is_final_and_the_pipeline_waits_for_more() -> None:
    ledger = begun(a=split(50, finished=True))
    assert next_step(topology(), ledger, ENDED, until=None) == Wait(None)


def test_caught_up_ends_where_waiting_would_begin() -> None:
    ledger = begun(a=split(50))
    assert next_step(topology(), ledger, QUIET, until="caught_up") == Finish("caught_up")
    offer = Offer({"a": 0}, {"a": [Range(10, 12, 2)]}, False)
    assert isinstance(next_step(topology(), ledger, offer, until="caught_up"), Run)


def test_all_sources_must_have_ended() -> None:
    pipeline = PipelineBuilder("p")
    pipeline.read("s", memory([1]))
    pipeline.read("t", memory([1]))
    pipeline.compute(Pass, inputs={"s": lambda v: "k", "t": lambda v: "k"}, name="A")
    ledger = begun(a=split(50, finished=True))
    ledger.outs["t"] = 0
    offers = {"s": ENDED, "t": QUIET}
    step = decide(
        pipeline.freeze(), ledger, offers, settings(),
        ring_of=lambda name: ring_of(ledger, name), wall=NOW, seed=1, final_rounds=0,
    )  # fmt: skip
    assert step == Wait(None)


# Reading ------------------------------------------------------------------


@pytest.mark.parametrize("readers", [1, 2, 3, 10])
def test_ranges_are_spread_over_readers_and_each_is_read_once(readers: int) -> None:
    sizes = [50, 1, 1, 30, 20, 8]
    ranges = {f"split {i}": [Range(0, n, n), Range(n, 2 * n, n)] for i, n in enumerate(sizes)}
    offer = Offer(dict.fromkeys(ranges, 0), ranges, False)
    plan = next_step(topology(), Ledger(), offer, readers=readers).plan
    labels = [read.label for task in plan.reads for read in task]
    assert len(labels) == len(set(labels)) == 12
    assert len(plan.reads) == min(readers, 12) and all(plan.reads)
    loads = [sum(read.range.records for read in task) for task in plan.reads]
    assert max(loads) - min(loads) <= 50


def test_parts_of_a_split_sort_by_their_place_in_it() -> None:
    ranges = {"a": [Range(i, i + 1, 1) for i in range(12)]}
    plan = next_step(topology(), Ledger(), Offer({"a": 0}, ranges, False)).plan
    reads = [read for task in plan.reads for read in task]
    by_label = sorted(reads, key=lambda read: read.label)
    assert [read.range.start for read in by_label] == list(range(12))


def test_large_epochs_do_not_take_the_short_way() -> None:
    offer = Offer({"a": 0}, {"a": [Range(0, 5000, 5000)]}, False)
    assert not next_step(topology(), Ledger(), offer).plan.short
