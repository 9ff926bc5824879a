"""Outages that a random schedule found: of weak rows, one after the other, around a standby."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tests.unit.engine.support import counting, follower_of
from tests.unit.engine.test_delivery import Diary, epochs_of
from tests.unit.engine.test_lease import begun, standby_of
from tests.unit.engine.test_outages import (
    QUICK,
    QUICK_FILES,
    VALUES,
    Patient,
    Told,
    failing,
    job_of,
    until,
)

from headrace import Pipeline, sources
from headrace.engine.job import Job
from headrace.engine.leading.lease import Lease, read_lease, write_lease
from headrace.errors import StoreError
from headrace.model.sink import Delivery, Opening, Sink
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.transient import HICCUP_S, QUICK_TRIES
from headrace.store.memory import MemoryStore

# Weak rows -------------------------------------------------------------------


def weak(*outputs: Sink) -> Topology:
    """values -> one step -> sinks, at least once: rows leave before their commit."""
    p = Pipeline("weak", guarantee="at-least-once")
    rows = p.read("values", sources.memory(VALUES, timestamps=range(len(VALUES))))
    passed = rows.map(lambda value: {"v": value})
    for output in outputs:
        passed.write(output)
    return p.freeze()


class Away(MemoryStore):
    """A store whose staged files cannot be read for a while."""

    refusals = 0

    def read(self, name: str) -> bytes:
        if self.refusals and name.startswith("staged/"):
            self.refusals -= 1
            raise StoreError(f"cannot read {name}: stale file handle")
        return super().read(name)


class Weak(Diary):
    """Notes weak deliveries, and refuses some."""

    def __init__(self) -> None:
        super().__init__()
        self.early: list[int] = []
        self.refusals = 0

    def deliver(self, delivery: Delivery) -> None:
        if self.refusals and delivery.weak:
            self.refusals -= 1
            raise ConnectionRefusedError("nobody listens")
        if delivery.weak:
            assert all(part.read() for part in delivery.parts)
            self.early.append(delivery.epoch)
        else:
            super().deliver(delivery)


@pytest.mark.parametrize("away", ["store", "sink"])
def test_an_outage_while_weak_rows_are_delivered_runs_no_job_again(away: str) -> None:
    store, told, first, second = Away(QUICK_FILES), Told(), Weak(), Weak()
    follower = follower_of(weak(first, second), store, give_up_s=None, on_notice=told)

    def disturb(task, reports):
        if task.plan.epoch == 3:
            (store if away == "store" else second).refusals = 12
        return reports

    follower.substrate.disturb = disturb
    assert Job(follower).wait(60).reason == "end"
    assert told.kinds == ["away", "back"]
    epochs = [task.plan.epoch for task in follower.substrate.tasks]
    assert epochs == list(range(1, len(epochs) + 1)), "each job ran once: it had lost nothing"
    assert first.early == second.early == list(range(1, 21)), "no sink was shown its rows twice"
    assert epochs_of(first) == epochs


def test_a_stop_while_weak_rows_wait_ends_the_run_and_the_next_delivers_them() -> None:
    store, told, diary = MemoryStore(QUICK), Told(), Weak()
    diary.refusals = 1_000_000
    job = job_of(weak(diary), store, told)
    until(lambda: job.status().phase == "waiting")
    assert job.stop().reason == "stopped"  # type: ignore[union-attr]
    assert diary.early == [] and epochs_of(diary) == []
    diary.refusals = 0
    assert job_of(weak(diary), store, Told()).wait(60).reason == "end"
    assert diary.early == list(range(1, 21))


# One hiccup after the other --------------------------------------------------


def test_hiccups_that_follow_each_other_are_told_though_each_was_short() -> None:
    patient = Patient()
    patience = patient.patience
    assert patience.through(failing(QUICK_TRIES, StoreError("the log"))) == "done"
    assert patient.told == []
    assert patience.through(failing(1, ConnectionError("the sink"))) == "done"
    (away, why), (back, _) = patient.told
    assert (away, back) == ("away", "back") and "the sink" in why
    assert patience.through(failing(QUICK_TRIES, StoreError("once more"))) == "done"
    assert len(patient.told) == 2, "what was told is told: silence begins anew"


def test_hiccups_that_take_long_together_are_told() -> None:
    patient = Patient()

    def slow(times: int) -> Callable[[], str]:
        act = failing(times, StoreError("slow"))

        def take() -> str:
            patient.watch.now_s += HICCUP_S / 2
            return act()

        return take

    patient.patience.through(slow(1))
    assert patient.told == []
    patient.patience.through(slow(2))
    assert [kind for kind, _ in patient.told] == ["away", "back"]


def test_a_step_that_nothing_disturbs_ends_a_row_of_hiccups() -> None:
    patient = Patient()
    patience = patient.patience
    for _ in range(10):
        patience.through(failing(QUICK_TRIES, StoreError("a hiccup")))
        patience.stepped()
        patience.stepped()
    assert patient.told == []
    patience.through(failing(QUICK_TRIES, StoreError("a hiccup")))
    patience.stepped()  # this step was disturbed
    patience.through(failing(1, StoreError("another")))
    assert [kind for kind, _ in patient.told] == ["away", "back"]


def test_a_sink_and_then_the_log_away_are_told_by_a_run() -> None:
    """As of a driver that sleeps through both, and is overtaken meanwhile."""
    told, diary = Told(), Diary()

    class Twice(MemoryStore):
        refusals = 0

        def put_if_absent(self, name: str, data: bytes) -> bool:
            if self.refusals and name.startswith("log/"):
                self.refusals -= 1
                raise StoreError(f"cannot write {name}: stale file handle")
            return super().put_if_absent(name, data)

    store = Twice(QUICK)

    def disturb(progress) -> None:
        if progress.epoch == 3:
            diary.refusing = [ConnectionError("away")] * QUICK_TRIES
            store.refusals = 2 * 2  # a put tries twice before it waits

    assert job_of(counting(VALUES, diary), store, told, on_epoch=disturb).wait(60).reason == "end"
    assert told.kinds == ["away", "back"], "neither alone would have been told"


# A standby that begins -------------------------------------------------------


class Slow(Diary):
    """A sink that takes its time to open."""

    def __init__(self) -> None:
        super().__init__()
        self.opens = threading.Event()

    def open(self, opening: Opening) -> None:
        if opening.generation > 1:
            assert self.opens.wait(60)
        super().open(opening)


def test_a_standby_that_watched_for_long_has_a_lease_from_its_first_moment() -> None:
    store, diary, told = MemoryStore(), Slow(), Told()
    leader = begun(store, diary)
    job = standby_of(store, diary, told, stuck_s=0.5)
    while (renewed := time.monotonic()) and not told.notices:
        time.sleep(0.01)
    while time.monotonic() < renewed + 0.7:  # longer than a loop may stand still
        _renewed(store)
        time.sleep(0.05)
    until(lambda: (lease := read_lease(store)) is not None and lease.generation == 2)
    assert leader.log.generation == 1
    diary.opens.set()
    assert job.wait(60).reason == "end"


def _renewed(store: MemoryStore) -> None:
    found = read_lease(store)
    assert found is not None
    write_lease(store, Lease(1, found.count + 1, found.length_s, found.epoch))
