"""Rows that a Parquet sink delivers are compared by their times."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace.bench.frame.times import times_as_numbers
from headrace.bench.nexmark.answers import rows_as_counts


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_timestamps_become_microseconds(unit: str, zone: str | None) -> None:
    times = pa.array([0, 1_700_000_000, None], pa.int64()).cast(pa.timestamp("s"))
    rows = pa.table({"at": times.cast(pa.timestamp(unit, zone)), "n": [1, 2, 3]})
    found = times_as_numbers(rows)
    assert found["at"].to_pylist() == [0, 1_700_000_000_000_000, None]
    assert found["n"].to_pylist() == [1, 2, 3]


def test_rows_of_windows_are_compared_by_when_they_close() -> None:
    starts = [datetime(2023, 11, 14, 22, minute, tzinfo=UTC) for minute in (13, 14)]
    times = pa.array(starts, pa.timestamp("us", "UTC"))
    rows = times_as_numbers(pa.table({"id": [1, 2], "name": ["a", "b"], "window_start": times}))
    until = int(starts[1].timestamp() * 1e6)
    found = rows_as_counts("q8", rows, until)
    assert found["key"].to_pylist() == [f"1|a|{int(starts[0].timestamp() * 1e6)}"]
