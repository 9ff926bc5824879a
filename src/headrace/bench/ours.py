"""Headrace's own side of the keyed count.

The pipeline is the one that a user would write: a Parquet source, one keyed computation, a
Parquet sink or none. Only the epoch size is prescribed: one input file is one epoch, as for the
peers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow.dataset import dataset

from headrace import (
    Checkpoint,
    Computation,
    EpochProgress,
    Pipeline,
    read_output,
    same_window,
    sinks,
    sources,
    state,
    tumbling,
)
from headrace.bench.frame.session import bench_session
from headrace.bench.frame.system import OURS, OURS_TRIVIAL, Measurement, Task
from headrace.bench.frame.times import times_as_numbers
from headrace.bench.nexmark import answers as nexmark
from headrace.bench.nexmark.ours import nexmark_pipeline
from headrace.bench.workload import (
    COUNTS_SCHEMA,
    TOP,
    CountWorkload,
    judged_until,
    window_us,
    windowed_counts,
)
from headrace.sources import Range, Reading, Source, Workspace


class CountTable(Computation):
    """Counts per key, vectorised, combined before the shuffle as native Spark does."""

    count: int = state(0)

    def combine_table(self, table: pa.Table) -> pa.Table:
        """A task's records as one partial count per key."""
        seen = np.bincount(table["key_index"].to_numpy())
        keys = np.flatnonzero(seen)
        return pa.table({"key_index": keys, "seen": seen[keys]})

    def process_table(self, table: pa.Table, ctx: Any) -> None:
        """One epoch of a slot: add up by position, write and produce whole columns."""
        before = ctx.read()
        counts = before["count"].to_numpy().copy()
        np.add.at(counts, table["key_index"].to_numpy(), table["seen"].to_numpy())
        ctx.write(count=counts)
        ctx.produce_table({"key": before["key"], "count": counts})


class CountRecords(Computation):
    """Adds up values per key, with a Python call per record; sums are in its state only."""

    count: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        """Adds a record's value to the count of its key."""
        self.count += record.value["value"]


class TellSums(CountRecords):
    """The same, and tells each new sum."""

    def process_record(self, record: Any, ctx: Any) -> None:
        """Adds a record's value, and tells the sum."""
        self.count += record.value["value"]
        ctx.produce({"key": ctx.key, "count": self.count})


class PlannedSource(Source):
    """Another source, of which only the ranges are planned differently."""

    def __init__(self, inner: Source) -> None:
        self.timing = inner.timing
        self._inner = inner

    def prepare(self, workspace: Workspace) -> None:
        self._inner.prepare(workspace)

    def splits(self) -> Sequence[str]:
        return self._inner.splits()

    def first(self, split: str) -> int:
        return self._inner.first(split)

    def read(self, split: str, range: Range) -> Reading:
        return self._inner.read(split, range)

    def read_columns(self, split: str, range: Range, needed: frozenset[str]) -> Reading:
        return self._inner.read_columns(split, range, needed)


class EpochFiles(PlannedSource):
    """A Parquet source in name order that plans exactly one file per epoch."""

    def __init__(self, workload: CountWorkload, inner: Source) -> None:
        super().__init__(inner)
        ends = np.cumsum([workload.records_in(e) for e in range(1, workload.last_epoch + 1)])
        self._ends = [int(end) for end in ends]

    def plan(self, split: str, start: int, records: int) -> Range | None:
        end = next((end for end in self._ends if end > start), start + 1)
        return self._inner.plan(split, start, end - start)

    def parallel(self, split: str, range: Range, parts: int) -> Sequence[Range]:
        return self._inner.parallel(split, range, parts)


def pipeline(task: Task) -> Pipeline:
    """The workload's query as a Headrace pipeline."""
    workload = task.workload
    if workload.query in nexmark.QUERIES:
        files = sources.parquet(str(task.input_dir), ordered_by_name=True, timestamp="date_time")
        source = EpochFiles(workload, files)
        return nexmark_pipeline(workload.query, source, str(task.scratch_dir / "out"))
    if workload.query != "keyed-count":
        files = sources.parquet(str(task.input_dir), ordered_by_name=True, timestamp="ts")
        source, out = EpochFiles(workload, files), str(task.scratch_dir / "out")
        return windowed_pipeline(workload.query, source, window_us(workload), out)
    columns = ["key"] if workload.columns == "key" else None
    files = sources.parquet(
        str(task.input_dir),
        columns=columns,
        ordered_by_name=True,
        timestamp=None if columns else "ts",
    )
    p = Pipeline("keyed-count")
    p.read("records", EpochFiles(workload, files))
    told = workload.sink == "parquet"
    by_record = TellSums if told else CountRecords
    count = by_record if workload.hook == "record" else CountTable
    p.compute(count, inputs={"records": "key"}, outputs="counts", name="count")
    if told:
        p.stream("counts").write(sinks.parquet(str(task.scratch_dir / "out")))
    return p


def windowed_pipeline(query: str, source: Source, size_us: int, out: str) -> Pipeline:
    """Counts per key and window, or the keys with the largest; rows leave when windows close."""
    p = Pipeline(query)
    window = tumbling(timedelta(microseconds=size_us))
    counts = p.read("records", source).key_by("key").window(window).count()
    if query == "top-k":
        counts = counts.key_by().window(same_window()).top(TOP, by="count")
    counts.named("counts").write(sinks.parquet(out), name="rows")
    return p


def _delivered(task: Task) -> pa.Table:
    rows = dataset(str(task.scratch_dir / "out"), format="parquet", exclude_invalid_files=True)
    if task.workload.query == "keyed-count":
        return _last_delivered(str(task.scratch_dir / "out"))
    if task.workload.query in nexmark.QUERIES:
        until = judged_until(task.workload)
        found = times_as_numbers(rows.to_table())
        return nexmark.rows_as_counts(task.workload.query, found, until)
    table = times_as_numbers(rows.to_table(columns=["key", "window_start", "count"]))
    return windowed_counts(task.workload, table["key"], table["window_start"], table["count"])


def _last_delivered(out: str) -> pa.Table:
    """The last count of every key: of counts that only grow, the largest of its last epoch."""
    latest: dict[str, int] = {}
    for epoch in read_output(out):
        table = epoch.table().group_by("key").aggregate([("count", "max")])
        latest.update(zip(table["key"].to_pylist(), table["count_max"].to_pylist(), strict=True))
    return pa.table([list(latest.keys()), list(latest.values())], schema=COUNTS_SCHEMA)


def run_epochs(
    task: Task,
    name: str,
    p: Pipeline,
    *,
    checkpoint: str = "",
    see: Callable[[EpochProgress], None] = lambda progress: None,
) -> tuple[tuple[float, ...], str]:
    """All epochs in one run: the times of those that are measured, and the checkpoint.

    An epoch's time is from one commit's delivery to the next. `see` gets every epoch with records.
    """
    workload = task.workload
    checkpoint = checkpoint or str(task.scratch_dir / "checkpoint")
    ends: list[float] = [perf_counter()]

    def on_epoch(progress: EpochProgress) -> None:
        if progress.records:
            ends.append(perf_counter())
            see(progress)

    with bench_session(task, name) as spark:
        p.run(
            checkpoint=checkpoint,
            spark=spark,
            until="caught_up",
            slots=workload.slots,
            on_epoch=on_epoch,
        )
    times = [(end - start) * 1000 for start, end in pairwise(ends)]
    return tuple(times[workload.first_measured_epoch - 1 : workload.last_epoch]), checkpoint


@dataclass(frozen=True)
class Headrace:
    """The engine as it is."""

    name: str

    def run(self, task: Task) -> Measurement:
        """All epochs in one run."""
        workload = task.workload
        epoch_ms, checkpoint = run_epochs(task, self.name, pipeline(task))
        in_state = workload.query == "keyed-count" and workload.sink == "noop"
        return Measurement(
            epoch_ms=epoch_ms,
            records=workload.measured_records,
            counts=counts_in(checkpoint) if in_state else _delivered(task),
            notes={"state": "segments, durable with every epoch", "slots": str(workload.slots)},
        )


def counts_in(checkpoint: str) -> pa.Table:
    """The counts of the computation `count`, as its checkpoint has them."""
    pairs = [(key, fields["count"]) for key, fields in Checkpoint(checkpoint).scan("count")]
    keys, counts = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table([pa.array(keys, pa.string()), pa.array(counts, pa.int64())], COUNTS_SCHEMA)


KEYED_COUNT = Headrace(OURS)
TRIVIAL = Headrace(OURS_TRIVIAL)
