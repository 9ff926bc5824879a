"""Zeitgeist: which searches are suddenly much more, or much less, frequent than usual?

This follows the example of the MillWheel paper. One stream of queries, keyed in two ways:

    queries --by query--> QueryCounter --windows--> DipDetector --> dips
       |                                                 | expectations
       |----by query-------------------------------> SpikeDetector --> spikes
       '----by region--> RegionCounter --> regions

A spike needs no waiting: it is certain as soon as the running count exceeds the normal count, so
`SpikeDetector` takes records as they arrive. A dip is different: few records may only mean that
others have not arrived yet. Only the low watermark proves that none will, so `WindowCounter`
closes its buckets by timers, also the empty ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import Computation, Map, Pipeline, sinks, sources, state, to
from headrace.demo.model import DAILY, SPREAD_MIN, Rhythm, dip_limit, learn, spike_limit
from headrace.demo.queries import LATENESS

if TYPE_CHECKING:
    from headrace.model.context import Context
    from headrace.model.record import Record, Timer
    from headrace.model.source import Source

OUTPUTS = ("spikes", "dips", "regions", "late")


class WindowCounter(Computation, ordered=True):
    """Counts the records of a key in buckets, and produces every bucket's count.

    Once a key is known, its empty buckets are produced too: a dip may be an empty bucket.
    """

    bucket: int | None = state(None)
    count: int = state(0)

    def __init__(self, *, column: str, rhythm: Rhythm = DAILY) -> None:
        self.column = column
        self.rhythm = rhythm

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts a record. A bucket's timer fires before any record of the next bucket."""
        bucket = record.timestamp // self.rhythm.bucket
        if self.bucket is None:
            self.bucket = bucket
        # A gap is possible only at the end of the input, where timers no longer set timers.
        while self.bucket < bucket:
            self._close(ctx)
        if self.count == 0:
            ctx.set_timer(at=(bucket + 1) * self.rhythm.bucket)
        self.count += 1

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """The watermark has passed the bucket: its count is final."""
        if ctx.final:
            # The end of the input proves no empty bucket: only buckets with records are produced.
            if self.count:
                self._close(ctx)
        else:
            self._close(ctx)
            ctx.set_timer(at=timer.timestamp + self.rhythm.bucket)

    def _close(self, ctx: Context) -> None:
        bucket = self.bucket or 0
        ctx.produce(
            {self.column: ctx.key, "bucket": bucket, "count": self.count},
            timestamp=(bucket + 1) * self.rhythm.bucket - 1,
        )
        self.bucket, self.count = bucket + 1, 0


class DipDetector(Computation, ordered=True):
    """Learns what is normal for a query, bucket by bucket, and reports what falls below it.

    It also produces what it has learned: how many searches the same bucket of the next cycle (hour
    of the next day) may have.
    """

    levels: Map[int, float] = state()
    spread: float = state(SPREAD_MIN)

    def __init__(self, rhythm: Rhythm = DAILY) -> None:
        self.rhythm = rhythm

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Compares a bucket with the days before it, and then learns from it."""
        bucket, count, rhythm = record.value["bucket"], record.value["count"], self.rhythm
        level = self.levels.get(rhythm.slot_of(bucket))
        if level is not None and count < (limit := dip_limit(level, self.spread)):
            seen = (bucket + 1) * rhythm.bucket
            ctx.produce(_finding("dip", ctx.key, bucket * rhythm.bucket, limit, seen), to="dips")
        level, self.spread = learn(level, self.spread, count)
        self.levels[rhythm.slot_of(bucket)] = level
        again = {"bucket": bucket + rhythm.cycle, "limit": spike_limit(level, self.spread)}
        ctx.produce({"query": ctx.key, **again}, to="expectations")


class SpikeDetector(Computation):
    """Counts searches as they arrive and reports a spike with the record that exceeds the limit."""

    counts: Map[int, int] = state()
    limits: Map[int, int] = state()

    def __init__(self, rhythm: Rhythm = DAILY) -> None:
        self.rhythm = rhythm

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts a search, or takes an expectation: how many searches a bucket may have."""
        if record.stream == "expectations":
            bucket = record.value["bucket"]
            limit = self.limits[bucket] = record.value["limit"]
            count = self.counts.get(bucket, 0)
            passed = count > limit
            ctx.set_timer(bucket, at=(bucket + 1) * self.rhythm.bucket)
        else:
            bucket = record.timestamp // self.rhythm.bucket
            limit = self.limits.get(bucket)
            count = self.counts[bucket] = self.counts.get(bucket, 0) + 1
            passed = limit is not None and count == limit + 1
            if count == 1:
                ctx.set_timer(bucket, at=(bucket + 1) * self.rhythm.bucket)
        if passed:
            start = bucket * self.rhythm.bucket
            ctx.produce(_finding("spike", ctx.key, start, limit, record.timestamp))

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """Forgets a bucket for which no more records can come."""
        self.counts.pop(timer.tag, None)
        self.limits.pop(timer.tag, None)


def zeitgeist(source: Source, output: Path | None = None, *, rhythm: Rhythm = DAILY) -> Pipeline:
    """The pipeline over a source of `{"ts", "query", "region"}`; `output` is where it writes."""
    p = Pipeline("zeitgeist")
    p.read("queries", source)
    p.compute(
        WindowCounter(column="query", rhythm=rhythm), name="QueryCounter",
        inputs={"queries": "query"}, outputs="windows", late=to("late"),
    )  # fmt: skip
    p.compute(DipDetector(rhythm), inputs={"windows": "query"}, outputs=["expectations", "dips"])
    p.compute(
        SpikeDetector(rhythm), inputs={"expectations": "query", "queries": "query"},
        outputs="spikes", late="drop",
    )  # fmt: skip
    p.compute(
        WindowCounter(column="region", rhythm=rhythm), name="RegionCounter",
        inputs={"queries": "region"}, outputs="regions", late="drop",
    )  # fmt: skip
    if output is not None:
        for stream in OUTPUTS:
            p.stream(stream).write(sinks.jsonl(str(output / stream)))
    return p


def log_source(directory: Path, lateness: str = LATENESS) -> Source:
    """A source over the files that `queries.write_log` wrote."""
    return sources.jsonl(str(directory / "*.jsonl"), timestamp="ts", lateness=lateness)


def _finding(kind: str, query: str, start: int, limit: int, seen: int) -> dict[str, Any]:
    """A finding as a row; `seen` is the event time at which it could first be known."""
    return {"kind": kind, "query": query, "start": start, "limit": limit, "seen": seen}
