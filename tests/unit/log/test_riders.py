"""Riders: small files in the tail of a log entry (PROTOCOL M1)."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.systems import limited

from headrace.errors import CorruptCheckpoint, StoreError
from headrace.log import paths, riders
from headrace.log.content import digest_of, first_damaged, map_named, verify
from headrace.log.entry import COMMIT, PLAN
from headrace.log.epochlog import EpochLog
from headrace.log.identity import claim_identity
from headrace.log.riders import is_there, map_rider
from headrace.store.memory import MemoryStore


class Counting(MemoryStore):
    """Counts how often each file is mapped."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(limited(**limits))
        self.mapped: list[str] = []

    def map(self, name: str) -> pa.Buffer:
        self.mapped.append(name)
        return super().map(name)


def named(data: bytes, label: str = "Count/0") -> str:
    return f"state/Count/{paths.content_name(1, label, digest_of(data), '.arrow')}"


def store_with(*entries: dict[str, bytes], **limits: Any) -> Counting:
    """A checkpoint whose log has a generation at position 1, then these entries."""
    store = Counting(**limits)
    claim_identity(store, "orders")
    log = EpochLog(store)
    assert not list(log.take_over())
    for each in entries:
        log.append(COMMIT, {"epoch": 1}, each)
    return store


@given(st.lists(st.binary(max_size=200), max_size=8, unique=True))
def test_any_bytes_come_back_under_their_names(contents: list[bytes]) -> None:
    files = {named(data): data for data in contents}
    store = store_with(files)
    for name, data in files.items():
        found = map_named(store, name, 2)
        verify(name, found)
        assert found.to_pybytes() == data
    entry = EpochLog(store).read(2)
    assert entry is not None and entry.kind == COMMIT and bytes(entry.body) == b'{"epoch":1}'
    assert {name: length for name, (_, length) in entry.riders.items()} == {
        name: len(data) for name, data in files.items()
    }


def test_an_entry_is_readable_text_with_the_bytes_behind_it() -> None:
    data = b"\n\x00bytes\n{}\n"
    store = store_with({named(data): data}, {})
    head, text, tail = store.files[paths.log_entry(2)].split(b"\n", 2)
    assert head.startswith(b"headrace-log 3 ") and tail == data
    assert b"bytes" not in text and named(data).encode() in text
    assert b"riders" not in store.files[paths.log_entry(3)]


def test_what_repeats_itself_is_packed_and_comes_back() -> None:
    """Small Arrow files are mostly schema, the same one in each."""
    files = {named(data): data for data in (b"schema " * 300 + bytes([i]) for i in range(5))}
    store = store_with(files)
    stored = store.files[paths.log_entry(2)]
    assert len(stored) < 1_000 < sum(map(len, files.values()))
    for name, data in files.items():
        found = map_named(store, name, 2)
        assert found.to_pybytes() == data and found.parent is None
    assert EpochLog(store).read(2) is not None


def test_every_put_of_an_entry_has_the_same_bytes() -> None:
    """A2: a second put with other bytes could not be told from that of another driver."""
    puts: list[bytes] = []

    class Failing(MemoryStore):
        def put_if_absent(self, name: str, data: bytes) -> bool:
            if name == paths.log_entry(2) and len(puts) < 3:
                puts.append(data)
                raise StoreError("no answer")
            puts.append(data)
            return super().put_if_absent(name, data)

    store = Failing()
    log = EpochLog(store)
    assert not list(log.take_over())
    puts.clear()
    log.append(COMMIT, {}, {named(b"abc"): b"abc"})
    assert len(puts) == 4 and len(set(puts)) == 1


@pytest.mark.parametrize("place", [-1, -3, 60])
def test_a_changed_byte_anywhere_is_noticed(place: int) -> None:
    store = store_with({named(b"abcdef"): b"abcdef"})
    data = bytearray(store.files[paths.log_entry(2)])
    data[place] ^= 1
    store.files[paths.log_entry(2)] = bytes(data)
    with pytest.raises(CorruptCheckpoint, match="checksum"):
        map_named(store, named(b"abcdef"), 2)
    with pytest.raises(CorruptCheckpoint, match="checksum"):
        EpochLog(store).read(2)


def test_an_entry_that_does_not_hold_a_rider_is_damage_that_names_both() -> None:
    store = store_with({named(b"abc"): b"abc"})
    with pytest.raises(CorruptCheckpoint, match="does not hold") as found:
        map_named(store, named(b"other"), 2)
    assert paths.log_entry(2) in str(found.value) and named(b"other") in str(found.value)


def test_an_entry_that_is_missing_is_damage_or_an_outage() -> None:
    store = store_with({named(b"abc"): b"abc"})
    del store.files[paths.log_entry(2)]
    with pytest.raises(CorruptCheckpoint, match="missing from the checkpoint") as found:
        map_named(store, named(b"abc"), 2)
    assert paths.log_entry(2) in str(found.value)
    store.files.clear()
    with pytest.raises(StoreError, match="still mounted"):
        map_named(store, named(b"abc"), 2)


def test_all_riders_of_an_entry_are_read_at_once() -> None:
    files = {named(bytes([i])): bytes([i]) for i in range(20)}
    store = store_with(files)
    for name in files:
        map_named(store, name, 2)
    assert store.mapped == [paths.log_entry(2)]


def test_few_entries_stay_open_and_none_outlives_its_store(monkeypatch: Any) -> None:
    monkeypatch.setattr(riders, "OPEN_MAX", 3)
    store = store_with(*({named(bytes([i])): bytes([i])} for i in range(5)))
    for i in range(5):
        map_rider(store, named(bytes([i])), i + 2)
    store.mapped.clear()
    map_rider(store, named(b"\x04"), 6)
    assert store.mapped == []
    map_rider(store, named(b"\x00"), 2)
    assert store.mapped == [paths.log_entry(2)]
    assert store in riders._open
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None


def test_entries_stay_open_by_their_bytes_and_the_newest_always(monkeypatch: Any) -> None:
    monkeypatch.setattr(riders, "OPEN_BYTES_MAX", 1000)
    large = [bytes([i]) * 2000 for i in range(2)]
    store = store_with(*({named(data): data} for data in large))
    for position, data in enumerate(large, 2):
        map_rider(store, named(data), position)
        store.mapped.clear()
        map_rider(store, named(data), position)
        assert store.mapped == []


def test_an_entry_of_a_checkpoint_that_was_made_again_is_read_again() -> None:
    """A worker outlives a checkpoint that a person deletes: the same place has another log."""
    store = store_with({named(b"old"): b"old"})
    map_named(store, named(b"old"), 2)
    store.files = store_with({named(b"new"): b"new"}).files
    assert map_named(store, named(b"new"), 2).to_pybytes() == b"new"


def test_a_rider_does_not_hold_its_entry_and_is_aligned() -> None:
    """A slice would keep the whole entry in memory, and numbers in it would not be aligned."""
    small, large = b"x" * 64, b"y" * 100_000
    store = store_with({named(b"odd"): b"odd", named(small): small, named(large): large})
    found = map_named(store, named(small), 2)
    assert found.size == 64 and found.address % 8 == 0 and found.parent is None


def test_whether_an_entry_is_there() -> None:
    store = store_with({}, log_directory_entries=2)
    assert is_there(store, 1) and not is_there(store, 9)


def test_damaged_files_are_found_by_their_names() -> None:
    good = {named(b"a"): b"a", named(b"b"): b"b"}
    assert first_damaged(good) is None and first_damaged({}) is None
    assert first_damaged({**good, named(b"c"): b"d"}) == named(b"c")


def test_entries_without_riders_have_no_tail() -> None:
    store = store_with()
    log = EpochLog(store)
    assert not list(log.take_over())[1:]
    log.append(PLAN, {"epoch": 1})
    assert store.files[paths.log_entry(log.position)].endswith(b"}\n")
