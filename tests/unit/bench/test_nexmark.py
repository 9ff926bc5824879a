"""Nexmark beside peers: the right rows agree with another oracle, and bars with their shapes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.bench import ours
from headrace.bench.frame.runner import SystemOutcome, find_mismatches
from headrace.bench.frame.system import (
    NEXMARK_NATIVE,
    NEXMARK_TWS,
    NEXMARK_TWS_PANDAS,
    OURS,
    Task,
)
from headrace.bench.nexmark.answers import QUERIES, rows_as_counts
from headrace.bench.windowed import run_windowed
from headrace.bench.workload import CountWorkload, expected_counts, judged_until, write_input
from headrace.errors import HeadraceError
from headrace.testing import Harness

SQL = {
    "q3": """SELECT p.name, p.city, p.state, a.id FROM events a JOIN events p ON a.seller = p.id
        WHERE a.kind = 'auction' AND p.kind = 'person' AND a.category = 10
        AND upper(p.state) IN ('OR', 'ID', 'CA')""",
    "q8": """SELECT DISTINCT p.id, p.name, p.date_time // 10000000 * 10000000 AS window_start
        FROM events p JOIN events a ON a.seller = p.id
        AND a.date_time // 10000000 = p.date_time // 10000000
        WHERE a.kind = 'auction' AND p.kind = 'person'""",
    "q11": """WITH marked AS (SELECT bidder, date_time, CASE WHEN date_time - lag(date_time)
        OVER (PARTITION BY bidder ORDER BY date_time) <= 10000000 THEN 0 ELSE 1 END AS begins
        FROM events WHERE kind = 'bid'), numbered AS (SELECT bidder, date_time, sum(begins)
        OVER (PARTITION BY bidder ORDER BY date_time) AS number FROM marked)
        SELECT bidder, count(*) AS bid_count, min(date_time) AS start_time,
        max(date_time) + 10000000 AS end_time FROM numbered GROUP BY bidder, number""",
}


@pytest.mark.parametrize("query", QUERIES)
def test_the_expected_rows_are_those_of_sql(tmp_path: Path, query: str):
    duckdb = pytest.importorskip("duckdb")
    workload = CountWorkload(records=60_000, epochs=4, warmup_epochs=0, query=query)  # type: ignore[arg-type]
    write_input(workload, tmp_path)
    asked = f"WITH events AS (FROM '{tmp_path}/*.parquet') FROM ({SQL[query]})"
    found = rows_as_counts(query, duckdb.sql(asked).to_arrow_table(), judged_until(workload))
    assert find_mismatches(found, expected_counts(workload)) == []
    assert len(found) > 100


def test_our_pipeline_joins_as_expected(tmp_path: Path):
    workload = CountWorkload(records=1_500, epochs=2, warmup_epochs=0, query="q3")
    p = ours.pipeline(Task(workload, tmp_path / "in", tmp_path))
    with Harness(p) as h:
        for path in write_input(workload, tmp_path / "in"):
            h.send("events", *pq.read_table(path).to_pylist())
        h.settle()
        rows = pa.Table.from_pylist(h.read("q3"))
    wanted = expected_counts(workload)
    assert find_mismatches(rows_as_counts("q3", rows, 0), wanted) == []
    assert len(wanted)


def test_bars_are_judged_on_enough_events_only(tmp_path: Path):
    def launch(system: str, task: Task) -> SystemOutcome:
        tws = {NEXMARK_TWS: 400.0, NEXMARK_TWS_PANDAS: 250.0}
        ms = {OURS: 100.0, NEXMARK_NATIVE: 90.0, **tws}[system]
        return SystemOutcome(system, [ms], task.workload.measured_records, [], {}, {})

    def reached(query: str, records: int) -> list[bool]:
        workload = CountWorkload(records=records, epochs=1, warmup_epochs=0, query=query)  # type: ignore[arg-type]
        document = run_windowed(
            workload,
            peers=["spark-native", "spark-tws", "spark-tws-row"],
            work_dir=tmp_path,
            launch=launch,
        )
        return [bar["reached"] for bar in document["bars"]]

    assert reached("q3", 100_000) == [True, False, False]
    assert reached("q11", 100_000) == [True, False]
    assert reached("q3", 1_000) == []


def test_a_peer_that_cannot_answer_a_query_is_refused():
    with pytest.raises(HeadraceError, match="storm"):
        run_windowed(CountWorkload(query="q8"), peers=["storm"])
