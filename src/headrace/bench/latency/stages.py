"""One stage of load on one system: files appear at a steady pace, whatever the system does.

The files of a stage are written before it begins, while the system rests; then each appears, by a
hard link, when it is due.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.dataset import dataset

from headrace import read_output
from headrace.bench.frame.system import OURS
from headrace.bench.frame.times import times_as_numbers
from headrace.bench.latency.arithmetic import (
    ArrivedFile,
    VisibleEpoch,
    closing,
    file_sizes,
    percentiles,
    when_visible,
)
from headrace.bench.latency.members import Config
from headrace.bench.latency.process import MemberProcess
from headrace.bench.latency.queries import LatencyQuery
from headrace.bench.workload import FIRST_FILE_MTIME_S

LEAD = 0.2
"""The share of a stage that is not measured: the load has just begun."""
BURST_FILES = 8


@dataclass(frozen=True)
class StageFigures:
    """What one stage has shown."""

    rate: float
    percentiles: dict[str, float]
    epochs: int
    feed_late_ms: float
    """How much later than due a file appeared, at most: whether the pace was kept."""


class Loaded:
    """A system with its input, over all stages."""

    def __init__(self, config: Config, query: LatencyQuery, tick_s: float) -> None:
        self.name, self.query = config.system, query
        self._tick_s = tick_s
        self._ready = Path(config.home) / "ready"
        self.process = MemberProcess(config)
        self._ready.mkdir()
        self._files: list[ArrivedFile] = []
        self._written: list[tuple[Path, int, int]] = []
        self._steps: list[VisibleEpoch] = []

    @property
    def records(self) -> int:
        """How many records have appeared."""
        return sum(file.records for file in self._files)

    def burst(self, records: int) -> float:
        """Lets many records appear at once; how many were done in a second."""
        self._prepare([records // BURST_FILES] * BURST_FILES)
        self.process.wake()
        began = time.time()
        while self._written:
            self._put()
        steps = self._settle()
        self.process.rest()
        return records / (max(step.when for step in steps if step.records) - began)

    def stage(self, rate: float, seconds: float) -> StageFigures:
        """Some seconds of an open load."""
        ticks = max(5, round(seconds / self._tick_s))
        self._prepare(file_sizes(rate, self._tick_s, ticks))
        self.process.wake()
        first, late = len(self._files), 0.0
        begin = time.monotonic() + self._tick_s
        for tick in range(ticks):
            due = begin + tick * self._tick_s
            time.sleep(max(0.0, due - time.monotonic()))
            late = max(late, time.monotonic() - due)
            self._put()
        steps = self._settle()
        self.process.rest()
        latencies, weights = self._latencies(first + round(LEAD * ticks), steps)
        return StageFigures(rate, percentiles(latencies, weights), len(steps), late * 1_000)

    def outputs(self) -> Iterator[tuple[int, pa.Table]]:
        """What is visible at the sink: epoch by epoch."""
        out = self.process.home / "out"
        if self.name == OURS:
            for epoch in read_output(str(out)):
                yield epoch.number, times_as_numbers(epoch.table())
            return
        for path in sorted(out.iterdir()):
            yield int(path.name), dataset(path, exclude_invalid_files=True).to_table()

    def _latencies(self, first: int, steps: list[VisibleEpoch]) -> tuple[list[float], list[int]]:
        """Milliseconds, and how many records or rows each stands for; from file `first` on."""
        if not self.query.by_time:
            visible = when_visible(self._files, self._steps)
            files = range(first, len(self._files))
            found = [(visible[at] - self._files[at].when) * 1_000 for at in files]
            return found, [self._files[at].records for at in files]
        when = {step.epoch: step.when for step in steps}
        latencies, weights = [], []
        for epoch, rows in self.outputs():
            if epoch not in when or not len(rows):
                continue
            for closes in self.query.closes(rows):
                at = closing(self._files, int(closes))
                if at is not None and at >= first:
                    latencies.append((when[epoch] - self._files[at].when) * 1_000)
                    weights.append(1)
        return latencies, weights

    def _prepare(self, sizes: list[int]) -> None:
        for size in sizes:
            table = self.query.table(size)
            number = len(self._files) + len(self._written)
            path = self._ready / f"{number:09d}.parquet"
            pq.write_table(table, path)
            # Spark reads files in the order of these times.
            mtime = FIRST_FILE_MTIME_S + number
            os.utime(path, (mtime, mtime))
            self._written.append((path, size, self.query.reached()))

    def _put(self) -> None:
        path, records, reached = self._written.pop(0)
        os.rename(path, self.process.home / "in" / path.name)
        self._files.append(ArrivedFile(records, time.time(), reached))

    def _settle(self) -> list[VisibleEpoch]:
        steps = self.process.settle(self.records)
        self._steps += steps
        if any(after.when < before.when for before, after in pairwise(self._steps)):
            self._steps.sort(key=lambda step: step.when)
        return steps
