"""Rows through their staged form and back."""

from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptCheckpoint
from headrace.model.values.rows import Rows
from headrace.sinks.rows_file import dump, load

TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXT | st.binary(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
TIMES = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(st.tuples(VALUES, TIMES), max_size=8)

COLUMNS = pa.schema(
    [
        ("timestamp", pa.int64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("coded", pa.dictionary(pa.int32(), pa.string())),
        ("inner", pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))])),
    ]
)
CELLS = st.fixed_dictionaries(
    {
        "timestamp": st.none() | st.integers(0, 9),
        "flag": st.none() | st.booleans(),
        "text": st.none() | TEXT,
        "coded": st.none() | TEXT,
        "inner": st.none()
        | st.fixed_dictionaries(
            {"x": st.none() | st.integers(0, 9), "y": st.none() | st.lists(TEXT)}
        ),
    }
)


@given(ROWS)
def test_packed_rows_come_back_as_they_were(items: list[tuple[Any, int]]) -> None:
    values, times = [value for value, _ in items], [time for _, time in items]
    back = load(dump(Rows.of(values, times)))
    assert back.values() == values
    assert back.timestamps.tolist() == times


@given(st.lists(CELLS, min_size=1, max_size=9), st.data())
def test_columns_come_back_and_a_slice_has_the_bytes_of_a_copy(
    cells: list[dict[str, Any]], data: Any
) -> None:
    start = data.draw(st.integers(0, len(cells) - 1))
    rows = columnar(cells).slice(start, len(cells))
    copy = columnar(cells[start:])
    assert load(dump(rows)).values() == cells[start:]
    assert dump(rows) == dump(copy)


@given(ROWS, st.integers(0, 8))
def test_a_slice_of_packed_rows_has_the_bytes_of_a_copy(
    items: list[tuple[Any, int]], start: int
) -> None:
    whole = Rows.of([value for value, _ in items], [time for _, time in items])
    rest = items[start:]
    copy = Rows.of([value for value, _ in rest], [time for _, time in rest])
    assert dump(whole.slice(min(start, len(items)), len(rest))) == dump(copy)


def test_what_lies_under_a_null_does_not_show_in_the_bytes() -> None:
    bits = pa.py_buffer(bytes([0b101]))
    numbers = [pa.py_buffer(np.array([1, under, 3], np.int64)) for under in (7, 8)]
    arrays = [pa.Array.from_buffers(pa.int64(), 3, [bits, data]) for data in numbers]
    structs = [
        pa.StructArray.from_arrays(
            [pa.array([1, x, 3])], ["x"], mask=pa.array([False, True, False])
        )
        for x in (7, 8)
    ]
    for first, second in (arrays, structs):
        one, two = (batch_rows(pa.RecordBatch.from_arrays([a], ["c"])) for a in (first, second))
        assert dump(one) == dump(two)


def test_uuids_are_the_same_in_columns_and_in_values() -> None:
    ids = [None, UUID(int=7), UUID(int=8)]
    cells = pa.array([each and each.bytes for each in ids], pa.uuid())
    rows = Rows(np.zeros(3, np.int64), columns=pa.RecordBatch.from_pydict({"id": cells}))
    values = [{"id": each} for each in ids]
    assert load(dump(rows)).values() == load(dump(Rows.of(values, [0] * 3))).values() == values
    assert dump(rows.slice(1, 3)) == dump(
        Rows(
            np.zeros(2, np.int64),
            columns=pa.RecordBatch.from_pydict(
                {"id": pa.array([each and each.bytes for each in ids[1:]], pa.uuid())}
            ),
        )
    )


def test_rows_without_columns_keep_their_number() -> None:
    assert dump(Rows.empty()) == b""
    assert len(load(b"")) == 0
    nothing = pa.RecordBatch.from_pylist([{}, {}], schema=pa.schema([]))
    assert load(dump(Rows(np.array([1, 2]), columns=nothing))).timestamps.tolist() == [1, 2]


@pytest.mark.parametrize("data", [b"not arrow", b"\x80\x04pickle", "other"], ids=str)
def test_what_is_not_staged_rows_is_refused(data: Any) -> None:
    if data == "other":
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, pa.schema([("x", pa.int8())])):
            pass
        data = out.getvalue().to_pybytes()
    with pytest.raises(CorruptCheckpoint, match="the rows of A/0"):
        load(data, what="the rows of A/0")


def test_a_truncated_part_is_refused() -> None:
    data = dump(Rows.of(["some text"] * 20, range(20)))
    with pytest.raises(CorruptCheckpoint):
        load(data[: len(data) // 2])


def columnar(cells: list[dict[str, Any]]) -> Rows:
    return batch_rows(pa.RecordBatch.from_pylist(cells, schema=COLUMNS))


def batch_rows(batch: pa.RecordBatch) -> Rows:
    return Rows(np.full(batch.num_rows, 7), columns=batch)
