"""How the file sinks write values: JSON lines, CSV and Parquet."""

import csv
import datetime
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import sinks
from headrace.errors import InvalidPipeline, SinkError
from headrace.model.values.rows import Rows
from headrace.sinks.parquet import ParquetRows, partition_component

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXT
FLAT = st.dictionaries(TEXT, SCALARS, max_size=4)
NESTED = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


AWARE = datetime.datetime(2024, 1, 1, 5, tzinfo=datetime.UTC)


def of(*values: Any) -> Rows:
    return Rows.of(values, range(len(values)))


def columnar(**columns: Any) -> Rows:
    batch = pa.RecordBatch.from_pydict(columns)
    return Rows(np.arange(batch.num_rows), columns=batch)


def read_parquet(data: bytes) -> list[dict[str, Any]]:
    return pq.read_table(pa.BufferReader(data)).to_pylist()


# JSON lines


@given(st.lists(NESTED, max_size=5))
def test_json_lines_hold_every_value_as_it_is(values: list[Any]) -> None:
    lines = sinks.jsonl("out").encode(of(*values)).decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == values


def test_json_lines_take_arrow_columns_with_dates_and_nulls() -> None:
    rows = columnar(day=[datetime.date(2024, 2, 29), None], n=pa.array([1, 2], pa.int8()))
    assert sinks.jsonl("out").encode(rows) == b'{"day":"2024-02-29","n":1}\n{"day":null,"n":2}\n'


def test_the_timestamp_of_a_record_can_become_a_column() -> None:
    rows = Rows.of([{"a": 1}, 7], [10, 20])
    assert sinks.jsonl("out", timestamp="at").encode(rows) == (
        b'{"a":1,"at":10}\n{"value":7,"at":20}\n'
    )
    assert sinks.csv("out", timestamp="at", columns=["a", "value"]).encode(rows) == (
        b"a,value,at\n1,,10\n,7,20\n"
    )
    for times, first in (((), 10), ("other", EPOCH + datetime.timedelta(microseconds=10))):
        sink = sinks.parquet("out", timestamp="at", times=times)
        assert read_parquet(sink.encode(rows))[0] == {"a": 1, "value": None, "at": first}


def test_bounds_of_windows_are_times_in_parquet_unless_told_otherwise() -> None:
    rows = of({"window_start": 0, "window_end": 60_000_000, "at": 5, "n": 1})
    minute = EPOCH + datetime.timedelta(minutes=1)
    [row] = read_parquet(sinks.parquet("out").encode(rows))
    assert (row["window_end"], row["at"]) == (minute, 5)
    [row] = read_parquet(sinks.parquet("out", times="at").encode(rows))
    assert (row["window_end"], row["at"]) == (
        60_000_000,
        EPOCH + datetime.timedelta(microseconds=5),
    )
    assert read_parquet(sinks.parquet("out", times=()).encode(rows)) == rows.values()
    [text] = read_parquet(sinks.parquet("out").encode(of({"window_start": "noon"})))
    assert text == {"window_start": "noon"}
    schema = pa.schema([("window_start", pa.int64())])
    [row] = read_parquet(sinks.parquet("out", schema=schema).encode(of({"window_start": 7})))
    assert row == {"window_start": 7}
    assert b"window_start=0" in sinks.parquet("out", partition_by="window_start").encode(rows)
    with pytest.raises(InvalidPipeline, match="times= takes names"):
        sinks.parquet("out", times=[1])  # type: ignore[list-item]


@pytest.mark.parametrize("make", [sinks.jsonl, sinks.csv, sinks.parquet])
def test_a_timestamp_never_overwrites_a_column(make: Any) -> None:
    with pytest.raises(SinkError, match="'at'"):
        make("out", timestamp="at").encode(of({"at": 1}))


def test_what_json_cannot_hold_is_an_error_that_names_the_column() -> None:
    extension_type = b"\xd4\x05\x01"
    extended = pa.array([b"\x82\xa2ok\x01\xa3odd" + extension_type])
    with pytest.raises(SinkError, match="'odd'"):
        sinks.jsonl("out").encode(Rows(np.zeros(1, np.int64), packed=extended))


# CSV


@given(st.lists(FLAT, min_size=1, max_size=5), st.data())
def test_csv_comes_back_through_a_reader(dicts: list[dict[str, Any]], data: Any) -> None:
    names = list(dict.fromkeys(name for row in dicts for name in row)) or ["only"]
    text = sinks.csv("out", columns=names).encode(of(*dicts)).decode()
    read = list(csv.reader(io.StringIO(text, newline="")))
    assert read[0] == names
    shown = {True: "true", False: "false", None: ""}
    expected = [
        [
            shown[cell] if cell is None or isinstance(cell, bool) else str(cell)
            for cell in (row.get(name) for name in names)
        ]
        for row in dicts
    ]
    assert read[1:] == expected


def test_csv_tells_none_from_empty_text_and_has_no_blank_lines() -> None:
    rows = of({"a": "", "b": None}, {"a": None, "b": 1.5}, {"a": " x", "b": math.nan})
    assert sinks.csv("out").encode(rows) == b'a,b\n"",\n,1.5\n" x",NaN\n'
    assert sinks.csv("out").encode(of(None, 1)) == b'value\n""\n1\n'


def test_csv_writes_times_numbers_and_bytes_plainly() -> None:
    rows = columnar(
        day=[datetime.date(2024, 1, 2)],
        at=[datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)],
        inf=[-math.inf],
        raw=[b"\x00\xff"],
        yes=[True],
    )
    assert sinks.csv("out").encode(rows).decode().splitlines()[1] == (
        "2024-01-02,2024-01-02T03:04:05+00:00,-Inf,AP8=,true"
    )


@pytest.mark.parametrize("nested", [[1], {"x": 1}])
def test_csv_refuses_nested_values_by_column(nested: Any) -> None:
    with pytest.raises(SinkError, match="'inner'"):
        sinks.csv("out").encode(of({"a": 1, "inner": nested}))


def test_csv_drops_no_column_silently() -> None:
    with pytest.raises(SinkError, match="'b'.*columns="):
        sinks.csv("out").encode(of({"a": 1}, {"a": 2, "b": 3}))
    assert sinks.csv("out", columns=["b"]).encode(of({"a": 1}, {"a": 2, "b": 3})) == b'b\n""\n3\n'
    with pytest.raises(InvalidPipeline):
        sinks.csv("out", columns="ab")


# Parquet


@given(
    st.lists(st.fixed_dictionaries({}, optional={"a": st.integers(-(2**63), 2**63 - 1), "é": TEXT}))
)
def test_parquet_infers_columns_from_all_rows(dicts: list[dict[str, Any]]) -> None:
    names = {name for row in dicts for name in row}
    if dicts and not names:
        with pytest.raises(SinkError, match="no columns"):
            sinks.parquet("out").encode(of(*dicts))
        return
    data = sinks.parquet("out").encode(of(*dicts))
    expected = [{name: row.get(name) for name in names} for row in dicts]
    assert (read_parquet(data) if data else []) == expected


def test_parquet_keeps_arrow_columns_as_they_are() -> None:
    rows = columnar(n=pa.array([1, None], pa.int16()), tags=[["a"], []])
    table = pq.read_table(pa.BufferReader(sinks.parquet("out").encode(rows)))
    assert table.schema.field("n").type == pa.int16()
    assert table.to_pylist() == [{"n": 1, "tags": ["a"]}, {"n": None, "tags": []}]


def test_parquet_holds_large_integers_and_values_that_are_no_dicts() -> None:
    assert read_parquet(sinks.parquet("out").encode(of(2**63, 1, None))) == [
        {"value": 2**63},
        {"value": 1},
        {"value": None},
    ]


@pytest.mark.parametrize("values", [(1, "one"), (2**63, -1), ({"deep": 1}, 2)])
def test_parquet_refuses_a_column_of_two_types_by_name(values: Any) -> None:
    with pytest.raises(SinkError, match="'mixed'"):
        sinks.parquet("out").encode(of(*({"mixed": value} for value in values)))


def test_parquet_leaves_out_a_column_that_has_no_type() -> None:
    assert read_parquet(sinks.parquet("out").encode(of({"n": 1, "note": None}))) == [{"n": 1}]
    assert read_parquet(sinks.parquet("out").encode(of(None, None))) == [{"value": None}] * 2


def test_parquet_takes_a_schema() -> None:
    schema = pa.schema([("n", pa.float64()), ("note", pa.string())])
    sink = sinks.parquet("out", schema=schema)
    for rows in (of({"n": 1}), columnar(n=[1])):
        table = pq.read_table(pa.BufferReader(sink.encode(rows)))
        assert table.schema.equals(schema)
        assert table.to_pylist() == [{"n": 1.0, "note": None}]
    with pytest.raises(SinkError, match="'other'"):
        sink.encode(of({"other": 1}))
    with pytest.raises(SinkError, match="'n'"):
        sink.encode(of({"n": "text"}))
    with pytest.raises(InvalidPipeline, match="schema="):
        sinks.parquet("out", schema={"n": "int"})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["dicts", "columns"])
def test_partitions_hold_each_row_once_and_not_the_column(kind: str) -> None:
    cells = {"day": ["a/b", None, "a/b", ""], "ok": [True, True, False, True], "n": [1, 2, 3, 4]}
    rows = columnar(**cells)
    sink = sinks.parquet("out", partition_by=["day", "ok"])
    rows = rows if kind == "columns" else rows.as_packed()
    parts = ParquetRows(partition_by=["day", "ok"]).split(sink.encode(rows))
    assert {directory: read_parquet(data) for directory, data in parts} == {
        "day=a%2Fb/ok=true": [{"n": 1}],
        "day=a%2Fb/ok=false": [{"n": 3}],
        "day=__HIVE_DEFAULT_PARTITION__/ok=true": [{"n": 2}, {"n": 4}],
    }


@given(TEXT)
def test_a_partition_is_one_safe_directory(value: str) -> None:
    component = partition_component("c", value)
    assert "/" not in component and "\x00" not in component
    assert component.startswith("c=") and len(component) > 2


def test_partitions_that_cannot_be_are_refused_by_column() -> None:
    sink = sinks.parquet("out", partition_by="day")
    for bad in ({"n": 1}, {"day": [1], "n": 1}, {"day": "x" * 300, "n": 1}):
        with pytest.raises(SinkError, match="'day'"):
            sink.encode(of(bad))
    with pytest.raises(SinkError, match="partition_by="):
        sink.encode(of({"day": 1}))
    for name in ("_hidden", "epoch", ""):
        with pytest.raises(InvalidPipeline, match="partition_by="):
            sinks.parquet("out", partition_by=name)


def test_an_unknown_compression_is_refused_when_built() -> None:
    assert sinks.parquet("out", compression="none").encode(of(1))
    with pytest.raises(InvalidPipeline, match="zpaq"):
        sinks.parquet("out", compression="zpaq")


# All of them


@pytest.mark.parametrize("make", [sinks.jsonl, sinks.csv, sinks.parquet])
def test_where_a_sink_writes_is_one_name_however_it_is_spelled(make: Any, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    names = {make(tmp_path / "out").identity(), make(f"file://{tmp_path}/link/out").identity()}
    assert len(names) == 1


@pytest.mark.parametrize("make", [sinks.csv, sinks.parquet])
def test_a_column_needs_a_name_that_is_text(make: Any) -> None:
    with pytest.raises(SinkError, match="7"):
        make("out").encode(of({7: 1}))


def test_integers_of_any_size_are_written_as_numbers() -> None:
    huge = 10**5000 + 7
    values = [{"n": n, "in": [{"n": n}]} for n in (2**64, -(2**70), 5, huge)]
    lines = sinks.jsonl("/x").encode(of(*values)).decode().splitlines()
    assert [json.loads(line) for line in lines[:3]] == values[:3]
    digits = "1" + "0" * 4999 + "7"
    assert lines[3] == f'{{"n":{digits},"in":[{{"n":{digits}}}]}}'
    rows = of(*({"n": value["n"]} for value in values))
    text = sinks.csv("/x").encode(rows).decode().splitlines()
    assert text == ["n", str(2**64), str(-(2**70)), "5", digits]


def test_integers_that_parquet_has_no_type_for_are_told_with_their_column() -> None:
    for cells in ((2**64,), (2**63, -1)):
        with pytest.raises(SinkError, match="column 'n' cannot become an Arrow column"):
            sinks.parquet("/x").encode(of(*({"n": cell} for cell in cells)))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([b"x", "y"], "bytes and text"),
        ([AWARE, 5], "a time and an integer"),
        ([True, 1], "a truth value and an integer"),
        ([["x", b"y"]], r"bytes and text at '\[\]'"),
        ([["x"], None, [b"\xff"]], r"bytes and text at '\[\]'"),
        ([[AWARE, 1]], r"a time and an integer at '\[\]'"),
        ([[datetime.date(2024, 1, 1)], [AWARE]], r"a date and a time at '\[\]'"),
        ([{"a": AWARE, "b": 1}, None, {"a": 1}], "a time and an integer at 'a'"),
        ([{"a": [{"b": "x"}]}, {"a": [None, {"b": b"x"}]}], r"bytes and text at 'a\[\].b'"),
        ([[True], [1]], r"a truth value and an integer at '\[\]'"),
    ],
    ids=str,
)
def test_parquet_turns_no_value_into_another_kind_for_its_neighbour(
    values: list[Any], told: str
) -> None:
    with pytest.raises(SinkError, match=f"column 'v' .* it holds {told} in one file"):
        sinks.parquet("out").encode(of(*({"v": value} for value in values)))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([AWARE, AWARE.replace(tzinfo=None)], "times with and without a zone"),
        ([[AWARE.replace(tzinfo=None)], None, [AWARE]], "times with and without a zone"),
        ([datetime.time(1, tzinfo=datetime.UTC)], "a time of day with a zone"),
        ([{"a": datetime.time(1, tzinfo=datetime.UTC)}], "a time of day with a zone"),
    ],
    ids=str,
)
def test_parquet_takes_no_local_time_for_another(values: list[Any], told: str) -> None:
    with pytest.raises(SinkError, match=f"column 'v' .* it holds {told}"):
        sinks.parquet("out").encode(of(*({"v": value} for value in values)))


@pytest.mark.parametrize(
    "values",
    [
        [[1], None, [2.5, None], []],
        [{"a": 1}, {"a": 2.5}, {"b": "x"}, {}, None],
        [{"a": [{"b": 1}]}, {"a": None}, {"a": [None, {"b": 0.5, "c": [b"x"]}]}],
        [[[AWARE], []], [None]],
    ],
    ids=str,
)
def test_parquet_takes_values_of_one_kind_inside_and_integers_beside_floats(
    values: list[Any],
) -> None:
    def is_found(value: Any, found: Any) -> bool:
        if isinstance(value, dict):
            return all(is_found(value.get(name), cell) for name, cell in found.items())
        if isinstance(value, list):
            return all(map(is_found, value, found)) and len(value) == len(found)
        return bool(value == found)

    rows = read_parquet(sinks.parquet("out").encode(of(*({"v": value} for value in values))))
    assert all(is_found(value, row["v"]) for value, row in zip(values, rows, strict=True))


def test_parquet_takes_no_bytes_as_a_name() -> None:
    with pytest.raises(SinkError, match="column 'v' .* the key b'a', which is no text"):
        sinks.parquet("out").encode(of({"v": {"a": 1}}, {"v": {b"a": 1}}))


NANOS = pa.timestamp("ns")
SINKS_OF_VALUES: list[Any] = [
    sinks.jsonl("out"),
    sinks.jsonl("out", timestamp="at"),
]


@pytest.mark.parametrize("sink", [*SINKS_OF_VALUES, sinks.csv("out")])
@pytest.mark.parametrize("kind", [NANOS, pa.duration("ns"), pa.time64("ns")], ids=str)
def test_nanoseconds_of_arrow_columns_are_not_cut_off(sink: Any, kind: pa.DataType) -> None:
    assert sink.encode(columnar(v=pa.array([1000, None], kind)))
    told = r"column 'v' is of type .*\[ns\] and would be rounded: sinks\..* keeps microseconds"
    with pytest.raises(SinkError, match=told):
        sink.encode(columnar(v=pa.array([1000, 1001], kind)))


@pytest.mark.parametrize("sink", SINKS_OF_VALUES)
@pytest.mark.parametrize(
    ("kind", "inside"),
    [
        (pa.list_(NANOS), lambda nanos: [nanos]),
        (pa.list_(NANOS, 1), lambda nanos: [nanos]),
        (pa.map_(pa.string(), NANOS), lambda nanos: [("a", nanos)]),
        (pa.struct([("a", pa.list_(pa.struct([("b", NANOS)])))]), lambda n: {"a": [{"b": n}]}),
    ],
)
def test_nor_are_those_inside_lists_maps_and_structs(
    sink: Any, kind: pa.DataType, inside: Any
) -> None:
    fine = pa.array([inside(1001), inside(1000), None], kind)
    with pytest.raises(SinkError, match="column 'v' is of type .* would be rounded"):
        sink.encode(columnar(v=fine))
    assert sink.encode(columnar(v=fine.slice(1)))


def test_nanoseconds_that_no_value_has_or_that_are_not_written_are_not_refused() -> None:
    given = {"offsets": pa.array([0, 1, 2], pa.int32()), "values": pa.array([1001, 1000], NANOS)}
    under_null = pa.ListArray.from_arrays(**given, mask=pa.array([True, False]))
    assert b"null" in sinks.jsonl("out").encode(columnar(v=under_null))
    rows = columnar(n=[1], v=pa.array([1001], NANOS))
    with pytest.warns(UserWarning, match="Discarding nonzero nanoseconds"):
        assert sinks.csv("out", columns=["n"]).encode(rows) == b"n\n1\n"
