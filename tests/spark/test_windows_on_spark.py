"""The fluent interface on Spark: the same rows as without it, whatever the epochs and slots."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import Pipeline, agg, hopping, same_window, sinks, sources, tumbling

pytestmark = pytest.mark.spark

COUNT = 4_000


def records() -> list[dict[str, object]]:
    return [
        {"page": f"p{(i * i) % 37}", "ms": (i * 7919) % 1000 / 8, "at": i * 10_000}
        for i in range(COUNT)
    ]


def test_windows_give_on_spark_what_a_plain_loop_gives(spark: SparkSession, tmp_path: Path):
    p = Pipeline("fluent on spark")
    slow, busiest = sinks.memory(), sinks.memory()
    hits = p.read("hits", sources.memory(records(), timestamp="at"))
    hits.filter(lambda hit: hit["ms"] > 1).key_by("page").window(tumbling("10s")).aggregate(
        hits=agg.count(), total=agg.sum("ms"), worst=agg.max("ms")
    ).write(slow)
    hits.key_by("page").window(hopping("10s", every="5s")).count("num").key_by().window(
        same_window()
    ).top(1, by="num", ties=True).write(busiest)
    p.run(checkpoint=str(tmp_path / "state"), spark=spark, slots=2, epoch_records=1_500)

    totals: dict[tuple[str, int], list[float]] = {}
    for hit in records():
        if hit["ms"] > 1:
            start = hit["at"] // 10_000_000 * 10_000_000
            totals.setdefault((hit["page"], start), []).append(hit["ms"])
    found = {
        (row["page"], row["window_start"]): (row["hits"], row["total"], row["worst"])
        for row, _ in slow.records
    }
    assert found == {key: (len(ms), sum(ms), max(ms)) for key, ms in totals.items()}

    wanted = set()
    for start in range(-5_000_000, COUNT * 10_000, 5_000_000):
        inside = [h["page"] for h in records() if start <= h["at"] < start + 10_000_000]
        most = Counter(inside).most_common(1)
        wanted |= {(start, page) for page, n in Counter(inside).items() if n == most[0][1]}
    assert {(row["window_start"], row["page"]) for row, _ in busiest.records} == wanted
