"""MillWheel's figure 13: what strong productions and duplicate checks cost in latency.

One shuffle, an open loop at half of the capacity. With both guarantees a record is visible after
the commit of its epoch; without them it is delivered before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np

from headrace.bench.frame.rounds import Say
from headrace.bench.papers.local.arrivals import Arrivals, ArrivalSchedule, Phase
from headrace.bench.papers.local.engine import LocalRun
from headrace.bench.papers.local.serving import itself
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.sink import Delivery
from headrace.model.source import Timing
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sinks.memory import Memory
from headrace.store.disk import DiskStore

KEYS = 500
COST_US = 10_000
SLOTS = 2
RATE = 0.5 * SLOTS * 1e6 / COST_US
SECONDS = 8.0
ROUNDS = 3
WARM_UP = 0.25


class NotedMemory(Memory):
    """Notes when rows become visible."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, int]] = []
        """(when, rows)."""

    def deliver(self, delivery: Delivery) -> None:
        super().deliver(delivery)
        rows = sum(part.rows for part in delivery.parts)
        if rows:
            self.seen.append((time.monotonic(), rows))


class Bucket(Computation):
    """Counts the records of its key, and passes each on."""

    count: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Passes one record on."""
        time.sleep(COST_US / 1e6)
        self.count += 1
        ctx.produce(self.count)


def measure(say: Say) -> Points:
    """Latencies with and without both guarantees, in turns."""
    found: dict[str, list[dict[str, float]]] = {"off": [], "on": []}
    for number in range(ROUNDS):
        for name in ("off", "on") if number % 2 else ("on", "off"):
            found[name].append(_run(guaranteed=name == "on"))
            say(f"round {number + 1}, guarantees {name}: {found[name][-1]}")
    figures = ("p50", "p95", "epoch_ms_p50")
    return {
        name: {each: round(median(run[each] for run in runs), 2) for each in figures}
        for name, runs in found.items()
    } | {"rounds": found}


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """Off is below on, and an epoch is the floor."""
    off, on = points["off"], points["on"]
    shape = Judgement()
    for share in ("p50", "p95"):
        shape.below(f"{share} without guarantees, ms", off[share], "with them", on[share])
    return shape.below(
        "an epoch at the median, ms", on["epoch_ms_p50"], "the median latency with them", on["p50"]
    ).verdict()


def _run(*, guaranteed: bool) -> dict[str, float]:
    sink = NotedMemory()
    arrivals = Arrivals(
        ArrivalSchedule([Phase(SECONDS, RATE)]), _number, timing=Timing(id=itself, id_slack="1s")
    )
    pipeline = PipelineBuilder("buckets")
    pipeline.read("records", arrivals)
    pipeline.compute(
        Bucket,
        inputs={"records": _key},
        outputs="sorted",
        name="bucket",
        strong=guaranteed,
        dedup=guaranteed,
    )
    pipeline.stream("sorted").write(sink)
    with tempfile.TemporaryDirectory(prefix="headrace-latency-") as directory:
        store = DiskStore(Path(directory))
        run = LocalRun(
            pipeline, threads=SLOTS, arrivals=arrivals, slots=SLOTS, store=store, background=True
        )
        began = time.monotonic() - arrivals.elapsed_s
        ran = run.read(arrivals.schedule.count)
        run.close()
    latency, first = [np.empty(0)], 0
    for at, rows in sink.seen:
        due = arrivals.schedule.times(first, first + rows)
        latency.append((at - began - due) * 1e3)
        first += rows
    every = np.concatenate(latency)
    late = every[int(len(every) * WARM_UP) :]
    return {
        "p50": round(float(np.percentile(late, 50)), 2),
        "p95": round(float(np.percentile(late, 95)), 2),
        "epoch_ms_p50": round(1e3 * median(seen.seconds for seen in ran.epochs), 2),
    }


def _number(n: int, dice: Random) -> int:
    return n


def _key(number: int) -> int:
    return number % KEYS


MILLWHEEL_13 = PaperRow(
    "millwheel-13",
    "bucket-and-sort on 200 CPUs: both guarantees off p50 3.6 ms, p95 30 ms; on 33.7 and 93.8 ms",
    f"without Spark, one shuffle, a checkpoint on disk, an open loop at 50 % load in {ROUNDS} "
    f"rounds of turns; emulated service time ({COST_US} us)",
    "off below on at both percentiles; the floor is one epoch",
    measure,
    judge,
)
