"""A deploy between two drivers: hand-over, probation, confirmation, rollback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.support import Clock, follower_of

from headrace import Computation, Fenced, IncompatibleState, sinks, state
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.history.recovery import recover
from headrace.errors import UserCodeError
from headrace.log.epochlog import EpochLog
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.next_step import Finish, Run
from headrace.plan.deploy import code as codes
from headrace.plan.deploy.code import CANDIDATE, GUARD, ROLLED_BACK, STANDBY, DeployWish
from headrace.plan.deploy.comparison import FORWARD, RESTORE, compare
from headrace.plan.deploy.contract import contract_of
from headrace.plan.deploy.handover import HandedOver, facts_of, judge_wish
from headrace.plan.deploy.roles import NotInForce
from headrace.sources import memory
from headrace.store.disk import DiskStore
from headrace.store.store import Store

VALUES = [f"v{i % 3}" for i in range(36)]
"""Twelve epochs of three records."""


class First(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce({"k": ctx.key, "n": self.n, "by": 1})


class Second(First):
    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce({"k": ctx.key, "n": self.n, "by": 2})


class Third(Computation, version=2):
    total: float = state(0.0)

    @classmethod
    def migrate(cls, fields, version):
        return {"total": float(fields.get("n", 0))}

    def process_record(self, record, ctx):
        self.total += 1.0
        ctx.produce({"k": ctx.key, "n": int(self.total), "by": 3})


class Failing(Third):
    def process_record(self, record, ctx):
        super().process_record(record, ctx)
        if self.total > 6:
            raise ValueError("a mistake")


class World:
    """A checkpoint and an output directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store: Store = DiskStore(str(root / "state"))
        self.clock = Clock()
        self.values = VALUES
        self.build: Callable[[PipelineBuilder], None] = lambda p: None
        self.name, self.aliases = "C", ()

    def topology(self, computation: Any) -> Topology:
        p = PipelineBuilder("p")
        p.read("values", memory(self.values, timestamps=range(len(self.values))))
        p.compute(
            computation, inputs={"values": str}, outputs="counts", name=self.name,
            aliases=self.aliases,
        )  # fmt: skip
        p.stream("counts").write(sinks.jsonl(str(self.root / "out")))
        self.build(p)
        return p.freeze()

    def follower(self, computation: Any, **options: Any) -> Follower:
        code = computation.__name__
        options = {"retain_epochs": 2, "replace": False, **options}
        topology = self.topology(computation)
        return follower_of(topology, self.store, clock=self.clock, code=code, **options)

    def rows(self) -> list[dict[str, Any]]:
        files = sorted(self.root.glob("out/epoch=*/*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def run(driver: Driver, epochs: int) -> None:
    for _ in range(epochs):
        assert isinstance(driver.step(), Run)


def to_end(driver: Driver) -> None:
    while not isinstance(driver.step(), Finish):
        pass


def wish(old: Driver, new: Follower, *, k: int = 3, mode: str = "", **more: Any) -> DeployWish:
    found = compare(contract_of(old.topology), new.contract, facts_of(old.ledger))
    assert found.refusals == ()
    made = DeployWish(
        "n1", new.setup.fingerprint, new.contract, mode or found.mode, old.ledger.code.fingerprint,
        k, 60.0, 2**62, found.drain, **more,
    )  # fmt: skip
    assert judge_wish(old.ledger, made) == ""
    return made


def hand_over(old: Driver, new: Follower, **more: Any) -> HandedOver:
    made = wish(old, new, **more)
    old.ledger.code = codes.wished(old.ledger.code, made)
    while isinstance(step := old.step(), Run):
        pass
    assert isinstance(step, HandedOver)
    old.close()
    return step


def take(new: Follower) -> Driver:
    new.follow()
    return new.take_over(role=new.as_role(CANDIDATE, candidate="n1"))


def expected(*by: int) -> list[dict[str, Any]]:
    """The rows of a run whose epoch i ran with code by[i]."""
    counts: dict[str, int] = {}
    found = []
    for i, value in enumerate(VALUES):
        counts[value] = counts.get(value, 0) + 1
        found.append({"k": value, "n": counts[value], "by": by[min(i // 3, len(by) - 1)]})
    return found


def same(rows: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    return sorted(map(str, rows)) == sorted(map(str, wanted))


def test_a_forward_deploy_takes_over_between_two_epochs(world: World) -> None:
    old, new = world.follower(First).take_over(), world.follower(Second)
    run(old, 3)
    handed = hand_over(old, new)
    driver = take(new)
    run(driver, 2)
    assert len(world.rows()) == 3 * (handed.epoch + 2)  # delivered at once
    assert driver.ledger.code.probation is not None
    run(driver, 1)
    assert driver.ledger.code.fingerprint == "Second" and driver.ledger.code.probation is None
    to_end(driver)
    assert same(world.rows(), expected(*[1] * handed.epoch, 2))


def test_in_restore_mode_rows_wait_for_the_confirmation(world: World) -> None:
    old, new = world.follower(First).take_over(), world.follower(Third)
    run(old, 3)
    handed = hand_over(old, new)
    before = world.rows()
    driver = take(new)
    run(driver, 2)
    assert world.rows() == before
    run(driver, 1)
    assert len(world.rows()) == 3 * (handed.epoch + 3)
    to_end(driver)
    assert same(world.rows(), expected(*[1] * handed.epoch, 3))


def test_a_restore_rollback_leaves_no_trace(world: World) -> None:
    first = world.follower(First)
    old, new = first.take_over(), world.follower(Third)
    run(old, 3)
    hand_over(old, new, k=5)
    driver = take(new)
    run(driver, 4)
    first.follow()
    back = first.take_over(role=first.as_role(GUARD, reason="it was slow"))
    with pytest.raises(Fenced):
        driver.step()
    end = back.ledger.code.last
    assert end is not None and (end.verdict, end.reason) == (ROLLED_BACK, "it was slow")
    to_end(back)
    assert same(world.rows(), expected(1))


def test_a_forward_rollback_keeps_what_was_made(world: World) -> None:
    first = world.follower(First)
    old, new = first.take_over(), world.follower(Second)
    run(old, 3)
    handed = hand_over(old, new)
    driver = take(new)
    run(driver, 2)
    driver.close()
    first.follow()
    back = first.take_over(role=first.as_role(GUARD))
    to_end(back)
    assert same(world.rows(), expected(*[1] * handed.epoch, 2, 2, 1))


def test_code_that_fails_is_taken_back_from_another_process(world: World) -> None:
    """All in a log that is trimmed, with a retention shorter than the probation."""
    first = world.follower(First)
    old, new = first.take_over(), world.follower(Failing)
    run(old, 2)
    hand_over(old, new, k=9)
    driver = take(new)
    with pytest.raises(UserCodeError, match="a mistake"):
        to_end(driver)
    assert driver.ledger.epoch > 5
    driver._collect()
    driver.close()
    guard = world.follower(First)
    back = guard.take_over()  # a person starts the former code: it is the guard
    assert back.ledger.code.last is not None
    to_end(back)
    assert same(world.rows(), expected(1))


def test_a_recovered_history_is_that_of_the_leader(world: World) -> None:
    old, new = world.follower(First).take_over(), world.follower(Third)
    run(old, 3)
    handed = hand_over(old, new, k=6)
    driver = take(new)
    run(driver, 4)
    found = recover(EpochLog(world.store), 2)
    assert found.ledger.code == driver.ledger.code
    assert found.ledger.saved == driver.ledger.saved
    assert [c.epoch for _, c in found.commits][-5:] == list(range(handed.epoch, handed.epoch + 5))
    assert found.released == driver.history.released


def test_a_person_confirms_what_is_on_probation(world: World) -> None:
    old, new = world.follower(First).take_over(), world.follower(Third)
    run(old, 3)
    handed = hand_over(old, new, k=9)
    driver = take(new)
    run(driver, 2)
    driver.close()
    with pytest.raises(IncompatibleState, match="--confirm"):
        world.follower(Third).take_over()
    back = world.follower(Third, confirm=True).take_over()
    assert len(world.rows()) == 3 * (handed.epoch + 2)
    to_end(back)
    assert same(world.rows(), expected(*[1] * handed.epoch, 3))


def test_the_end_of_the_input_confirms(world: World) -> None:
    old, new = world.follower(First).take_over(), world.follower(Third)
    run(old, 3)
    handed = hand_over(old, new, k=99)
    driver = take(new)
    to_end(driver)
    assert driver.ledger.code.fingerprint == "Third"
    assert same(world.rows(), expected(*[1] * handed.epoch, 3))


def test_a_start_with_code_that_is_not_in_force_is_refused(world: World) -> None:
    old = world.follower(First).take_over()
    run(old, 1)
    with pytest.raises(IncompatibleState, match=r"in force is First.*Second.*--replace"):
        world.follower(Second).take_over()
    run(old, 1)  # it was not fenced
    with pytest.raises(NotInForce):
        world.follower(Second).take_over(old.log.generation)
    other = world.follower(Second, replace=True).take_over()
    assert other.ledger.code.fingerprint == "Second"
    with pytest.raises(NotInForce):
        world.follower(First).take_over(other.log.generation)


def test_nobody_but_the_candidate_leads_after_a_hand_over(world: World) -> None:
    first = world.follower(First)
    old, new = first.take_over(), world.follower(Second)
    run(old, 3)
    hand_over(old, new)
    first.follow()
    for other in (first, world.follower(Second)):
        other.follow()
        with pytest.raises(NotInForce):
            other.take_over(other.log.generation, role=other.as_role(STANDBY))
    driver = take(new)
    run(driver, 1)
    with pytest.raises(NotInForce):
        take(world.follower(Second))


def test_state_that_is_dropped_by_name_is_back_after_a_rollback(world: World) -> None:
    first = world.follower(First)
    old, new = first.take_over(), world.follower(Third)
    run(old, 3)
    hand_over(old, new, mode=RESTORE, dropped=("C",))
    driver = take(new)
    run(driver, 2)
    assert driver.ledger.code.is_held
    driver.close()
    first.follow()
    back = first.take_over(role=first.as_role(GUARD))
    to_end(back)
    assert same(world.rows(), expected(1))


def test_the_modes_are_those_of_the_contracts(world: World) -> None:
    facts = facts_of(world.follower(First).take_over().ledger)
    contracts = [contract_of(world.topology(c)) for c in (First, Second, Third)]
    assert [compare(contracts[0], c, facts).mode for c in contracts] == [FORWARD, FORWARD, RESTORE]


def test_a_new_sink_begins_at_the_hand_over(world: World, caplog: Any) -> None:
    def more(p: PipelineBuilder) -> None:
        p.stream("counts").write(sinks.jsonl(str(world.root / "more")), name="more")

    old = world.follower(First).take_over()
    run(old, 4)
    world.build = more
    new = world.follower(Second)
    handed = hand_over(old, new)
    driver = take(new)
    to_end(driver)
    files = sorted(world.root.glob("more/epoch=*/*.jsonl"))
    epochs = [int(file.parent.name.removeprefix("epoch=")) for file in files]
    assert min(epochs) == handed.epoch + 1 and len(world.rows()) == len(VALUES)
    assert "no longer kept" not in caplog.text


def test_a_new_computation_starts_at_the_present(world: World) -> None:
    def more(p: PipelineBuilder) -> None:
        p.compute(First, inputs={"values": str}, outputs="others", name="D")

    old = world.follower(First).take_over()
    run(old, 4)
    world.build = more
    new = world.follower(Second)
    hand_over(old, new, feeds={"D": ("values",)})
    driver = take(new)
    assert driver.ledger.ins["D"] == driver.ledger.outs["values"] > 0
    to_end(driver)
    assert set(driver.ledger.slots) == {"C", "D"}


def test_a_renamed_computation_keeps_its_state_and_gives_it_back(world: World) -> None:
    first = world.follower(First)
    old = first.take_over()
    run(old, 4)
    world.name, world.aliases = "Renamed", ("C",)
    new = world.follower(Second)
    hand_over(old, new, k=9)
    driver = take(new)
    run(driver, 2)
    assert set(driver.ledger.slots) == {"Renamed"}
    driver.close()
    first.follow()
    back = first.take_over(role=first.as_role(GUARD))
    assert set(back.ledger.slots) == {"C"}
    to_end(back)
    assert same(world.rows(), expected(1))
