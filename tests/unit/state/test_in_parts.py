"""A large segment is checked in parts: what is read is right, or an error names the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.state.support import field

from headrace.errors import CorruptCheckpoint
from headrace.log import blocks, paths
from headrace.log.content import digest_of, verify
from headrace.model.values.keys import encode_key, hash_key
from headrace.state.rows import columns
from headrace.state.segment import SCHEMA, Segment, encode_segment
from headrace.state.view import SlotView

KEYS = 60


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LARGE_BYTES", 0)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)


def made(value_bytes: int = 150, *, lengths: int = 1) -> tuple[str, bytes]:
    """A segment whose values have one length, or some."""
    sizes = [value_bytes - 20 + k % lengths for k in range(KEYS)]
    cells = [field(k, "n", b"%020d" % k + bytes(sizes[k])) for k in range(KEYS)]
    data = encode_segment(cells)
    return f"state/C/{paths.content_name(1, 'C/0', digest_of(data), '.arrow')}", data


def look_up(name: str, data: bytes, keys: list[int]) -> list[Any]:
    view = SlotView.of_whole(Segment(name, pa.py_buffer(data), in_parts=True))
    names = [encode_key(key) for key in keys]
    found = view.fields(names, np.array([hash_key(each) for each in names], np.uint64))
    return [(each.fields, each.version) for each in found]


def flipped(data: bytes, place: int, mask: int = 1) -> bytes:
    return data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]


@pytest.mark.parametrize("lengths", [1, 3])
@pytest.mark.parametrize("few", [0, columns.FEW])
def test_each_flipped_byte_is_found_as_a_whole_and_is_harmless_or_found_by_a_look_up(
    few: int, lengths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "FEW", few)  # 0: rows are checked as arrays
    name, data = made(lengths=lengths)
    verify(name, data)
    right = look_up(name, data, [3, 17, 99])
    assert right[0][1] == 1 and right[2] == ({}, 0)
    harmless = 0
    for place in range(0, len(data), 31):
        damaged = flipped(data, place, 1 << place % 7)
        with pytest.raises(CorruptCheckpoint, match="is damaged"):
            verify(name, damaged)
        try:
            assert look_up(name, damaged, [3, 17, 99]) == right, place
            harmless += 1
        except CorruptCheckpoint as error:
            assert name in str(error)
    assert 10 < harmless < len(data) / 31


@pytest.mark.parametrize("column", SCHEMA.names)
def test_a_whole_column_is_checked_before_it_is_used(column: str) -> None:
    name, data = made()
    sound = Segment(name, pa.py_buffer(data)).batch.column(column)
    whole = pa.py_buffer(data)
    buffer = [b for b in pa.ipc.open_file(whole).get_batch(0).column(column).buffers() if b][-1]
    assert Segment(name, whole, in_parts=True).column(column).equals(sound)
    if buffer.size:
        damaged = flipped(data, buffer.address - whole.address)
        with pytest.raises(CorruptCheckpoint, match="is damaged: its bytes from"):
            # The hashes are those of a few blocks: opening may check them already.
            Segment(name, pa.py_buffer(damaged), in_parts=True).column(column)
        with pytest.raises(CorruptCheckpoint, match="is damaged"):
            _ = Segment(name, pa.py_buffer(damaged), in_parts=True).batch


def test_a_look_up_reads_few_blocks_of_a_large_file() -> None:
    name, data = made(2_000)
    segment = Segment(name, pa.py_buffer(data), in_parts=True)
    key = encode_key(7)
    found = SlotView.of_whole(segment).fields([key], np.array([hash_key(key)], np.uint64))
    assert found[0].fields["n"] is not None
    check = segment._check
    assert check is not None and 0 < sum(check._checked) < len(check._checked) / 4
    assert segment.batch.num_rows == KEYS and Segment(name, pa.py_buffer(data))._check is None


def test_another_file_under_the_name_is_refused() -> None:
    (name, _), (_, other) = made(), made(160)
    with pytest.raises(CorruptCheckpoint, match="is damaged"):
        Segment(name, pa.py_buffer(other), in_parts=True)


def test_a_small_file_has_no_table_and_is_checked_as_a_whole(monkeypatch) -> None:
    monkeypatch.setattr(blocks, "LARGE_BYTES", 1 << 20)
    name, data = made()
    assert blocks.table_in(data) is None
    for place in range(0, len(data), 7):
        with pytest.raises(CorruptCheckpoint, match="is damaged"):
            Segment(name, pa.py_buffer(flipped(data, place)), in_parts=True)


@pytest.mark.parametrize("size", [0, 1, 5, 15, 16, 200])
def test_bytes_that_are_no_arrow_file_have_a_plain_digest(size: int) -> None:
    assert blocks.table_in(b"x" * size) is None and len(digest_of(b"x" * size)) == 32
    assert blocks.table_in(bytes(size) + b"\xff\xff\xff\x7fARROW1") is None
