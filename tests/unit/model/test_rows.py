"""Rows: a value does not depend on who travels with it."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from headrace.model.values.rows import Rows

COLUMNS = {
    "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
    "naive": pa.array([datetime(2024, 3, 31, 2, 30), None], pa.timestamp("us")),
    "zoned": pa.array([1_730_000_000_000_000, None], pa.timestamp("us", "Europe/Berlin")),
    "utc": pa.array([0, None], pa.timestamp("ms", "UTC")),
    "fine": pa.array([1_000, None], pa.timestamp("ns")),
    "date": pa.array([date(2024, 2, 29), None]),
    "time": pa.array([time(1, 2, 3, 4), None]),
    "span": pa.array([timedelta(microseconds=-5), None]),
    "fine span": pa.array([5_000, None], pa.duration("ns")),
    "text": pa.array(["a", None], pa.large_string()),
    "bytes": pa.array([b"a", None], pa.binary()),
    "wide": pa.array([2**64 - 1, None], pa.uint64()),
    "truth": pa.array([True, None]),
    "code": pa.array(["a", None]).dictionary_encode(),
    "list": pa.array([[Decimal("1.5"), None], None], pa.list_(pa.decimal128(5, 1))),
    "struct": pa.array([{"at": date(2024, 1, 1)}, None]),
    "fine list": pa.array([[1_000, None], None], pa.list_(pa.timestamp("ns", "UTC"))),
    "fine struct": pa.array(
        [{"a": [5_000]}, None], pa.struct([("a", pa.list_(pa.duration("ns")))])
    ),
    "map": pa.array([[("a", date(2024, 1, 1))], None], pa.map_(pa.string(), pa.date32())),
}


def rows(columns):
    names, arrays = list(columns), list(columns.values())
    return Rows(pa.array([1, 2]).to_numpy(), columns=pa.record_batch(arrays, names=names))


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_keep_their_values_beside_rows_of_another_form(name):
    alone = rows({name: COLUMNS[name]})
    other = Rows.of([{"x": [1, {"y": 2**70}]}, 2**64], [3, 4])
    together = Rows.concat([alone, other, alone])
    expected = [*alone.values(), {"x": [1, {"y": 2**70}]}, 2**64, *alone.values()]
    assert together.values() == expected
    assert repr(together.values()) == repr(expected)


def test_zones_stay_zones():
    value = Rows.concat([rows({"zoned": COLUMNS["zoned"]}), Rows.of([5], [3])]).values()[0]
    assert value["zoned"].tzinfo == ZoneInfo("Europe/Berlin")
