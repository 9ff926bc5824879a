"""The indexed log: torn tails, rotation, flushes, files that go, writes and syncs that fail."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import numpy as np
import pytest

from headrace.errors import CorruptCheckpoint, StoreError
from headrace.model.values.keys import encode_key, hash_key
from headrace.model.values.time import END
from headrace.state.backends.directory import StateDirectory
from headrace.state.backends.indexed_log.backend import LogBackend
from headrace.state.segment import FIELD, Cell
from headrace.system import AnyPath, Filesystem, System

KEYS = [encode_key(f"k{i}") for i in range(40)]
HASHES = np.array([hash_key(key) for key in KEYS], np.uint64)


class Disk(Filesystem):
    """A disk whose next writes or syncs fail."""

    def __init__(self) -> None:
        super().__init__()
        self.torn_writes = self.failing_syncs = 0

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        if self.torn_writes:
            self.torn_writes -= 1
            os.write(descriptor, bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "no space left")
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        if self.failing_syncs:
            self.failing_syncs -= 1
            raise OSError(errno.EIO, "input/output error")
        super().fsync(descriptor)


def opened(path: Path, disk: Disk | None = None, **options: int) -> LogBackend:
    limits = {"flush_rows": 10**9, "file_bytes": 10**9, "slack_bytes": 10**9, **options}
    return LogBackend(StateDirectory(str(path), System(disk or Disk())), **limits)


def of(key: bytes, value: bytes | None) -> tuple[str, Cell]:
    gone = value is None
    cell = Cell(hash_key(key), key, FIELD, "n", b"", value or b"", 0, END, 1, gone)
    return "C", cell


def put(log: LogBackend, epoch: int, values: dict[bytes, bytes | None]) -> None:
    log.write(epoch, [of(key, value) for key, value in values.items()])
    assert log.raise_applied(epoch, log.marks().run)


def state(log: LogBackend) -> dict[bytes, bytes]:
    found = log.read_fields("C", KEYS, HASHES)
    cells = {key: each["n"].value for key, each in zip(KEYS, found, strict=True) if each}
    return {key: value for key, value in cells.items() if value is not None}


def files_of(path: Path, kind: str) -> list[str]:
    return sorted(name for name in os.listdir(path) if name.endswith(kind))


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_survive_reopening_at_any_time(tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    options = {"flush_rows": 15, "file_bytes": 1500, "slack_bytes": 300}
    log = opened(tmp_path, **options)
    log.lead(1, "")
    live: dict[bytes, bytes] = {}
    named, generation = log.place(), 1
    for epoch in range(1, 60):
        values = {
            key: None if dice.random() < 0.3 else b"%d" % dice.randrange(10**6)
            for key in dice.sample(KEYS, dice.randint(1, 8))
        }
        put(log, epoch, values)
        live.update({k: v for k, v in values.items() if v is not None})
        live = {k: v for k, v in live.items() if values.get(k, b"") is not None}
        log.sync()
        if dice.random() < 0.3:
            log.purge(epoch)
            log.sync()
        if dice.random() < 0.5:  # a commit names the place
            named = log.place()
            if dice.random() < 0.5:
                log.tidy(named)
        assert state(log) == live
        reader = opened(tmp_path, **options)
        reader.follow(named)
        assert state(reader) == live and reader.marks().applied == epoch
        if dice.random() < 0.2:
            generation += 1
            log = opened(tmp_path, **options)
            log.lead(generation, named)
            named = log.place()
            assert state(log) == live and log.marks().applied == epoch


def test_a_batch_that_was_not_written_to_its_end_is_cut_off(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.lead(1, "")
    put(log, 1, {KEYS[0]: b"1"})
    put(log, 2, {KEYS[0]: b"2", KEYS[1]: b"2"})
    place = log.place()
    log.close()
    (name,) = files_of(tmp_path, ".log")
    whole = (tmp_path / name).read_bytes()
    for size in range(len(whole)):
        (tmp_path / name).write_bytes(whole[:size])
        found = opened(tmp_path)
        found.follow(place)
        mark = found.marks().applied
        assert mark in (0, 1) and (mark == 0 or state(found).get(KEYS[0]) in (b"1", b"2"))
    (tmp_path / name).write_bytes(whole)
    found = opened(tmp_path)
    found.follow(place)
    assert found.marks().applied == 2 and state(found) == {KEYS[0]: b"2", KEYS[1]: b"2"}


def test_what_a_closed_generation_appends_counts_for_nothing(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.lead(1, "")
    put(first, 1, {KEYS[0]: b"1", KEYS[1]: b"1"})
    second = opened(tmp_path)
    second.lead(2, first.place())
    put(second, 2, {KEYS[0]: None})
    second.purge(2)
    first.write(1, [of(KEYS[0], b"1")])
    put(first, 2, {KEYS[0]: b"a value that no commit has"})
    first.sync()
    assert state(second) == {KEYS[1]: b"1"}
    third = opened(tmp_path)
    third.lead(3, second.place())
    assert state(third) == {KEYS[1]: b"1"} and third.marks()[:2] == (2, 2)


def test_a_failed_write_leaves_no_gap(tmp_path: Path) -> None:
    disk = Disk()
    log = opened(tmp_path, disk)
    log.lead(1, "")
    put(log, 1, {KEYS[0]: b"1"})
    disk.torn_writes = 1
    with pytest.raises(StoreError, match="disk is full"):
        log.write(2, [of(KEYS[0], b"2")])
    put(log, 2, {KEYS[0]: b"2"})
    put(log, 3, {KEYS[1]: b"3"})
    log.sync()
    found = opened(tmp_path)
    found.follow(log.place())
    assert state(found) == {KEYS[0]: b"2", KEYS[1]: b"3"} and found.marks().applied == 3


def test_after_a_failed_sync_everything_unsynced_is_written_again(tmp_path: Path) -> None:
    disk = Disk()
    log = opened(tmp_path, disk)
    log.lead(1, "")
    put(log, 1, {KEYS[0]: b"1"})
    log.sync()
    (synced,) = files_of(tmp_path, ".log")
    size = (tmp_path / synced).stat().st_size
    put(log, 2, {KEYS[0]: b"2"})
    disk.failing_syncs = 1
    with pytest.raises(StoreError):
        log.sync()
    log.sync()
    os.truncate(tmp_path / synced, size)  # the disk has dropped what it could not write
    found = opened(tmp_path)
    found.follow(log.place())
    assert state(found) == {KEYS[0]: b"2"} and found.marks().applied == 2


def test_files_without_live_records_go_once_a_commit_names_the_place(tmp_path: Path) -> None:
    log = opened(tmp_path, flush_rows=10, file_bytes=300, slack_bytes=0)
    log.lead(1, "")
    for epoch in range(1, 30):
        put(log, epoch, {key: b"%d" % epoch for key in KEYS[:4]})
        log.sync()
    log.purge(29)
    log.sync()
    before = len(files_of(tmp_path, ".log"))
    log.tidy(log.place())
    left = files_of(tmp_path, ".log")
    assert before > 10 and len(left) <= 3
    assert len(files_of(tmp_path, ".index")) == 1
    found = opened(tmp_path)
    found.follow(log.place())
    assert state(found) == dict.fromkeys(KEYS[:4], b"29")


def test_each_flipped_byte_is_found_or_harmless(tmp_path: Path) -> None:
    log = opened(tmp_path, flush_rows=5)
    log.lead(1, "")
    put(log, 1, {key: b"value %d" % i for i, key in enumerate(KEYS[:10])})
    log.sync()  # flushed: the index and the log are two files now
    put(log, 2, {KEYS[0]: b"newer"})
    log.sync()
    right, place = state(log), log.place()
    log.close()
    dice = Random(7)
    for _ in range(300):
        names = [name for name in os.listdir(tmp_path) if name != "RUN"]
        path = tmp_path / dice.choice(sorted(names))
        whole = path.read_bytes()
        at = dice.randrange(len(whole))
        path.write_bytes(
            whole[:at] + bytes([whole[at] ^ (1 << dice.randrange(8))]) + whole[at + 1 :]
        )
        found = opened(tmp_path)
        try:
            found.follow(place)
            # A damaged tail is cut off: then the store's own mark says that it lacks an epoch.
            assert found.marks().applied < 2 or state(found) == right, (path.name, at)
        except CorruptCheckpoint as error:
            assert path.name in str(error)
        path.write_bytes(whole)


def test_an_index_of_many_keys_is_mapped_and_not_read(tmp_path: Path) -> None:
    """Opening does not depend on how often Python looks at a key."""
    log = opened(tmp_path, flush_rows=1)
    log.lead(1, "")
    keys = [encode_key(i) for i in range(20_000)]
    log.write(1, [of(key, b"x") for key in keys])
    log.sync()
    calls = 0

    class Counting(Disk):
        def read(self, path: AnyPath) -> bytes:
            nonlocal calls
            calls += 1
            return super().read(path)

    found = opened(tmp_path, Counting())
    found.follow(log.place())
    hashes = np.array([hash_key(key) for key in keys[:100]], np.uint64)
    assert all(each["n"].value == b"x" for each in found.read_fields("C", keys[:100], hashes))
    assert calls <= 2
