"""The indexed log on a disk that fails: writes and syncs, and bytes that are others than before."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from tests.unit.state.backends.log_support import (
    KEYS,
    Disk,
    files_of,
    of,
    opened,
    put,
    state,
    three_drivers,
)

from headrace.errors import CorruptCheckpoint, StoreError
from headrace.state.backends.directory import GONE
from headrace.state.backends.indexed_log.backend import LogBackend
from headrace.system import AnyPath


def written_again(tmp_path: Path) -> LogBackend:
    """A log whose second write failed half-way, and was made again in the next file."""
    disk = Disk()
    log = opened(tmp_path, disk)
    log.lead(1, "")
    put(log, 1, {KEYS[0]: b"1"})
    disk.torn_writes = 1
    with pytest.raises(StoreError, match="disk is full"):
        log.write(2, [of(KEYS[0], b"2")])
    put(log, 2, {KEYS[0]: b"2"})
    return log


def test_a_failed_write_leaves_no_gap(tmp_path: Path) -> None:
    log = written_again(tmp_path)
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


DROPPED = {
    "all": lambda data, size: data[:size],
    "all, to zeros": lambda data, size: data[:size] + bytes(len(data) - size),
    "the end": lambda data, size: data[: size + 60] + bytes(len(data) - size - 60),
    "the beginning": lambda data, size: data[:size] + bytes(60) + data[size + 60 :],
    "nothing": lambda data, size: data,
}


@pytest.mark.parametrize("dropped", DROPPED)
@pytest.mark.parametrize("flush_rows", [1, 10**9], ids=["flushed", "not flushed"])
@pytest.mark.parametrize("fails", ["sync", "write", "sync, then all is full for a while"])
def test_what_was_not_synced_counts_where_it_was_written_again(
    tmp_path: Path, fails: str, flush_rows: int, dropped: str
) -> None:
    """A disk may make anything of what it has not synced, at any time after."""
    disk = Disk()
    log = opened(tmp_path, disk, flush_rows=flush_rows)
    log.lead(1, "")
    put(log, 1, {KEYS[0]: b"1", KEYS[1]: b"1"})
    log.sync()
    put(log, 2, {KEYS[0]: b"2"})
    log._writer().sync()
    synced = files_of(tmp_path, ".log")[-1]
    size = (tmp_path / synced).stat().st_size
    put(log, 3, {KEYS[0]: b"3"})
    disk.torn_writes, disk.failing_syncs = int(fails == "write"), int(fails != "write")
    with pytest.raises(StoreError):
        log.sync() if disk.failing_syncs else log.write(4, [of(KEYS[0], b"4")])
    if fails.endswith("while"):
        disk.torn_writes = 3
        for _ in range(3):
            with pytest.raises(StoreError, match="disk is full"):
                log.sync()
    log.sync()
    path, place = tmp_path / synced, log.place()
    path.write_bytes(DROPPED[dropped](path.read_bytes(), size))
    log._state()._maps.clear()  # as its memory may be read from the disk again
    right = {KEYS[0]: b"3", KEYS[1]: b"1"}
    found, after, later = (opened(tmp_path) for _ in range(3))
    found.follow(place)
    after.lead(2, place)
    later.follow(after.place())
    for each in (log, found, after, later):
        assert state(each) == right and each.marks().applied == 3


@pytest.mark.parametrize("after", range(6))
def test_who_dies_while_it_writes_again_has_lost_nothing_that_the_next_one_counts(
    tmp_path: Path, after: int
) -> None:
    """What the next driver finds is what it says that it has, to readers and to its successor."""
    disk = Disk()
    log = opened(tmp_path, disk)
    log.lead(1, "")
    put(log, 1, {KEYS[0]: b"1"})
    log.sync()
    put(log, 2, {KEYS[0]: b"2", KEYS[1]: b"2"})
    disk.torn_writes = 1
    with pytest.raises(StoreError, match="disk is full"):
        put(log, 3, {KEYS[2]: b"3"})
    disk.writes_before = after
    disk.torn_writes = 2
    for _ in range(2):
        with suppress(StoreError):
            put(log, 3, {KEYS[2]: b"3"})
    log.close()
    found, later, last = opened(tmp_path), opened(tmp_path), opened(tmp_path)
    found.lead(2, log.place())
    later.follow(found.place())
    last.lead(3, found.place())
    assert found.marks().applied >= 2 and state(found)[KEYS[1]] == b"2"
    for each in (later, last):
        assert state(each) == state(found) and each.marks()[:2] == found.marks()[:2]


class FullFor(Disk):
    """A disk that is full for files of a kind."""

    kind = "nothing"

    def create(self, path: AnyPath) -> int:
        name = os.path.basename(path)
        if self.kind == ("index" if ".index" in name else "place" if ".tmp" in name else "log"):
            raise OSError(errno.ENOSPC, "no space left", os.fspath(path))
        return super().create(path)


@pytest.mark.parametrize("kind", ["index", "place"])
@pytest.mark.parametrize("tries", [1, 3])
def test_a_flush_that_failed_costs_nothing(tmp_path: Path, tries: int, kind: str) -> None:
    """What the place before needs is kept, and what is written later is found from there."""
    disk = FullFor()
    log = opened(tmp_path, disk, flush_rows=1)
    log.lead(1, "")
    put(log, 1, {KEYS[0]: b"1"})
    disk.kind = kind
    place = log.place()
    for _ in range(tries):
        with pytest.raises(StoreError, match="disk is full"):
            log.sync()
    log.tidy(place)
    disk.kind = "nothing"
    log._flush_rows = 10**9
    put(log, 2, {KEYS[1]: b"2"})
    log.sync()
    right = {KEYS[0]: b"1", KEYS[1]: b"2"}
    found, after = opened(tmp_path), opened(tmp_path)
    found.follow(place)
    after.lead(2, place)
    for each in (log, found, after):
        assert state(each) == right and each.marks().applied == 2


@pytest.mark.parametrize("at", [20, 40, 100])
def test_damage_to_what_was_synced_before_a_sync_that_failed_is_found(
    tmp_path: Path, at: int
) -> None:
    disk = Disk()
    log = opened(tmp_path, disk)
    log.lead(1, "")
    put(log, 1, {KEYS[0]: b"1"})
    log.sync()
    put(log, 2, {KEYS[0]: b"2"})
    disk.failing_syncs = 1
    with pytest.raises(StoreError):
        log.sync()
    log.sync()
    path = tmp_path / files_of(tmp_path, ".log")[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    with pytest.raises(CorruptCheckpoint, match=f"{path.name} is damaged at byte 0"):
        opened(tmp_path).follow(log.place())


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


@pytest.mark.parametrize("options", [{}, {"file_bytes": 600}], ids=["one file", "two files"])
def test_damage_to_what_earlier_drivers_appended_is_never_a_wrong_answer(
    tmp_path: Path, options: dict[str, int]
) -> None:
    place = three_drivers(tmp_path, **options)
    right = {KEYS[0]: b"9", **{KEYS[epoch]: b"%d" % epoch for epoch in range(1, 10)}}

    def look() -> str:
        """`damaged`; or `behind`, which the log of the checkpoint tells; or `whole`."""
        found = opened(tmp_path, **options)
        try:
            found.follow(place)
            if found.marks().run == GONE or found.marks().applied < 9:
                return "behind"
            return "whole" if state(found) == right else "wrong"
        except CorruptCheckpoint as error:
            assert str(tmp_path) in str(error) and "put back a copy" in str(error)
            return "damaged"

    assert look() == "whole"
    told: list[str] = []
    for path in (tmp_path / name for name in files_of(tmp_path, ".log")):
        whole = path.read_bytes()
        for at in range(4, len(whole), 13):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            told.append(look())
            if not options:  # the first of two files may end anywhere, after a write that failed
                path.write_bytes(whole[:at])
                told.append(look())
        path.unlink()
        told.append(look())
        path.write_bytes(whole)
    assert {*told} == {"damaged", "behind"}


def test_a_torn_write_of_an_earlier_driver_is_no_damage(tmp_path: Path) -> None:
    log = written_again(tmp_path)
    after = opened(tmp_path)
    after.lead(2, log.place())
    assert len(files_of(tmp_path, ".log")) == 2
    found = opened(tmp_path)
    found.follow(after.place())
    assert state(found) == {KEYS[0]: b"2"} and found.marks().applied == 2
