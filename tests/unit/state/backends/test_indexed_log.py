"""The indexed log: torn tails, rotation, flushes, files that go, places that are removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
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

from headrace.errors import StoreError
from headrace.model.values.keys import encode_key, hash_key
from headrace.state.backend import PlaceGone
from headrace.state.backends.indexed_log import backend
from headrace.system import AnyPath


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


@pytest.mark.parametrize("kind", [".log", ".index", "", "RUN"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    log = opened(tmp_path, flush_rows=1)
    log.lead(1, "")
    put(log, 1, {KEYS[0]: b"1"})
    log.sync()
    put(log, 2, {KEYS[1]: b"2"})

    class Locked(Disk):
        def read(self, path: AnyPath) -> bytes:
            refuse(path)
            return super().read(path)

        def map(self, path: AnyPath) -> pa.Buffer:
            refuse(path)
            return super().map(path)

    def refuse(path: AnyPath) -> None:
        base, dot, end = os.path.basename(path).partition(".")
        if kind in (f"{dot}{end}", base):
            raise PermissionError(errno.EACCES, "denied", os.fspath(path))

    reader = opened(tmp_path, Locked())
    with pytest.raises(StoreError, match=f"cannot read {tmp_path}.*: .*let this user read it"):
        reader.follow(log.place())
        reader.marks()


def test_files_that_go_while_a_reader_is_there_can_be_read_by_it(tmp_path: Path) -> None:
    """Else a long copy of a running pipeline's state would fail in its middle."""
    log = opened(tmp_path, flush_rows=10, file_bytes=300, slack_bytes=0)
    log.lead(1, "")
    for epoch in range(1, 10):
        put(log, epoch, {key: b"%d" % epoch for key in KEYS[:4]})
        log.sync()
    reader, late = opened(tmp_path), opened(tmp_path)
    reader.follow(log.place())
    late.follow(log.place())
    late._state()._maps.clear()  # as if the files had gone before it could map them
    for epoch in range(10, 40):
        put(log, epoch, {key: b"%d" % epoch for key in KEYS[:4]})
        log.sync()
    before = files_of(tmp_path, ".log")
    log.purge(39)
    log.sync()
    log.tidy(log.place())
    assert len(files_of(tmp_path, ".log")) < len(before)
    assert state(reader) == dict.fromkeys(KEYS[:4], b"9")
    with pytest.raises(PlaceGone, match="a commit has named a newer place"):
        state(late)


def test_what_still_counts_is_copied_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of many gigabytes is not copied through the memory of the driver."""
    monkeypatch.setattr(backend, "COPY_BYTES", 400)
    disk = Disk()
    log = opened(tmp_path, disk, slack_bytes=0)
    log.lead(1, "")
    put(log, 1, {key: b"x" * 40 for key in KEYS})
    for epoch in range(2, 6):
        put(log, epoch, {key: b"%d" % epoch * 60 for key in KEYS[:30]})
    log.sync()
    sizes: list[int] = []
    write = disk.write
    monkeypatch.setattr(
        disk, "write", lambda to, data: (sizes.append(len(data)), write(to, data))[1]
    )
    right = state(log)
    log._copy_from_sparse_files()
    assert len(sizes) > 5 and max(sizes) < 1500
    assert state(log) == right
    found = opened(tmp_path)
    found.follow(log.place())
    assert state(found) == right


def test_a_reader_that_meets_a_tidying_log_looks_for_the_next_place(tmp_path: Path) -> None:
    """What is being removed is not missing."""
    told: list[str] = []

    class Tidying(Disk):
        def unlink(self, path: AnyPath) -> None:
            super().unlink(path)
            if os.fspath(path).endswith(".log"):
                try:
                    state(late)
                except StoreError as error:
                    told.append(type(error).__name__)

    place = three_drivers(tmp_path)
    log = opened(tmp_path, Tidying(), slack_bytes=0)
    log.lead(4, place)
    named, late = log.place(), opened(tmp_path)
    late.follow(named)
    late._state()._maps.clear()  # as if the files had gone before it could map them
    put(log, 10, dict.fromkeys(KEYS[:10], b"10"))
    log.purge(10)
    log.sync()
    log.tidy(log.place())
    assert {*told} == {"PlaceGone"}


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
