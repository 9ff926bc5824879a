"""What the peers make of a query's progress, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.bench.peers.streaming import BatchFacts, last_delivered, measured_epoch_ms
from headrace.bench.workload import COUNTS_SCHEMA, CountWorkload
from headrace.errors import HeadraceError

WORKLOAD = CountWorkload(records=10, keys=5, epochs=2, warmup_epochs=1)


def test_warm_up_and_empty_micro_batches_are_left_out() -> None:
    batches = [BatchFacts(0, 10, 900), BatchFacts(1, 10, 30), BatchFacts(2, 10, 20)]
    batches.append(BatchFacts(3, 0, 5))
    assert measured_epoch_ms(batches, WORKLOAD) == (30.0, 20.0)


def test_a_micro_batch_of_two_files_is_refused() -> None:
    with pytest.raises(HeadraceError, match="read 20 records"):
        measured_epoch_ms([BatchFacts(0, 20, 900)], WORKLOAD)


def test_progress_that_was_dropped_is_noticed() -> None:
    with pytest.raises(HeadraceError, match=r"epochs \[3\]"):
        measured_epoch_ms([BatchFacts(0, 10, 900), BatchFacts(1, 10, 30)], WORKLOAD)


def test_the_last_delivered_count_of_a_key_wins(tmp_path: Path) -> None:
    for epoch, rows in enumerate([{"a": 1, "b": 1}, {"a": 3}, {"b": 2}], start=1):
        directory = tmp_path / f"epoch-{epoch:06d}"
        directory.mkdir()
        table = pa.table([list(rows), list(rows.values())], schema=COUNTS_SCHEMA)
        pq.write_table(table, directory / "part.parquet")
    counts = last_delivered(tmp_path, 3)
    assert counts.to_pylist() == [{"key": "a", "count": 3}, {"key": "b", "count": 2}]
