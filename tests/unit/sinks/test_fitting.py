"""Values in columns of a declared type: produced decimals and times fit, and nothing is rounded."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import sinks
from headrace.errors import SinkError
from headrace.model.values.codec import decode_value, packed
from headrace.model.values.rows import Rows

AT = datetime(2024, 5, 1, 12, 0, 0, 120_000)
EAST = timezone(timedelta(hours=2))
LOCAL, INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
MAP = pa.map_(pa.string(), pa.int64())


def written(value: Any, kind: pa.DataType, columns: pa.DataType | None = None) -> Any:
    """What a Parquet file has of it, given in a record, or in Arrow columns of some type."""
    if columns is None:
        rows = Rows.of([{"v": value}], [0])
    else:
        rows = Rows([0], columns=pa.RecordBatch.from_pydict({"v": pa.array([value], columns)}))
    data = sinks.parquet("out", schema=pa.schema([("v", kind)])).encode(rows)
    [row] = pq.read_table(pa.BufferReader(data)).to_pylist()
    return row["v"]


def test_times_inside_of_a_struct_keep_their_nanoseconds_or_are_refused() -> None:
    fine, micros = (pa.struct([("at", pa.timestamp(unit))]) for unit in ("ns", "us"))
    wider = pa.struct([*micros, pa.field("n", pa.int64())])
    for kind in (micros, wider):
        assert written({"at": AT}, kind, fine)["at"] == AT
        with pytest.raises(SinkError, match="would lose data: 1001"):
            written({"at": 1001}, kind, fine)
    assert written({"at": 1001}, fine, fine)["at"].nanosecond == 1


def travelled(value: Any) -> Any:
    """The value as it arrives when a function has produced it."""
    return decode_value(packed(value))


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        (Decimal("1.25"), pa.decimal128(10, 2), Decimal("1.25")),
        (Decimal("1.2500"), pa.decimal128(10, 2), Decimal("1.25")),
        (Decimal("1E+2"), pa.decimal128(5, 2), Decimal("100.00")),
        (Decimal("-0.0"), pa.decimal128(1, 1), Decimal("0.0")),
        ("0e999999999", pa.decimal128(20, 2), Decimal("0.00")),
        ("-1.5" + "0" * 60, pa.decimal128(20, 2), Decimal("-1.50")),
        (7, pa.decimal128(3, 2), Decimal("7.00")),
        (12345, pa.decimal256(60, 2), Decimal("12345.00")),
        (date(2024, 5, 1), pa.date32(), date(2024, 5, 1)),
        (AT, LOCAL, AT),
        (AT, INSTANT, AT.replace(tzinfo=UTC)),
        (AT, pa.timestamp("ms"), AT),
        (AT.replace(tzinfo=EAST), INSTANT, AT.replace(hour=10, tzinfo=UTC)),
        (AT.replace(tzinfo=EAST), LOCAL, AT.replace(hour=10)),
        ("2024-05-01T12:00:00.12+02:00", LOCAL, AT.replace(hour=10)),
        (date(2024, 5, 1), LOCAL, datetime(2024, 5, 1)),
        (1_000_000, INSTANT, datetime.fromtimestamp(1, UTC)),
        (time(12, 30), pa.time64("us"), time(12, 30)),
        (timedelta(days=1, microseconds=3), pa.duration("us"), timedelta(days=1, microseconds=3)),
        ([Decimal("1.5"), None], pa.list_(pa.decimal128(3, 1)), [Decimal("1.5"), None]),
        (
            {"a": date(2024, 5, 1), "b": None},
            pa.struct([("a", pa.date32())]),
            {"a": date(2024, 5, 1)},
        ),
        ({"a": 1, "b": None}, MAP, [("a", 1), ("b", None)]),
        (0.1, pa.float32(), 0.10000000149011612),
        (2.5, pa.float16(), 2.5),
        ("x", pa.dictionary(pa.int32(), pa.string()), "x"),
        (UUID(int=7), pa.uuid(), UUID(int=7)),
    ],
)
def test_a_produced_value_fits_a_column_of_its_type(value, kind, found) -> None:
    assert written(value, kind) == found
    assert written(travelled(value), kind) == found


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [
        (Decimal("1.255"), pa.decimal128(10, 2), "rounded to 2 digits"),
        (Decimal("1234.5"), pa.decimal128(5, 2), "more than 3 digits before the point"),
        (Decimal("NaN"), pa.decimal128(5, 2), "not finite"),
        ("1_0", pa.decimal128(5, 2), "no number"),
        (1.5, pa.decimal128(5, 2), "a float"),
        (AT, pa.date32(), "a time"),
        (AT.replace(tzinfo=UTC), pa.date32(), "a time"),
        ("2024-05-01T23:59:59-11:00", pa.date32(), "no date"),
        (AT, pa.timestamp("s"), "fewer digits of a second"),
        (AT.replace(tzinfo=UTC), pa.timestamp("s"), "fewer digits of a second"),
        ("2024-05-01T12:00:00.1234567", LOCAL, "more than six digits"),
        ("0001-01-01T00:00:00+02:00", LOCAL, "years 1 and 9999"),
        ("now", LOCAL, "no time"),
        (1.5, LOCAL, "a float"),
        (time(12, tzinfo=UTC), pa.time64("us"), "zone"),
        (timedelta(microseconds=5), pa.duration("ms"), "fewer digits of a second"),
        ("1 day", pa.duration("us"), "no duration"),
        (1.5, pa.int64(), "a float"),
        (True, pa.int64(), "truth value"),
        ("1", pa.int64(), "text"),
        (b"x", pa.string(), "bytes"),
        ("x", pa.binary(), "text"),
        ({"a": 1, "b": 2}, pa.struct([("a", pa.int64())]), "no 'b' inside"),
        ({"a": 1.5}, MAP, "a float"),
        ([["a", True]], MAP, "truth value"),
        ([1], MAP, "no pair"),
        ({"k": {"a": 1, "b": 2}}, pa.map_(pa.string(), pa.struct([("a", pa.int64())])), "no 'b'"),
        (1.5, pa.dictionary(pa.int32(), pa.int64()), "a float"),
        ([1.5], pa.list_view(pa.int64()), "a float"),
        (1e39, pa.float32(), "rounded"),
        (1 / 3, pa.float32(), "rounded"),
        (16777217, pa.float32(), "rounded"),
        (70_000, pa.float16(), "rounded"),
        ("7", pa.uuid(), "no UUID"),
        ({"a": [Decimal("0.15")]}, pa.struct([("a", pa.list_(pa.decimal128(3, 1)))]), "a: .*round"),
    ],
)
def test_a_value_that_would_change_is_refused_with_its_row_and_column(value, kind, why) -> None:
    with pytest.raises(SinkError, match=f"column 'v', row 1 .* schema=: .*{why}"):
        written(value, kind)
    with pytest.raises(SinkError, match="column 'v', row 1 .* schema=: "):
        written(travelled(value), kind)


@pytest.mark.parametrize(
    ("value", "columns", "kind", "why"),
    [
        (AT, LOCAL, pa.date32(), "a time"),
        (1.255, pa.float64(), pa.decimal128(5, 2), "a float"),
        (True, pa.bool_(), pa.int64(), "truth value"),
        (2, pa.int64(), pa.bool_(), "an integer"),
        ("1", pa.string(), pa.int64(), "text"),
        (1, pa.int64(), pa.string(), "an integer"),
        (Decimal("0.1"), pa.decimal128(3, 1), pa.float64(), "a decimal"),
        (1e39, pa.float64(), pa.float32(), "rounded"),
        (2049, pa.int64(), pa.float16(), "rounded"),
        (70000, pa.uint32(), pa.float16(), "rounded"),
        ([("a", 1.5)], pa.map_(pa.string(), pa.float64()), MAP, "a float"),
    ],
)
def test_arrow_columns_are_as_exact_as_records(value, columns, kind, why) -> None:
    with pytest.raises(SinkError, match=f"column 'v', row 1 .* schema=: .*{why}"):
        written(value, kind, columns)


@pytest.mark.parametrize(
    ("value", "columns", "kind", "found"),
    [
        ("1.25", pa.string(), pa.decimal128(5, 2), Decimal("1.25")),
        ("2024-05-01T12:00:00+02:00", pa.string(), LOCAL, datetime(2024, 5, 1, 10)),
        (5, pa.int64(), pa.decimal128(5, 2), Decimal("5.00")),
        (2048, pa.int64(), pa.float16(), 2048.0),
        (-7, pa.int8(), pa.float16(), -7.0),
        (1_000_000, pa.int64(), INSTANT, datetime.fromtimestamp(1, UTC)),
        ("x", pa.dictionary(pa.int32(), pa.string()), pa.large_string(), "x"),
        (None, pa.int64(), pa.string(), None),
    ],
)
def test_arrow_columns_of_another_type_fit_where_records_do(value, columns, kind, found) -> None:
    assert written(value, kind, columns) == found


@pytest.mark.parametrize("columns", [None, pa.int64()])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_bounds_of_windows_and_timestamps_are_microseconds_in_each_unit_of_a_schema(
    columns, unit
) -> None:
    kind, at = pa.timestamp(unit, "UTC"), datetime(2024, 5, 1, tzinfo=UTC)
    micros = int(at.timestamp()) * 1_000_000
    sink = sinks.parquet(
        "out", schema=pa.schema([("window_start", kind), ("seen", kind)]), timestamp="seen"
    )
    rows = Rows.of([{"window_start": micros}], [micros])
    if columns is not None:
        cells = {"window_start": pa.array([micros], columns)}
        rows = Rows([micros], columns=pa.RecordBatch.from_pydict(cells))
    found = pq.read_table(pa.BufferReader(sink.encode(rows)))
    assert found.cast(pa.schema([(n, INSTANT) for n in found.schema.names])).to_pylist() == [
        {"window_start": at, "seen": at}
    ]


def test_a_bound_beyond_the_year_9999_stays_in_microseconds() -> None:
    far = 300_000_000_000_000_000
    sink = sinks.parquet("out", schema=pa.schema([("window_end", INSTANT)]))
    found = pq.read_table(pa.BufferReader(sink.encode(Rows.of([{"window_end": far}], [0]))))
    assert found["window_end"].cast(pa.int64()).to_pylist() == [far]


def test_a_time_that_a_unit_would_round_is_refused() -> None:
    sink = sinks.parquet("out", schema=pa.schema([("window_start", pa.timestamp("s"))]))
    with pytest.raises(SinkError, match="'window_start', row 1.*fewer digits"):
        sink.encode(Rows.of([{"window_start": 1_500_000}], [0]))


@pytest.mark.parametrize("row", [{"v": None, "n": 1}, {"n": 1}])
def test_a_column_that_is_not_nullable_refuses_none(row) -> None:
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False), ("n", pa.int64())])
    with pytest.raises(SinkError, match="column 'v', row 2 of the epoch: it is None.*schema="):
        sinks.parquet("out", schema=schema).encode(Rows.of([{"v": 1, "n": 1}, row], [0, 0]))
