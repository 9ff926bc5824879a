"""Deploys between two running jobs, through the queue: the loop, the guard, the lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.support import follower_of
from tests.unit.engine.test_deploying import First, Second, Third, World

from headrace import Fenced, IncompatibleState, UserCodeError, sinks
from headrace.engine.commands import Remote
from headrace.engine.deploy.candidate import DeployOptions, prepare
from headrace.engine.driver.follower import Follower
from headrace.engine.job import Job
from headrace.errors import InvalidPipeline
from headrace.model.source import Timing
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.control import DEPLOY
from headrace.plan.deploy.code import CONFIRMED, ROLLED_BACK, arguments_of
from headrace.store.disk import DiskStore
from headrace.testing.simulator.workloads.source import SimulatedSource

N = 3000


class Unlucky(Third):
    def process_record(self, record, ctx):
        super().process_record(record, ctx)
        if self.total % 40 == 0:
            raise ValueError("a mistake")


class Live(World):
    """A checkpoint whose input grows as the test says."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.sources: list[SimulatedSource] = []
        self.shown = 0
        self.jobs: list[Job] = []

    def follower(self, computation: Any, **options: Any) -> Follower:
        records = [{"k": f"v{i % 3}", "at": i} for i in range(N)]
        source = SimulatedSource(Timing(timestamp="at"), {"s": records})
        source.show("s", self.shown)
        self.sources.append(source)
        p = PipelineBuilder("p")
        p.read("values", source)
        p.compute(computation, inputs={"values": "k"}, outputs="counts", name="C")
        p.stream("counts").write(sinks.jsonl(str(self.root / "out")))
        options = {
            "retain_epochs": 4, "replace": False, "until": None, "lease_s": 0.5,
            "epoch_records": 5, "give_up_s": None, **options,
        }  # fmt: skip
        return follower_of(
            p.freeze(), DiskStore(str(self.root / "state")), code=computation.__name__, **options
        )

    def show(self, more: int) -> None:
        self.shown += more
        for source in self.sources:
            source.show("s", more)

    def start(self, computation: Any, **options: Any) -> Job:
        self.jobs.append(Job(self.follower(computation, **options)))
        return self.jobs[-1]

    def deploy(self, computation: Any, **options: Any) -> Job:
        follower = self.follower(computation)
        wish = prepare(follower, DeployOptions(**{"probation_s": 20.0, **options}))
        Remote(follower.store).ask(DEPLOY, arguments_of(wish), done=False, timeout_s=10)
        self.jobs.append(Job(follower, candidate=wish.candidate))
        return self.jobs[-1]

    def code(self) -> Any:
        return Remote(DiskStore(str(self.root / "state"))).ledger().code


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    made = Live(tmp_path)
    yield made
    for job in made.jobs:
        job._control.stopping.set()
    for job in made.jobs:
        job._thread.join(20)


def until(found: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, "it has not come"
        time.sleep(0.02)


def counted(rows: list[dict[str, Any]]) -> None:
    """Every record is there once, and each key counts without a gap."""
    for key in {row["k"] for row in rows}:
        seen = sorted(row["n"] for row in rows if row["k"] == key)
        assert seen == list(range(1, len(seen) + 1)), (key, seen)


def test_new_code_takes_over_and_the_old_process_ends(live: Live) -> None:
    old = live.start(First)
    live.show(30)
    until(lambda: len(live.rows()) == 30)
    new = live.deploy(Second, confirm_after=2)
    until(lambda: new.status().phase == "running")
    live.show(60)
    until(lambda: len(live.rows()) == 90)
    assert old.wait(10).reason == "superseded"
    assert live.code().fingerprint == "Second" and live.code().last.verdict == CONFIRMED
    counted(live.rows())
    assert {row["by"] for row in live.rows()} == {1, 2}


def test_code_that_fails_is_taken_back_without_a_person(live: Live) -> None:
    old = live.start(First)
    live.show(30)
    until(lambda: len(live.rows()) == 30)
    new = live.deploy(Unlucky, confirm_after=99)
    until(lambda: new.status().phase == "running")
    live.show(150)
    with pytest.raises(UserCodeError, match="a mistake"):
        new.wait(20)
    until(lambda: len(live.rows()) == 180)
    assert {row["by"] for row in live.rows()} == {1}
    counted(live.rows())
    last = live.code().last
    assert last.verdict == ROLLED_BACK and "a mistake" in last.reason
    assert old.status().phase == "running"


def test_a_person_takes_a_deploy_back(live: Live) -> None:
    old = live.start(First)
    live.show(30)
    until(lambda: len(live.rows()) == 30)
    new = live.deploy(Third, confirm_after=99)
    until(lambda: new.status().phase == "running")
    live.show(30)
    until(lambda: new.status().epoch >= 12)
    remote = Remote(live.store)
    with pytest.raises(IncompatibleState, match="on probation"):
        live.deploy(Second)
    with pytest.raises(IncompatibleState, match="is alive"):
        live.start(First).wait(10)
    assert remote.rollback(timeout_s=10).verdict == "taken"
    assert new.wait(10).reason == "rolled back"
    until(lambda: len(live.rows()) == 60)
    assert {row["by"] for row in live.rows()} == {1} and old.status().phase == "running"
    counted(live.rows())
    with pytest.raises(InvalidPipeline, match="no deploy is on probation"):
        remote.rollback(timeout_s=10)


def test_a_standby_of_the_former_code_is_a_guard(live: Live) -> None:
    old = live.start(First)
    live.show(30)
    until(lambda: len(live.rows()) == 30)
    standby = live.start(First, standby=True)
    until(lambda: standby.status().phase == "standby")
    new = live.deploy(Third, confirm_after=99)
    until(lambda: new.status().phase == "running")
    old.leave()
    live.show(15)
    until(lambda: new.status().epoch >= 8)
    new.leave()
    until(lambda: len(live.rows()) == 45)
    assert {row["by"] for row in live.rows()} == {1} and standby.status().phase == "running"


def test_a_standby_needs_the_code_in_force(live: Live) -> None:
    live.start(First)
    live.show(10)
    until(lambda: len(live.rows()) == 10)
    with pytest.raises(IncompatibleState, match="a standby has the code in force"):
        live.start(Second, standby=True).wait(10)
    with pytest.raises(IncompatibleState, match="--replace"):
        live.start(Second).wait(10)
    with pytest.raises(IncompatibleState, match="--replace"):
        live.start(Second, supervised=True).wait(10)


def test_a_deploy_that_nobody_takes_is_taken_back(live: Live) -> None:
    """The candidate dies after its request: the guard waits for a while, and leads again."""
    live.start(First)
    live.show(10)
    until(lambda: len(live.rows()) == 10)
    follower = live.follower(Second)
    wish = prepare(follower, DeployOptions(probation_s=1.0))
    Remote(follower.store).ask(DEPLOY, arguments_of(wish), done=False, timeout_s=10)
    until(lambda: live.code().last is not None)
    assert "has not taken over" in live.code().last.reason
    live.show(10)
    until(lambda: len(live.rows()) == 20)
    with pytest.raises(IncompatibleState, match="has not taken place: rolled back"):
        Job(follower, candidate=wish.candidate).wait(10)


def test_a_driver_that_was_taken_back_is_fenced(live: Live) -> None:
    live.start(First)
    live.show(10)
    until(lambda: len(live.rows()) == 10)
    new = live.deploy(Third, confirm_after=99, probation_s=1.0)
    until(lambda: new.status().phase == "running")
    follower = new._follower
    hang = follower.substrate.run
    follower.substrate.run = lambda order: (time.sleep(4), hang(order))[1]  # type: ignore[method-assign]
    live.show(20)
    with pytest.raises(Fenced):
        new.wait(20)
    until(lambda: len(live.rows()) == 30)
    counted(live.rows())
    assert {row["by"] for row in live.rows()} == {1}
