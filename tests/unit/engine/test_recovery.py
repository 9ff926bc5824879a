"""From the log back to a ledger: the same one, whatever was lost on the way."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.unit.engine.support import Crash, counting, die, driver_of, run
from tests.unit.systems import limited

from headrace import Computation, failpoints, state
from headrace.engine.history.recovery import History, recover
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.errors import CorruptCheckpoint, Fenced, SourceError, StoreError, UserCodeError
from headrace.limits import LIMITS
from headrace.log import paths
from headrace.log.entry import COMMIT, PLAN, VOID
from headrace.log.epochlog import EpochLog
from headrace.log.missing import without_log
from headrace.model.source import Range, Reading, Source, Timing, positions
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sources import memory, text
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

VALUES = [i * 7 % 10 for i in range(300)]

SNAPSHOT_EVERY = LIMITS.snapshot_every_epochs


def recovered(store: MemoryStore, retain: int = 16) -> History:
    return recover(EpochLog(store), retain)


def folded(store: MemoryStore, retain: int = 16) -> History:
    """Every entry from the first, without snapshots."""
    history = History(retain)
    log = EpochLog(store)
    for position, entry in log.follow():
        history.fold(position, entry)
    return history


def kinds(store: MemoryStore) -> list[str]:
    return [entry.kind for _, entry in EpochLog(store).follow()]


@pytest.mark.parametrize("epochs", [0, 1, 31, 32, 33, 50, 70])
def test_recovery_from_a_snapshot_equals_the_fold_of_the_whole_log(epochs: int) -> None:
    driver = driver_of(counting(VALUES))
    run(driver, epochs)
    found, whole = recovered(driver.store), folded(driver.store)
    assert found.ledger == whole.ledger == driver.ledger
    assert found.commits == whole.commits == driver.history.commits
    assert found.files() == whole.files() == driver.history.files()
    assert found.marks == whole.marks


def test_the_window_after_a_crash_is_the_window_before_it() -> None:
    """Else files that the window names would be collected after a crash near a snapshot."""
    driver = driver_of(counting(VALUES), retain_epochs=10)
    run(driver, SNAPSHOT_EVERY + 2)
    assert len(recovered(driver.store, 10).commits) == 10
    assert recovered(driver.store, 10).needed_from() == driver.history.needed_from()


def test_recovery_reads_a_bounded_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = driver_of(counting(VALUES), retain_epochs=4)
    run(driver, 90)
    reads = 0
    real = EpochLog.read

    def counted(self, position):
        nonlocal reads
        reads += 1
        return real(self, position)

    monkeypatch.setattr(EpochLog, "read", counted)
    recovered(driver.store, 4)
    assert reads <= SNAPSHOT_EVERY + 4 + 2


def test_a_commit_carries_the_next_plan_and_recovery_finds_it_open() -> None:
    driver = driver_of(counting(VALUES))
    run(driver, 2)
    assert kinds(driver.store) == ["generation", PLAN, COMMIT, COMMIT]
    found = recovered(driver.store).ledger
    assert found.open_plan is not None and found.open_plan.epoch == 3
    assert found.wall == found.open_plan.wall


def test_a_snapshot_with_a_carried_plan_leaves_it_open() -> None:
    driver = driver_of(counting(VALUES))
    run(driver, SNAPSHOT_EVERY)
    found = recovered(driver.store, 1).ledger
    assert found.open_plan is not None and found.open_plan.epoch == SNAPSHOT_EVERY + 1


def test_a_new_driver_runs_the_open_plan_and_not_another() -> None:
    driver = driver_of(counting(VALUES))
    run(driver, 2)
    open_plan = driver.ledger.open_plan
    successor = driver_of(driver.topology, driver.store)
    run(successor, 1)
    assert successor.substrate.tasks[0].plan == open_plan


def test_a_plan_of_other_code_is_voided_and_closes_nothing() -> None:
    driver = driver_of(counting(VALUES))
    run(driver, 2)
    wall = driver.ledger.wall
    successor = driver_of(driver.topology, driver.store, clock=lambda: 1, code="other code")
    run(successor, 1)
    assert kinds(driver.store)[-3:] == [VOID, PLAN, COMMIT]
    plan = successor.substrate.tasks[0].plan
    assert plan.epoch == 3 and plan.fingerprint == "other code"
    assert plan.wall > wall, "voided plans count for the clock, too"
    assert recovered(driver.store).ledger == successor.ledger


def test_user_code_that_fails_voids_the_plan_so_that_mended_code_can_run() -> None:
    class Fails(Computation):
        def process_record(self, record, ctx):
            raise ValueError("a bug")

    pipeline = PipelineBuilder("p")
    pipeline.read("s", memory([1], timestamps=[0]))
    pipeline.compute(Fails, inputs={"s": lambda v: "k"})
    driver = driver_of(pipeline.freeze())
    with pytest.raises(UserCodeError, match="a bug"):
        driver.step()
    assert kinds(driver.store)[-1] == VOID
    assert recovered(driver.store).ledger.open_plan is None


def test_a_missing_entry_is_an_error_and_never_a_smaller_state() -> None:
    driver = driver_of(counting(VALUES))
    run(driver, 5)
    del driver.store.files[paths.log_entry(3)]
    with pytest.raises(CorruptCheckpoint, match="missing"):
        recovered(driver.store)


def test_a_missing_entry_before_a_snapshot_is_not_needed() -> None:
    driver = driver_of(counting(VALUES), retain_epochs=2)
    run(driver, SNAPSHOT_EVERY + 5)
    ledger = folded(driver.store).ledger
    del driver.store.files[paths.log_entry(3)]
    assert recovered(driver.store, 2).ledger == ledger
    # A longer window is asked for than the log still has: the state is the same.
    assert recovered(driver.store, 99).ledger == ledger


def test_a_log_trimmed_under_its_reader_is_read_once_more() -> None:
    driver = driver_of(counting(VALUES), retain_epochs=2)
    run(driver, SNAPSHOT_EVERY - 1)
    log = EpochLog(driver.store)
    real, trimmed = log.read, []

    def read(position):
        if position == 20 and not trimmed:
            trimmed.append(run(driver, 3))
            for gone in range(1, 21):
                del driver.store.files[paths.log_entry(gone)]
        return real(position)

    log.read = read  # type: ignore[method-assign]
    assert recover(log, 2).ledger == driver.ledger
    assert log.position == driver.log.position


def test_commits_out_of_order_are_refused() -> None:
    driver = driver_of(counting(VALUES))
    run(driver, 3)
    position, commit = driver.history.commits[-1]
    history = recovered(driver.store)
    with pytest.raises(CorruptCheckpoint, match=f"commits epoch {commit.epoch}"):
        history.committed(commit, position + 1)


@pytest.mark.parametrize("body", [b"{}", b'{"commit": 3}', b"[]"])
def test_an_entry_that_cannot_be_decoded_is_named(body: bytes) -> None:
    driver = driver_of(counting(VALUES))
    driver.log.append(COMMIT, msgspec.Raw(body))
    with pytest.raises(CorruptCheckpoint, match="log position 2 cannot be decoded"):
        recovered(driver.store)


def test_an_entry_of_an_unknown_kind_is_refused() -> None:
    driver = driver_of(counting(VALUES))
    driver.log.append("oracle", {})
    with pytest.raises(CorruptCheckpoint, match="unknown kind 'oracle'"):
        recovered(driver.store)


def test_a_driver_is_fenced_by_its_successor_and_writes_nothing_more() -> None:
    driver = driver_of(counting(VALUES))
    run(driver, 2)
    successor = driver_of(driver.topology, driver.store)
    before = dict(driver.store.files)
    with pytest.raises(Fenced, match="generation 2"):
        driver.step()
    entries = [name for name in driver.store.files if name.startswith("log/")]
    assert entries == [name for name in before if name.startswith("log/")]
    run(successor)
    assert successor.ledger.counters.records == len(VALUES)


def test_a_driver_whose_commit_did_not_land_goes_no_further() -> None:
    """Its ledger is ahead of the log: the next plan would build on an epoch that never was."""
    driver = driver_of(counting(VALUES))
    run(driver, 1)

    def refuse(*_: object) -> bool:
        raise StoreError("the disk is full")

    real, driver.store.put_if_absent = driver.store.put_if_absent, refuse
    driver.log._sleep = lambda _: None
    with pytest.raises(StoreError, match="could not be written"):
        driver.step()
    driver.store.put_if_absent = real
    with pytest.raises(StoreError, match="start again"):
        driver.step()
    successor = driver_of(driver.topology, driver.store)
    run(successor)
    assert successor.ledger.counters.records == len(VALUES)


class Unspeakable(Source):
    """From its second range on, it names what cannot be written down."""

    timing = Timing()

    def splits(self) -> list[str]:
        return ["all"]

    def plan(self, split: str, start: int, records: int) -> Range:
        return Range(start, start + 3, 3, fingerprint="\udce9" if start else "")

    def read(self, split: str, range: Range) -> Reading:
        return Reading(positions(range.start, 3), values=[1, 2, 3])


def test_a_next_plan_that_cannot_be_written_does_not_stop_the_commit() -> None:
    driver = driver_of(counting(Unspeakable()))
    driver.step()
    assert (driver.ledger.epoch, driver.ledger.open_plan) == (1, None)
    with pytest.raises(UnicodeEncodeError):
        driver.step()
    assert driver_of(driver.topology, driver.store).ledger.counters.records == 3


def test_a_file_of_an_odd_name_stops_the_next_plan_and_not_the_commit(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n3\n4\n5\n6\n7\n8\n9\n")
    driver = driver_of(counting(text(tmp_path, watch=True)))
    driver.step()
    odd = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
    open(odd, "w").close()
    driver.step()
    assert driver.ledger.epoch == 2
    with pytest.raises(SourceError, match=r"caf\\xe9.txt.*rename the file"):
        driver.step()
    os.unlink(odd)
    driver.step()
    assert driver.ledger.counters.records == 9


def test_state_that_followed_a_renamed_computation_is_still_there_after_a_restart() -> None:
    class Total(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n += 1

    def named(name: str, values: int, **options):
        pipeline = PipelineBuilder("p")
        pipeline.read("s", memory(list(range(values)), timestamps=range(values)))
        pipeline.compute(Total, inputs={"s": lambda v: "k"}, name=name, **options)
        return pipeline.freeze()

    store = MemoryStore()
    run(driver_of(named("Old", 5), store, until="caught_up"), 1)
    topology = named("New", 50, aliases=["Old"])
    run(driver_of(topology, store, until="caught_up"), 1)
    again = driver_of(topology, store, until="caught_up")
    run(again)
    assert Checkpoint(store).get("New", "k") == {"n": again.ledger.counters.records}
    assert "Old" not in again.ledger.slots


@pytest.mark.parametrize("name", ["before-commit-write", "after-commit-write", "after-plan-write"])
def test_a_crash_around_a_write_is_repeated_or_kept_never_half_done(name: str) -> None:
    topology = counting(VALUES[:20])
    driver = driver_of(topology)
    run(driver, 2 if name != "after-plan-write" else 0)
    failpoints.arm(name, die)
    try:
        with pytest.raises(Crash):
            driver.step()
    finally:
        failpoints.disarm()
    successor = driver_of(topology, driver.store)
    run(successor)
    assert successor.ledger.counters.records == 20
    sink = topology.graph.outlets["counts"].sink
    assert len(sink.rows) == 20


@pytest.mark.parametrize("rides", [0, 32_000])
def test_a_start_without_the_log_is_refused(rides: int, tmp_path: Path) -> None:
    store = DiskStore(tmp_path, limited(ride_bytes_max=rides))
    run(driver_of(counting(VALUES[:20]), store), 3)
    (tmp_path / "LEASE").write_bytes(b"as a leading driver leaves it")
    shutil.rmtree(tmp_path / "log")
    before = sorted(tmp_path.rglob("*"))
    for _ in range(2):
        with pytest.raises(CorruptCheckpoint, match="the log is missing.*is there.*Put back"):
            driver_of(counting(VALUES[:20]), store)
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"


@pytest.mark.parametrize("name", [n for n in failpoints.NAMES if n not in failpoints.ASKED])
def test_a_crash_of_the_first_driver_in_its_first_epoch_is_no_missing_log(name: str) -> None:
    topology, store = counting(VALUES[:20]), MemoryStore(limited(ride_bytes_max=0))
    failpoints.arm(name, die)
    try:
        with suppress(Crash):
            run(driver_of(topology, store), 1)
    finally:
        failpoints.disarm()
    assert without_log(store) == ""
    successor = driver_of(topology, store)
    run(successor)
    assert successor.ledger.counters.records == 20
