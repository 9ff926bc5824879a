"""SEEP's figure 14: what the size of the state does to the latency, by rate.

SEEP checkpoints all state each time. Here that is a computation that keeps its entries in one
field, which is written whole; beside it the same entries in a map, of which only what changed is
written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from headrace.bench.frame.rounds import Say
from headrace.bench.papers.local.engine import LocalRun
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.map import Map
from headrace.model.record import Record
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sources.generated import generate
from headrace.store.disk import DiskStore

SIZES = (100, 10_000, 100_000)
RATES = (100, 500, 1_000)
EPOCHS = 40
WARM = 10


class WholeEntries(Computation):
    """Keeps all entries in one field: a change writes all of them."""

    entries: dict[int, int] = state()

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts a record in its entry, or makes all entries."""
        for at in record.value:
            self.entries[at] = self.entries.get(at, 0) + 1


class EntryByEntry(Computation):
    """Keeps entries in a map: a change writes its entry."""

    entries: Map[int, int] = state()

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts a record in its entry, or makes all entries."""
        for at in record.value:
            self.entries[at] = self.entries.get(at, 0) + 1


def measure(say: Say) -> Points:
    """The 95th percentile of an epoch, in which the records of a second are processed."""
    found: dict[str, Any] = {}
    for name, computation in (("full", WholeEntries), ("deltas", EntryByEntry)):
        for rate in RATES:
            for size in SIZES:
                each = _run(computation, size, rate)
                found.setdefault(name, {}).setdefault(str(rate), {})[str(size)] = each
                say(f"{name}, {rate}/s, {size:,} entries: {each}")
    return found


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """At each rate whole checkpoints grow with the state, deltas do not; all keep up with it."""
    shape = Judgement()
    for rate in RATES:
        full = [points["full"][str(rate)][str(size)]["epoch_ms_p95"] for size in SIZES]
        shape.rises(f"full at {rate}/s, p95 of an epoch, ms, by size,", full, times=2)
    for rate in RATES:
        deltas = [points["deltas"][str(rate)][str(size)]["epoch_ms_p50"] for size in SIZES]
        shape.flat(f"deltas at {rate}/s, median of an epoch, ms, by size,", deltas, 0.5)
    slowest = max(
        each["epoch_ms_p95"]
        for way in points.values()
        for rate in way.values()
        for each in rate.values()
    )
    return shape.at_most(
        "ms that an epoch takes for a second of input, at worst,", slowest, 1_000
    ).verdict()


def _run(computation: type[Computation], size: int, rate: int) -> dict[str, float]:
    def make(n: int, dice: Random) -> list[int]:
        return list(range(size)) if n == 0 else [dice.randrange(size)]

    pipeline = PipelineBuilder("sizes")
    pipeline.read("changes", generate(make, count=1 + EPOCHS * rate, rate=1000.0))
    pipeline.compute(computation, inputs={"changes": _one_key}, outputs="unused", name="keep")
    with tempfile.TemporaryDirectory(prefix="headrace-sizes-") as directory:
        store = DiskStore(Path(directory))
        run = LocalRun(pipeline, threads=1, slots=1, store=store, epoch_records=rate)
        run.read(EPOCHS * rate)
        run.close()
    took = [seen.seconds * 1e3 for seen in run.ran.epochs[WARM:]]
    return {
        "epoch_ms_p50": round(float(np.percentile(took, 50)), 2),
        "epoch_ms_p95": round(float(np.percentile(took, 95)), 2),
    }


def _one_key(value: list[int]) -> int:
    return 0


SEEP_14 = PaperRow(
    "seep-14",
    "state of 10^2, 10^4, 10^5 entries at 100, 500, 1,000/s: the 95th percentile grows with the "
    "size, throughput does not move",
    "without Spark: an epoch has the records of a second; all entries in one field (written whole) "
    "and in a map (written by entry)",
    "full as theirs; deltas flat",
    measure,
    judge,
)
