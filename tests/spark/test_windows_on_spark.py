"""The fluent interface on Spark: the same rows as without it, whatever the epochs and slots."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import Pipeline, agg, hopping, same_window, session, sinks, sources, tumbling

pytestmark = pytest.mark.spark

COUNT = 4_000


def records() -> list[dict[str, object]]:
    return [
        {"page": f"p{(i * i) % 37}", "ms": (i * 7919) % 1000 / 8, "at": i * 10_000}
        for i in range(COUNT)
    ]


@dataclass
class Sums:
    page: str = ""
    hits: int = 0


def added(hit: dict[str, Any], sums: Sums) -> Sums:
    sums.page, sums.hits = hit["page"], sums.hits + 1
    return sums


def islands() -> Counter[tuple[str, int, int]]:
    """Pages' hits that follow each other within less than 250 ms, by a loop."""
    found: Counter[tuple[str, int, int]] = Counter()
    times: dict[str, list[int]] = {}
    for hit in records():
        times.setdefault(hit["page"], []).append(hit["at"])
    for page, ats in times.items():
        start = 0
        for i, at in enumerate(ats):
            if i + 1 == len(ats) or ats[i + 1] - at >= 250_000:
                found[page, ats[start], at + 250_000] = i + 1 - start
                start = i + 1
    return found


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
    visits, sums, once = sinks.memory(), sinks.memory(), sinks.memory()
    early = hits.key_by("page").window(session("250ms"), emit="changes")
    early.count("n").named("visits").write(visits)
    # State of a class of this module, and a class made for it: both travel to the workers.
    hits.key_by("page").reduce(added, Sums(), ttl="1h").write(sums)
    hits.dedup("page", within="250ms").write(once)
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

    standing: dict[tuple[str, int, int], int] = {}
    for row, _ in visits.records:
        window = (row["page"], row["window_start"], row["window_end"])
        if row["withdrawn"]:
            del standing[window]
        else:
            standing[window] = row["n"]
    assert standing == islands()
    last = {row["page"]: row["hits"] for row, _ in sums.records}
    assert last == Counter(hit["page"] for hit in records())
    passed: dict[str, int] = {}
    first = []
    for hit in records():
        if hit["at"] - passed.get(hit["page"], -(10**9)) > 250_000:
            passed[hit["page"]] = hit["at"]
            first.append((hit["page"], hit["at"]))
    assert sorted((row["page"], row["at"]) for row, _ in once.records) == sorted(first)
