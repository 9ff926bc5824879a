"""Rows of columns from Arrow's buffers are what Arrow itself says."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.log.content import digest_of
from headrace.state.rows.columns import bits_of, numbers_of, slices_of
from headrace.state.segment import SCHEMA, Cell, Segment, encode_batch, encode_segment

ROWS = np.array([0, 3, 3, 8, 19])


@pytest.mark.parametrize("offset", [0, 1, 9])
def test_slices_and_bits_begin_at_the_offset_of_the_column(offset: int) -> None:
    texts = pa.array([f"ä{i}" * (i % 4) for i in range(40)])[offset:]
    blobs = pa.array([bytes([i]) * (i % 5) for i in range(40)], pa.binary())[offset:]
    flags = pa.array([i % 3 == 0 for i in range(40)])[offset:]
    for column, text in ((texts, True), (blobs, False)):
        _, begins, data = column.buffers()
        read = slices_of(begins, data, column.offset, text=text)
        assert read(ROWS) == column.take(pa.array(ROWS)).to_pylist()
    read = bits_of(flags.buffers()[1], flags.offset)
    assert read(ROWS) == flags.take(pa.array(ROWS)).to_pylist()


def test_columns_without_rows_have_none() -> None:
    nothing = np.array([], np.int64)
    assert slices_of(None, None, 0, text=False)(nothing) == []
    assert bits_of(None, 0)(nothing) == []
    assert numbers_of(np.array([], np.int64))(nothing) == []


def test_a_segment_gives_every_column_of_its_rows() -> None:
    cells = [
        Cell(
            i * 7, b"k%d" % i, 0, f"field{i % 3}", b"e" * (i % 2), b"v" * i, i, 2**62, i, i % 4 == 1
        )
        for i in range(20)
    ]
    data = encode_segment(cells)
    segment = Segment(f"state/c/1-c-{digest_of(data)}.arrow", pa.py_buffer(data))
    columns = segment.rows(ROWS, *SCHEMA.names)
    assert list(zip(*columns, strict=True)) == [tuple(sorted(cells)[row]) for row in ROWS]


@pytest.mark.parametrize("value_bytes", [0, 1, 7])
@pytest.mark.parametrize(("first", "count"), [(0, 30), (4, 26), (29, 1), (5, 0)])
def test_rows_of_one_length_are_found_without_their_offsets(
    value_bytes: int, first: int, count: int
) -> None:
    cells = [
        Cell(i, b"key%02d" % i, i % 3, "f", b"", (b"%07d" % i)[-value_bytes or 7 :], i)
        for i in range(30)
    ]
    whole = encode_segment(cells)
    batch = Segment(f"state/c/1-c-{digest_of(whole)}.arrow", pa.py_buffer(whole)).batch
    data = encode_batch(batch.slice(first, count))
    segment = Segment(f"state/c/1-c-{digest_of(data)}.arrow", pa.py_buffer(data))
    assert segment.facts.key_bytes == (5 if count else None)
    assert segment.facts.value_bytes == (value_bytes if count else None)
    rows = np.arange(count)[::-1]
    columns = segment.rows(rows, *SCHEMA.names)
    assert list(zip(*columns, strict=True)) == [tuple(cells[first + row]) for row in rows]


def test_a_batch_whose_offsets_do_not_begin_with_zero_has_no_lengths() -> None:
    cells = [Cell(i, b"key%02d" % i, 0, "f", b"", b"v%02d" % i, i) for i in range(9)]
    whole = encode_segment(cells)
    batch = Segment(f"state/c/1-c-{digest_of(whole)}.arrow", pa.py_buffer(whole)).batch
    columns = batch.columns
    begins = pa.array(range(30, 30 + 10 * 3, 3), pa.int32()).buffers()[1]
    shifted = pa.py_buffer(b"?" * 30 + columns[5].buffers()[2].to_pybytes())
    columns[5] = pa.Array.from_buffers(pa.binary(), 9, [None, begins, shifted])
    data = encode_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    segment = Segment(f"state/c/1-c-{digest_of(data)}.arrow", pa.py_buffer(data))
    assert (segment.facts.key_bytes, segment.facts.value_bytes) == (5, None)
    assert segment.rows(ROWS[:4], "value") == [[b"v%02d" % row for row in ROWS[:4]]]


def test_small_and_large_segments_find_the_same_rows() -> None:
    for count in (10, 20_000):
        cells = [Cell(i * 1000, b"%d" % i, 0, "f", b"", b"", 0) for i in range(count)]
        data = encode_segment(cells)
        segment = Segment(f"state/c/1-c-{digest_of(data)}.arrow", pa.py_buffer(data))
        asked = np.array([0, 5_000, 5_001, 9_000, 2**64 - 1], np.uint64)
        owners, lows, highs = segment.find(asked, np.array([0]), np.array([count]))
        assert owners.tolist() == [0, 1, 3]
        assert lows.tolist() == [0, 5, 9] and highs.tolist() == [1, 6, 10]
