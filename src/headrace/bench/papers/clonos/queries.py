"""Clonos' figure 5: what causal recovery costs on Nexmark, beside checkpoints alone.

Both make state durable every few epochs. With causal recovery (`deliver="committed"`) sinks get
each epoch at once, because what is lost is made again exactly as it was. With checkpoints alone
(`deliver="durable"`) sinks get an epoch when its state is durable. The two take turns epoch by
epoch over the same events, and processor time is compared.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace import sinks
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.plan.decisions.next_step import Finish, Run
from headrace.plan.fingerprint import fingerprint
from headrace.plan.interval.cadence import Cadence
from headrace.plan.options import COMMITTED, DURABLE, Options
from headrace.state.cache import WorkerCache
from headrace.store.disk import DiskStore
from headrace.worker.runtime import Runtime
from headrace.workloads.nexmark.events.generated import GeneratedEvents
from headrace.workloads.nexmark.events.generator import Generator
from headrace.workloads.nexmark.registry import pipeline
from headrace.workloads.nexmark.streams import Auction, read_events

QUERIES = ("q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q11", "q13", "q14")
"""Those of the paper whose answers can be compared."""
SIMPLE = ("q1", "q2")
EPOCHS = 36
WARM = 6
EVERY = 6
"""Epochs between two checkpoints."""
EVENTS = 10_000
"""In an epoch."""
MEAN_MAX, WORST_MAX = 0.07, 0.26
WAYS = (COMMITTED, DURABLE)


def measure(say: Say) -> Points:
    """The share of processor time that causal recovery adds, by query."""
    found: dict[str, Any] = {}
    right = True
    for query in QUERIES:
        with tempfile.TemporaryDirectory(prefix="headrace-clonos-") as directory:
            cpu, equal = _compare(query, Path(directory))
        right = right and equal
        found[query] = {
            "cpu_ms": {way: round(sum(each) * 1e3 / len(each), 3) for way, each in cpu.items()},
            "overhead": round(sum(cpu[COMMITTED]) / sum(cpu[DURABLE]) - 1, 4),
        }
        say(f"{query}: {found[query]}")
    return {"queries": found, "right": right}


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """Little on average, not much at worst, nothing for queries without state."""
    costs = {query: each["overhead"] for query, each in points["queries"].items()}
    shape = Judgement().at_most("the mean overhead", sum(costs.values()) / len(costs), MEAN_MAX)
    worst = max(costs, key=lambda query: costs[query])
    shape.at_most(f"the worst overhead ({worst})", costs[worst], WORST_MAX)
    for query in SIMPLE:
        shape.at_most(f"the overhead of {query}", costs.get(query), MEAN_MAX)
    return shape.verdict()


def _compare(query: str, place: Path) -> tuple[dict[str, list[float]], bool]:
    """Processor seconds of the epochs of each way, and whether both gave the same rows."""
    drivers = {way: _driver(query, place / way, way) for way in WAYS}
    cpu: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(EPOCHS):
        for way in WAYS if turn % 2 else reversed(WAYS):
            began = time.process_time()
            while not isinstance(drivers[way].step(), Run):
                pass
            if turn >= WARM:
                cpu[way].append(time.process_time() - began)
    for driver in drivers.values():
        while not isinstance(driver.step(), Finish):
            pass
        driver.close()
    one, other = (_rows(place / way / "out") for way in WAYS)
    return cpu, one.num_rows > 0 and one.equals(other)


def _driver(query: str, place: Path, way: str) -> Driver:
    source = GeneratedEvents(Generator(), EPOCHS * EVENTS)
    asked = pipeline(
        query,
        lambda p: Auction.of_events(p, read_events(p, source)),
        sinks.parquet(place / "out"),
    )
    topology = asked.freeze()
    store = DiskStore(place / "checkpoint")
    options = Options(
        until="end", slots=2, epoch_records=EVENTS, checkpoint_every=Cadence(EVERY), deliver=way,
        background=False,
    )  # fmt: skip
    substrate = LocalSubstrate(Runtime(topology, store, WorkerCache()))
    setup = Setup(topology, fingerprint(topology.graph), store, substrate, options)
    return Follower(setup).take_over()


def _rows(output: Path) -> pa.Table:
    """All rows, in the order of epochs."""
    files = sorted(output.glob("epoch=*/**/*.parquet"))
    tables = [pq.ParquetFile(file).read() for file in files]
    return pa.concat_tables(tables) if tables else pa.table({})


CLONOS_5 = PaperRow(
    "clonos-5",
    "Nexmark: causal logging costs 7 % on average, 26 % at worst (q5, q7); q1 and q2 about nothing",
    f"without Spark: {len(QUERIES)} queries, {EVENTS:,} events in an epoch, state durable every "
    f"{EVERY} epochs; sinks get epochs at once, or when their state is durable; processor time",
    "mean at most 7 %, worst at most 26 %",
    measure,
    judge,
)
