"""Rows of a join's side: what goes into chunks comes out of them, types and all."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.model.values.rows import Rows
from headrace.operators.columns.groups import group
from headrace.operators.joins.rows import SideRows, matching, new_pairs

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
COLUMNS = {
    "int32": pa.array([1, None, 3], pa.int32()),
    "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "float32": pa.array([0.1, None, float("inf")], pa.float32()),
    "bool": pa.array([True, None, False]),
    "string": pa.array(["a", None, ""]),
    "large": pa.array(["a", None, ""], pa.large_string()),
    "binary": pa.array([b"\x00", None, b""]),
    "null": pa.nulls(3),
    "zoned": pa.array([NOON, None, NOON], pa.timestamp("ms", "Europe/Zurich")),
    "naive": pa.array([NOON.replace(tzinfo=None), None, None], pa.timestamp("ns")),
    "date": pa.array([date(2024, 5, 1), None, None]),
    "decimal": pa.array([Decimal("1.10"), None, None], pa.decimal128(9, 2)),
    "list": pa.array([[1, None], None, []]),
    "struct": pa.array([{"a": 1, "b": None}, None, {"a": 2, "b": "x"}]),
    "coded": pa.array(["a", None, "a"]).dictionary_encode(),
}


def no_row(value: Any) -> Any:
    raise AssertionError("columns need no rows")


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_comes_back_from_chunks_with_its_type(name: str) -> None:
    times = np.array([5, 6, 7], np.int64)
    batch = pa.record_batch([COLUMNS[name]], names=["c"])
    rows = SideRows.of([0, 1, 0], Rows(times, columns=batch), no_row)
    first, chunks = rows.chunks(group([rows.key]))
    assert rows.key[first].tolist() == [0, 1]
    back, of = SideRows.of_chunks([0, 1], chunks)
    assert (back.key.tolist(), back.time.tolist(), of.tolist()) == ([0, 0, 1], [5, 7, 6], [0, 0, 1])
    assert back.columns is not None and rows.columns is not None
    assert back.columns["c"].equals(rows.columns["c"].take(pa.array([0, 2, 1])))


def test_sides_of_different_columns_become_dicts_and_stay_what_they_are() -> None:
    kinds: list[Any] = [{"a": 1}, {"a": None}, {"a": 2.5}, {"b": 1, "a": 1}, {}, {"a": 2**63}]
    parts = [SideRows.of([i], Rows.of([row], [i]), lambda v: v) for i, row in enumerate(kinds)]
    united = SideRows.concat(parts[:2])
    assert united.columns is not None
    assert united.columns["a"].equals(pa.array([1, None]))
    both = SideRows.concat(parts)
    assert both.columns is None
    assert [repr(dict(row)) for row in both.dicts()] == [repr(row) for row in kinds]
    _, chunks = both.chunks(group([both.key]))
    assert SideRows.of_chunks(range(len(kinds)), chunks)[0].dicts() == kinds


def test_of_pairs_those_come_of_which_one_is_new() -> None:
    left, right = np.array([1, 2, 1]), np.array([1, 1, 2])
    found = new_pairs(lambda a, b: matching(left[a], right[b]), (2, 1), (1, 2))
    pairs = sorted(zip(*(side.tolist() for side in found), strict=True))
    assert pairs == [(0, 1), (1, 2), (2, 0), (2, 1)], "(0, 0) was paired before"
