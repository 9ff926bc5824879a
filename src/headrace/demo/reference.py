"""Zeitgeist without streams: the same question answered over a list, in plain Python.

It has all records at once, so it needs no watermark, no timer and no state. The pipeline must
give the same findings however its input is cut into epochs, with any number of slots and crashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from headrace.demo.model import DAILY, SPREAD_MIN, Rhythm, dip_limit, learn, spike_limit
from headrace.demo.queries import LATENESS
from headrace.model.values.time import Duration, duration


class Finding(NamedTuple):
    """A bucket of a query that is not normal: a "spike" above the limit or a "dip" below it."""

    kind: str
    query: str
    start: int
    limit: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Finding:
        """The finding that the pipeline wrote as a row."""
        return cls(row["kind"], row["query"], row["start"], row["limit"])


def reference(
    records: Iterable[Mapping[str, Any]], *, lateness: Duration = LATENESS, rhythm: Rhythm = DAILY
) -> list[Finding]:
    """All findings in records of `{"ts", "query"}`, sorted. Late records must not be among them."""
    counts, proven = _count(records, "query", lateness, rhythm)
    findings: list[Finding] = []
    for query, buckets in counts.items():
        findings += _judge(query, dict(_closed(buckets, proven)), buckets, rhythm)
    return sorted(findings)


def region_counts(
    records: Iterable[Mapping[str, Any]], *, lateness: Duration = LATENESS, rhythm: Rhythm = DAILY
) -> dict[tuple[str, int], int]:
    """(region, bucket) -> searches, empty buckets included once the region is known."""
    counts, proven = _count(records, "region", lateness, rhythm)
    return {
        (region, bucket): count
        for region, buckets in counts.items()
        for bucket, count in _closed(buckets, proven)
    }


def _count(
    records: Iterable[Mapping[str, Any]], column: str, lateness: Duration, rhythm: Rhythm
) -> tuple[dict[str, Counter[int]], int]:
    """(counts by key and bucket, the first bucket that the last watermark does not prove)."""
    counts: dict[str, Counter[int]] = {}
    newest = 0
    for record in records:
        counts.setdefault(record[column], Counter())[record["ts"] // rhythm.bucket] += 1
        newest = max(newest, record["ts"])
    return counts, (newest - duration(lateness)) // rhythm.bucket


def _closed(buckets: Counter[int], proven: int) -> Iterator[tuple[int, int]]:
    """The closed buckets of a key, oldest first, with the empty ones in between."""
    for bucket in range(min(buckets), max(max(buckets) + 1, proven)):
        yield bucket, buckets[bucket]


def _judge(
    query: str, closed: Mapping[int, int], counted: Counter[int], rhythm: Rhythm
) -> Iterator[Finding]:
    levels: dict[int, float] = {}
    spread = SPREAD_MIN
    for bucket, count in closed.items():
        level = levels.get(rhythm.slot_of(bucket))
        if level is not None and count < (limit := dip_limit(level, spread)):
            yield Finding("dip", query, bucket * rhythm.bucket, limit)
        level, spread = learn(level, spread, count)
        levels[rhythm.slot_of(bucket)] = level
        again, limit = bucket + rhythm.cycle, spike_limit(level, spread)
        if counted[again] > limit:
            yield Finding("spike", query, again * rhythm.bucket, limit)
