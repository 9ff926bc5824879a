"""A backup is one epoch, whole, whatever happens meanwhile; it is restored under a new id."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.support import Crash, counting, die, driver_of, run
from tests.unit.systems import limited

from headrace import Backup, Checkpoint, failpoints
from headrace.engine.primitives.backups import taking as backup_module
from headrace.engine.primitives.backups.taking import back_up, backups_in
from headrace.errors import CorruptCheckpoint, IncompatibleState, InvalidPipeline, StoreError
from headrace.log.identity import read_identity
from headrace.model.source import Range, Reading, Source, Timing, Workspace
from headrace.plan.control import ControlRequest
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.store.store import ForwardingStore, Store

VALUES = [i % 7 for i in range(60)]
OFTEN = {"collect_every_epochs": 1, "snapshot_every_epochs": 3, "log_directory_entries": 4}


def store_of(**limits: Any) -> MemoryStore:
    return MemoryStore(limited(**OFTEN, **limits))


def counts(checkpoint: Checkpoint) -> dict[str, int]:
    return {key: state["n"] for key, state in checkpoint.scan("Count")}


def expected(epoch: int) -> dict[str, int]:
    """The counts after an epoch: each reads three records."""
    found: dict[str, int] = {}
    for value in VALUES[: 3 * epoch]:
        key = f"key {value}"
        found[key] = found.get(key, 0) + 1
        if found[key] % 5 == 0:
            del found[key]
    return found


@pytest.mark.parametrize("ride_bytes_max", [0, 32_000])
def test_a_backup_restored_elsewhere_goes_on_where_it_was_taken(ride_bytes_max: int) -> None:
    store, place, to = store_of(ride_bytes_max=ride_bytes_max), store_of(), store_of()
    driver = driver_of(counting(VALUES), store, retain_epochs=1)
    run(driver, 5)
    report = Checkpoint(store).backup(place)
    assert (report.pipeline, report.epoch, report.copied) == ("counting", 5, report.files)
    run(driver)
    restored = Backup(place).restore(to)
    assert restored.epoch == 5 and restored.checkpoint != read_identity(store).id
    assert counts(Checkpoint(to)) == expected(5)
    assert Checkpoint(to).verify().problems == []
    again = driver_of(counting(VALUES), to, retain_epochs=1)
    run(again)
    assert counts(Checkpoint(to)) == counts(Checkpoint(store)) == expected(20)
    assert Checkpoint(to).verify().is_whole


def test_backups_share_files_and_each_can_be_restored() -> None:
    store, place = store_of(ride_bytes_max=0, merge_segments_min=99), store_of()
    driver = driver_of(counting(VALUES), store)
    reports = []
    for _ in range(3):
        run(driver, 3)
        reports.append(back_up(store, place))
    assert [each.epoch for each in reports] == [3, 6, 9]
    assert 0 < reports[2].copied < reports[2].files
    assert back_up(store, place).copied == 0
    assert [body.epoch for body in backups_in(place, [])] == [9, 6, 3], "the same epoch: no new one"
    for epoch in (3, 6, 9):
        Backup(place).restore(to := store_of(), epoch)
        assert counts(Checkpoint(to)) == expected(epoch)
    with pytest.raises(IncompatibleState, match="no backup of epoch 4; it has backups of: 3, 6, 9"):
        Backup(place).restore(store_of(), 4)


def test_a_savepoint_and_a_past_epoch_can_be_backed_up() -> None:
    store, place = store_of(), store_of()
    driver = driver_of(counting(VALUES), store, retain_epochs=6)
    run(driver, 4)
    driver.control.own(ControlRequest("", "n", "n", "savepoint", {"name": "here"}))
    run(driver, 5)
    assert Checkpoint(store, at="here").backup(place).epoch == 4
    assert Checkpoint(store, at=7).backup(place).epoch == 7
    for epoch in (4, 7):
        Backup(place).restore(to := store_of(), epoch)
        assert counts(Checkpoint(to)) == expected(epoch)


class Breaking(ForwardingStore):
    """A store that fails after some writes."""

    def __init__(self, base: Store, writes: int) -> None:
        super().__init__(base)
        self.left = writes

    def write(self, name: str, data: bytes) -> None:
        if not self.left:
            raise StoreError("the connection is lost")
        self.left -= 1
        super().write(name, data)


@pytest.mark.parametrize("writes", [0, 1, 3, 5])
def test_a_backup_that_was_interrupted_is_none_and_goes_on(writes: int) -> None:
    store, place = store_of(ride_bytes_max=0, merge_segments_min=99), store_of()
    run(driver_of(counting(VALUES), store), 4)
    with pytest.raises(StoreError, match="the connection is lost"):
        back_up(store, Breaking(place, writes))
    assert backups_in(place, []) == []
    with pytest.raises(IncompatibleState, match="no complete backup yet"):
        Backup(place).restore(store_of())
    report = back_up(store, place)
    assert report.copied == report.files - writes
    Backup(place).restore(to := store_of())
    assert counts(Checkpoint(to)) == expected(4)


def test_a_file_that_an_interrupted_backup_left_damaged_is_copied_again() -> None:
    store, place = store_of(ride_bytes_max=0), store_of()
    run(driver_of(counting(VALUES), store), 4)
    with pytest.raises(StoreError):
        back_up(store, Breaking(place, 2))
    [torn, *_] = [name for name in place.files if name.startswith("state/")]
    place.files[torn] = place.files[torn][:-5]
    back_up(store, place)
    assert Backup(place).verify().problems == []


def test_a_damaged_file_is_not_backed_up() -> None:
    store, place = store_of(ride_bytes_max=0), store_of()
    run(driver_of(counting(VALUES), store), 4)
    [name, *_] = Checkpoint(store)._state.ledger.segments()
    store.files[name] = store.files[name][:-1] + b"!"
    with pytest.raises(CorruptCheckpoint, match="is damaged"):
        back_up(store, place)
    assert backups_in(place, []) == []


def test_damage_in_a_backup_is_found_by_verify_and_by_a_restore() -> None:
    store, place = store_of(ride_bytes_max=0), store_of()
    run(driver_of(counting(VALUES), store), 4)
    back_up(store, place)
    assert Backup(place).verify().is_whole
    whole = dict(place.files)
    names = [n for n in whole if n.startswith("state/")]
    place.files[names[0]] = whole[names[0]][:-1] + b"!"
    del place.files[names[1]]
    found = {problem.file for problem in Backup(place).verify().problems}
    assert found == set(names[:2])
    to = store_of()
    with pytest.raises(CorruptCheckpoint, match="damaged|missing from the backup"):
        Backup(place).restore(to)
    assert read_identity(to) is None, "what was not restored whole is no checkpoint"
    place.files.update(whole)
    [manifest] = [n for n in whole if n.startswith("backups/")]
    place.files[manifest] = whole[manifest].replace(b'"epoch":4', b'"epoch":5', 1)
    assert [problem.file for problem in Backup(place).verify().problems] == [manifest]
    with pytest.raises(CorruptCheckpoint, match="backups/"):
        Backup(place).restore(store_of())


def test_a_restore_that_was_interrupted_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    store, place = store_of(ride_bytes_max=0), store_of()
    run(driver_of(counting(VALUES), store), 4)
    back_up(store, place)
    to = store_of()
    with pytest.raises(StoreError):
        Backup(place).restore(Breaking(to, 2))
    assert to.files and read_identity(to) is None
    restored = Backup(place).restore(to)
    assert counts(Checkpoint(to)) == expected(4)
    # Its log was begun, and the process died before IDENTITY was there.
    del to.files["IDENTITY"]
    again = Backup(place).restore(to)
    assert again.checkpoint != restored.checkpoint
    assert counts(Checkpoint(to)) == expected(4)
    run(driver_of(counting(VALUES), to))
    assert counts(Checkpoint(to)) == expected(20)


def test_a_checkpoint_is_not_restored_into_the_place_of_its_backup(tmp_path: Path) -> None:
    store = store_of()
    run(driver_of(counting(VALUES), store), 2)
    back_up(store, DiskStore(tmp_path / "backups"))
    with pytest.raises(InvalidPipeline, match="a restored checkpoint needs a place of its own"):
        Backup(tmp_path / "backups").restore(tmp_path / "backups" / "again")
    assert Backup(tmp_path / "backups").verify().orphans == []


def test_places_that_are_something_else_are_refused() -> None:
    store, other, place = store_of(), store_of(), store_of()
    run(driver_of(counting(VALUES), store), 2)
    run(driver_of(counting(VALUES, name="other"), other), 2)
    back_up(store, place)
    with pytest.raises(IncompatibleState, match="backups of another checkpoint"):
        back_up(other, place)
    with pytest.raises(InvalidPipeline, match="holds no backups"):
        back_up(store, other)
    with pytest.raises(InvalidPipeline, match="holds no backups"):
        Backup(store)
    with pytest.raises(InvalidPipeline, match="lies in the other"):
        back_up(store, store.below("backups"))
    with pytest.raises(InvalidPipeline, match="a checkpoint already"):
        Backup(place).restore(other)
    (full := store_of()).write("something", b"")
    with pytest.raises(InvalidPipeline, match="is not empty .it has something."):
        Backup(place).restore(full)


def test_backups_while_epochs_are_committed_and_collected_are_each_one_epoch() -> None:
    """The driver keeps one epoch, collects after each, and never waits for the backup."""
    store = store_of(ride_bytes_max=0, merge_segments_min=3)
    driver = driver_of(counting(VALUES), store, retain_epochs=1)
    run(driver, 2)
    ended = threading.Event()

    def lead() -> None:
        try:
            run(driver)
        finally:
            ended.set()

    thread = threading.Thread(target=lead)
    thread.start()
    taken = []
    while not ended.is_set() or not taken:
        place = store_of()
        taken.append((back_up(store, place), place))
    thread.join()
    for report, place in taken:
        Backup(place).restore(to := store_of())
        assert counts(Checkpoint(to)) == expected(min(report.epoch, 20)), report.epoch
    assert store.list("pins") == [], "no pin is left"


class Spooling(Source):
    """A source that keeps its rows in its workspace, and deletes what is released."""

    rereads = True

    def __init__(self) -> None:
        self.timing = Timing(timestamp="at")
        self.bounded = True
        self._store: Store | None = None

    def prepare(self, workspace: Workspace) -> None:
        self._store = workspace.store
        if not workspace.store.list(""):
            for n in range(30):
                workspace.store.write(f"{n:03d}", b"%d" % n)

    def look(self, workspace: Workspace) -> None:
        self._store = workspace.store

    def splits(self) -> list[str]:
        return ["all"]

    def plan(self, split: str, start: int, records: int) -> Range | None:
        end = min(start + records, 30)
        return Range(start, end, end - start, last=end >= 30) if start < 30 else None

    def read(self, split: str, range: Range) -> Reading:
        import numpy as np

        places = np.arange(range.start, range.end, dtype=np.int64)
        values = [{"at": int(self._store.read(f"{n:03d}"))} for n in places.tolist()]
        return Reading(places, values=values)

    def release(self, split: str, position: int) -> None:
        for n in range(position):
            self._store.delete(f"{n:03d}")


def test_the_workspace_of_a_source_is_part_of_a_backup() -> None:
    from headrace.pipeline.fluent.builder import PipelineBuilder
    from headrace.sinks import memory as memory_sink

    def topology(sink: Any) -> Any:
        p = PipelineBuilder("spooled")
        p.read("in", Spooling()).write(sink)
        return p.freeze()

    store, place, to = store_of(), store_of(), store_of()
    driver = driver_of(topology(memory_sink()), store, retain_epochs=2)
    run(driver, 4)
    report = back_up(store, place)
    run(driver)
    with pytest.raises(IncompatibleState, match="is not kept any more|retain_epochs="):
        Checkpoint(store, at=2).backup(store_of())
    left = [n for n in store.files if n.startswith("sources/in/")]
    assert len(left) < 30
    Backup(place).restore(to)
    sink = memory_sink()
    run(driver_of(topology(sink), to, retain_epochs=2))
    assert [row["at"] for row in sink.rows] == list(range(3 * report.epoch, 30))


def test_a_collection_that_slept_makes_the_backup_take_a_newer_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, place = store_of(ride_bytes_max=0, merge_segments_min=3), store_of()
    driver = driver_of(counting(VALUES), store, retain_epochs=1)
    run(driver, 6)
    copy, slept = backup_module._Copying._copy, []

    def sleeping(self: Any, name: str, at: int) -> Any:
        if not slept:
            slept.append(name)
            run(driver, 6)
            store.delete(name)  # as a collection does that looked for pins before there was one
        return copy(self, name, at)

    monkeypatch.setattr(backup_module._Copying, "_copy", sleeping)
    monkeypatch.setattr(backup_module, "COPIES", 1)
    report = back_up(store, place)
    assert report.epoch > 6 and slept
    Backup(place).restore(to := store_of())
    assert counts(Checkpoint(to)) == expected(report.epoch)


def test_a_driver_that_dies_during_a_backup_changes_nothing(tmp_path: Any) -> None:
    store = DiskStore(tmp_path / "state", limited(**OFTEN))
    driver = driver_of(counting(VALUES), store)
    run(driver, 3)
    failpoints.arm("before-commit-write", die)
    try:
        with pytest.raises(Crash):
            run(driver)
    finally:
        failpoints.disarm()
    place = DiskStore(tmp_path / "backup", limited(**OFTEN))
    assert back_up(store, place).epoch == 3
    Backup(place).restore(DiskStore(tmp_path / "again", limited(**OFTEN)))
    assert counts(Checkpoint(DiskStore(tmp_path / "again", limited(**OFTEN)))) == expected(3)
