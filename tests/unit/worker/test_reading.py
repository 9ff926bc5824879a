"""Timestamps of Arrow columns, and rows that a reader rejects without losing the others."""

import warnings
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headrace.errors import InvalidRecord
from headrace.model.source import Reading, Timing, positions
from headrace.model.values.schema import Schema
from headrace.worker.reader import stamp

WALL = 1


def stamped(cells: list[Any], kind: pa.DataType, **timing: Any) -> tuple[list[int], dict[int, str]]:
    """The timestamps of the rows that are kept, and why the others are not, by position."""
    batch = pa.RecordBatch.from_arrays([pa.array(cells, kind)], ["t"])
    reading = Reading(positions(0, len(cells)), columns=batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas tells of nanoseconds that a datetime lacks
        rows, kept, rejected = stamp(reading, Timing(timestamp="t", **timing), WALL)
    reasons = {bad.position: bad.reason for bad in rejected}
    assert sorted([*kept.tolist(), *reasons]) == list(range(len(cells)))
    return rows.timestamps.tolist(), reasons


def test_nanoseconds_are_cut_to_microseconds() -> None:
    kind = pa.timestamp("ns")
    assert stamped([1_700_000_000_000_000_001, 1999], kind) == ([1_700_000_000_000_000, 1], {})
    times, reasons = stamped([-1, 1000], kind)
    assert times == [1] and "before 1970" in reasons[0]


@pytest.mark.parametrize(
    ("kind", "absurd", "unit"),
    [
        (pa.timestamp("ms"), 2**62, "us"),
        (pa.timestamp("ms", "UTC"), -(2**62), "us"),
        (pa.timestamp("s"), 2**60, "us"),
        (pa.timestamp("us"), 2**63 - 1, "us"),
        (pa.uint64(), 2**63 + 5, "us"),
        (pa.uint64(), 2**64 - 1, "ms"),
        (pa.int64(), -(2**63), "ms"),
        (pa.int64(), -(2**63), "s"),
        (pa.int64(), 2**63 - 1, "s"),
        (pa.int64(), 2**60, "us"),
    ],
    ids=str,
)
def test_one_absurd_time_costs_one_row(kind: pa.DataType, absurd: int, unit: str) -> None:
    good, none = stamped([7, 8], kind, unit=unit)
    assert not none
    assert stamped([7, absurd, 8], kind, unit=unit)[0] == good
    times, reasons = stamped([7, absurd, None, 8], kind, unit=unit)
    assert times == good
    assert set(reasons) == {1, 2}
    assert ("before 1970" if absurd < 0 else "after the year 9999") in reasons[1]
    assert reasons[2] == "the timestamp is missing"


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.int64()], ids=str
)
def test_a_missing_time_changes_nothing_for_the_rows_around_it(kind: pa.DataType) -> None:
    assert stamped([5, 6], kind) == ([5, 6], {})
    assert stamped([5, None, 6], kind) == ([5, 6], {1: "the timestamp is missing"})


def test_a_time_far_ahead_is_exact_beside_a_missing_one() -> None:
    far = 253_402_300_799_999
    assert stamped([far, None], pa.int64(), unit="ms")[0] == [far * 1000]


@dataclass
class Order:
    name: str
    price: int

    def __post_init__(self) -> None:
        if self.price < 0:
            raise ValueError("negative price")
        if self.price == 13:
            raise LookupError("unlucky")


class OrderStruct(msgspec.Struct):
    name: str
    price: int

    __post_init__ = Order.__post_init__


@pytest.mark.parametrize("given", [Order, OrderStruct])
def test_a_row_that_its_class_refuses_is_rejected_as_a_value_is(given: Any) -> None:
    values = [{"name": name, "price": p} for name, p in zip("abcd", [1, -1, 13, 2], strict=True)]
    schema = Schema(given, where="here")
    places = positions(0, len(values))
    columns = pa.RecordBatch.from_pylist(values)
    for reading in (Reading(places, values=values), Reading(places, columns=columns)):
        rows, kept, rejected = stamp(reading, Timing(), WALL, schema)
        assert kept.tolist() == [0, 3]
        assert rows.values() == [given("a", 1), given("d", 2)]
        assert "negative price" in rejected[0].reason
        assert "LookupError: unlucky" in rejected[1].reason
    with pytest.raises(InvalidRecord, match="LookupError: unlucky"):
        schema.of({"name": "c", "price": 13})
