"""Leases: what a standby concludes from what it reads, and what a leader writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.unit.engine.support import counting, driver_of, follower_of, run
from tests.unit.engine.test_delivery import Diary, epochs_of
from tests.unit.engine.test_outages import Told, until
from tests.unit.systems import Stopwatch, limited

from headrace.engine.driver.follower import StoodBack
from headrace.engine.job import Job
from headrace.engine.leading.lease import (
    DONE,
    HELD,
    RELEASED,
    KeepWaiting,
    LeaderFinished,
    Lease,
    LeaseKeeper,
    LeaseObserver,
    Pulse,
    TakeOver,
    read_lease,
    write_lease,
)
from headrace.engine.leading.standby import READY, REHEARSALS
from headrace.errors import Fenced, IncompatibleState, StoreError
from headrace.log import paths
from headrace.store.memory import MemoryStore
from headrace.system import System

VALUES = [i * 7 % 10 for i in range(60)]


def lease(generation: int = 4, count: int = 1, state: str = HELD) -> Lease:
    return Lease(generation, count, 3.0, epoch=118, state=state, reason="asked")


def test_a_lease_that_is_renewed_never_lapses() -> None:
    watcher = LeaseObserver(3.0)
    for second in range(100):
        verdict = watcher.look(4, lease(count=second // 2), float(second))
        assert verdict == KeepWaiting("leader generation 4 is alive, epoch 118")


def test_a_lease_that_stands_still_lapses_after_its_own_length_by_the_watchers_clock() -> None:
    watcher = LeaseObserver(60.0)
    assert isinstance(watcher.look(4, lease(), 1000.0), KeepWaiting)
    assert isinstance(watcher.look(4, lease(), 1002.9), KeepWaiting)
    verdict = watcher.look(4, lease(), 1003.0)
    assert isinstance(verdict, TakeOver)
    assert (verdict.generation, "silent for 3.0 s" in verdict.text) == (4, True)


def test_a_newer_generation_in_the_log_gets_its_time_to_write_a_lease() -> None:
    watcher = LeaseObserver(3.0)
    assert isinstance(watcher.look(4, lease(), 0.0), KeepWaiting)
    assert isinstance(watcher.look(5, lease(), 2.9), KeepWaiting)
    assert isinstance(watcher.look(5, lease(), 5.8), KeepWaiting)
    assert watcher.look(5, lease(), 5.9).generation == 5  # type: ignore[union-attr]


def test_what_a_woken_older_leader_writes_does_not_count() -> None:
    watcher = LeaseObserver(3.0)
    watcher.look(5, lease(5, 10), 0.0)
    for second in range(1, 4):
        verdict = watcher.look(5, lease(4, 100 + second), float(second))
    assert isinstance(verdict, KeepWaiting), "its own lease was overwritten: time to write it again"
    assert isinstance(watcher.look(5, lease(4, 200), 4.0), TakeOver)


def test_a_leader_that_is_done_ends_the_standby_and_one_that_let_go_is_followed_at_once() -> None:
    assert isinstance(LeaseObserver(3.0).look(4, lease(state=DONE), 0.0), LeaderFinished)
    verdict = LeaseObserver(3.0).look(4, lease(state=RELEASED), 0.0)
    assert isinstance(verdict, TakeOver) and "has released its lease (asked)" in verdict.text


def test_time_in_which_the_checkpoint_was_away_does_not_count() -> None:
    watcher = LeaseObserver(3.0)
    watcher.look(4, lease(), 0.0)
    watcher.unreadable()
    assert isinstance(watcher.look(4, lease(), 100.0), KeepWaiting)
    assert isinstance(watcher.look(4, lease(), 103.0), TakeOver)


def test_without_a_leader_a_standby_begins_itself_after_a_while() -> None:
    watcher = LeaseObserver(3.0)
    assert watcher.look(0, None, 0.0) == KeepWaiting("no driver has begun; waiting for a leader")
    assert watcher.look(0, None, 3.0).generation == 0  # type: ignore[union-attr]


def test_a_lease_file_that_is_damaged_is_no_lease() -> None:
    store = MemoryStore()
    assert read_lease(store) is None
    write_lease(store, lease())
    assert read_lease(store) == lease()
    store.files[paths.LEASE] = store.files[paths.LEASE][:-5]
    assert read_lease(store) is None


def test_a_loop_that_makes_no_step_is_dead_unless_a_job_runs() -> None:
    watch = Stopwatch()
    pulse = Pulse(10.0, watch)
    watch.now_s = 9.9
    assert pulse.alive()
    watch.now_s = 10.0
    assert not pulse.alive()
    pulse.job(True)
    watch.now_s = 500.0
    assert pulse.alive()
    pulse.job(False)
    assert pulse.alive()
    watch.now_s = 510.0
    assert not pulse.alive()
    assert Pulse(None).alive()


def test_a_keeper_renews_until_a_newer_leader_writes_and_ends_with_a_last_word() -> None:
    store, alive = MemoryStore(), Pulse(None)
    keeper = LeaseKeeper(store, 1, 0.2, lambda: 7, alive)
    until(lambda: (found := read_lease(store)) is not None and found.count >= 3)
    assert read_lease(store).epoch == 7  # type: ignore[union-attr]
    newer = Lease(2, 1, 0.2)
    write_lease(store, newer)
    time.sleep(0.3)
    assert read_lease(store) == newer
    keeper.end(RELEASED, "stopped")
    assert read_lease(store) == newer, "the last word of an older leader is not heard"
    keeper = LeaseKeeper(store, 2, 0.2, lambda: 7, alive)
    keeper.end(RELEASED, "stopped")
    assert (read_lease(store).state, read_lease(store).reason) == (RELEASED, "stopped")  # type: ignore[union-attr]


# Standbys over one checkpoint in this process -------------------------------


def standby_of(
    store: MemoryStore,
    diary: Diary,
    told: Told,
    warm: Callable[[], None] = lambda: None,
    **options: Any,
) -> Job:
    options = {"lease_s": 0.3, "standby": True, "on_notice": told, **options}
    return Job(follower_of(counting(VALUES, diary), store, **options), warm)


def begun(store: MemoryStore, diary: Diary, epochs: int = 5):
    """A leader that has done some epochs, with a lease that nobody renews."""
    leader = driver_of(counting(VALUES, diary), store)
    run(leader, epochs)
    write_lease(store, Lease(leader.log.generation, 9, 0.3, leader.ledger.epoch))
    return leader


def test_a_standby_takes_over_when_the_lease_lapses_and_the_old_leader_is_fenced() -> None:
    store, diary, told = MemoryStore(), Diary(), Told()
    leader = begun(store, diary)
    job = standby_of(store, diary, told)
    assert job.wait(60).reason == "end"
    texts = [notice.text for notice in told.notices if notice.text != READY]
    assert texts[0] == "standby: leader generation 1 is alive, epoch 5"
    assert "taking over" in texts[1] and texts[2].startswith("leading as generation 2, epoch 5")
    assert epochs_of(diary) == list(range(1, 22))
    with pytest.raises(Fenced):
        leader.step()
    assert read_lease(store).state == DONE  # type: ignore[union-attr]


def test_a_standby_says_once_when_its_rehearsals_are_over() -> None:
    store, diary, told = MemoryStore(), Diary(), Told()
    begun(store, diary)
    write_lease(store, Lease(1, 9, 1000.0, 5))
    warmed: list[int] = []
    job = standby_of(store, diary, told, warm=lambda: warmed.append(len(said(told))))
    until(lambda: said(told))
    assert warmed == [0] * REHEARSALS, "and not before the last of them"
    job.stop()
    assert len(said(told)) == 1


def said(told: Told) -> list[str]:
    return [notice.text for notice in told.notices if notice.text == READY]


def test_of_several_standbys_one_leads_and_the_others_wait_and_end_with_it() -> None:
    store, diary = MemoryStore(), Diary()
    begun(store, diary)
    told = [Told() for _ in range(4)]
    jobs = [standby_of(store, diary, each) for each in told]
    reasons = sorted(job.wait(60).reason for job in jobs)
    assert reasons == ["end", "not_needed", "not_needed", "not_needed"]
    generations = {
        msgspec.json.decode(data.split(b"\n")[1])["generation"]
        for name, data in store.files.items()
        if name.startswith("log/")
    }
    assert generations == {1, 2}, "nobody fenced the winner"
    assert epochs_of(diary) == list(range(1, 22))


def test_a_standby_stands_back_where_another_was_first() -> None:
    store, diary = MemoryStore(), Diary()
    begun(store, diary)
    second = follower_of(counting(VALUES, diary), store)
    assert second.follow() == 1
    driver_of(counting(VALUES, diary), store)
    before = dict(store.files)
    with pytest.raises(StoodBack):
        second.take_over(lapsed=1)
    assert store.files == before, "and writes nothing"


def test_a_standby_writes_and_deletes_nothing_while_it_waits() -> None:
    store, diary = MemoryStore(), Diary()
    begun(store, diary)
    write_lease(store, Lease(1, 9, 1000.0, 5))
    before = dict(store.files)
    warmed = threading.Event()
    told = Told()
    job = standby_of(store, diary, told, warm=warmed.set)
    until(lambda: told.notices and warmed.is_set())
    assert job.status().phase == "standby"
    assert job.stop().reason == "stopped"  # type: ignore[union-attr]
    assert store.files == before


def test_a_leader_that_leaves_hands_over_at_once() -> None:
    store, diary, told = MemoryStore(), Diary(), Told()
    leader = Job(follower_of(counting(VALUES, diary), store, until=None, lease_s=600.0))
    until(lambda: leader.status().epoch >= 20)
    job = standby_of(store, diary, told)
    until(lambda: told.notices)
    leader.leave()
    assert job.wait(60).reason == "end"
    assert "has released its lease (stopped)" in told.notices[1].text


def test_a_standby_of_another_pipeline_is_refused_at_once() -> None:
    store, diary = MemoryStore(), Diary()
    begun(store, diary)
    topology = counting(VALUES, diary, name="other")
    with pytest.raises(IncompatibleState, match="belongs to pipeline"):
        Job(follower_of(topology, store, lease_s=600.0, standby=True)).wait(60)


def test_a_standby_does_not_begin_anew_where_the_checkpoint_has_gone() -> None:
    store, diary = MemoryStore(), Diary()
    begun(store, diary)
    standby = follower_of(counting(VALUES, diary), store)
    standby.follow()
    store.files.clear()
    with pytest.raises(StoreError, match="is not there"):
        standby.follow()
    with pytest.raises(StoreError, match="is not there"):
        standby.take_over(lapsed=1)
    assert store.files == {}


def test_a_standby_far_behind_reads_the_log_anew_where_it_was_trimmed() -> None:
    small = limited(log_directory_entries=4, snapshot_every_epochs=2, collect_every_epochs=1)
    store, diary = MemoryStore(small), Diary()
    leader = driver_of(counting(VALUES, diary), store, retain_epochs=2)
    run(leader, 2)
    standby = follower_of(counting(VALUES, diary), store, retain_epochs=2)
    standby.follow()
    run(leader, 12)
    standby.follow()
    assert standby.ledger.epoch == leader.ledger.epoch
    run(standby.take_over(lapsed=1))
    assert epochs_of(diary) == list(range(1, 22))


class Slow(MemoryStore):
    """Refuses a name that is written again within a second, as some object stores do."""

    rewrite_interval_s = 1.1

    def __init__(self, system: System) -> None:
        super().__init__(system)
        self.written: list[float] = []

    def write(self, name: str, data: bytes) -> None:
        super().write(name, data)
        if name == paths.LEASE:
            self.written.append(self.system.uptime_s())


def test_a_lease_is_never_written_again_before_its_store_allows_it() -> None:
    time = Stopwatch()
    store = Slow(time)
    keeper = LeaseKeeper(store, 4, 0.2, lambda: 7, Pulse(None, time))
    until(lambda: bool(store.written))
    keeper.end(RELEASED, "stopped")
    found = read_lease(store)
    assert found is not None and found.state == RELEASED and found.length_s == 4.4
    assert len(store.written) == 2 and store.written[1] - store.written[0] >= 1.1


SMALL = limited(log_directory_entries=5, collect_every_epochs=1, snapshot_every_epochs=2)


class Listed(MemoryStore):
    """Counts listings."""

    listed = 0

    def list(self, directory: str) -> list[str]:
        self.listed += 1
        return super().list(directory)


def test_a_standby_that_polls_lists_nothing_and_notices_that_it_was_left_behind() -> None:
    store = Listed(SMALL)
    leader = driver_of(counting(VALUES * 3), store, retain_epochs=1)
    run(leader, 2)
    standby = follower_of(counting(VALUES * 3), store)
    standby.follow()
    before = store.listed
    for _ in range(5):
        standby.follow(closely=False)
    assert store.listed == before and standby.ledger.epoch == 2
    run(leader, 40)
    standby.follow(closely=False)
    assert standby.ledger.epoch == 42


def test_a_follower_does_not_take_the_entry_of_a_driver_that_slept_for_the_logs_own() -> None:
    """On a store without directories a trimmed position is free until its writer looks."""
    store = MemoryStore(SMALL)
    leader = driver_of(counting(VALUES * 3), store, retain_epochs=1)
    run(leader, 2)
    standby = follower_of(counting(VALUES * 3), store)
    standby.follow()
    at = standby.log.position
    run(leader, 40)
    stale = store.files[paths.log_entry(leader.log.position, store.system.limits)]
    store.files[paths.log_entry(at + 1, store.system.limits)] = stale
    standby.follow(closely=False)
    assert standby.ledger.epoch == 42
