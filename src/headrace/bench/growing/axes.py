"""What an epoch costs, along one axis at a time, without Spark.

Each axis goes over some orders of magnitude while everything else stays the same. The measure is
the time of a processor, because it depends less on what else the machine does. The slope is that of
a line through the logarithms: 1 is linear, 0 is flat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import median
from typing import Any, NamedTuple

from headrace.bench.frame.bars import Bar
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.shape import slope
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.sources.generated import generate
from headrace.state.cache import WorkerCache
from headrace.store.memory import MemoryStore
from headrace.store.store import Store
from headrace.worker.runtime import Runtime

EPOCHS = 7
WARM = 3
FILL_RECORDS = 100_000


class Axis(NamedTuple):
    """One axis: its sizes, and the largest slope that it may have."""

    name: str
    what: str
    sizes: tuple[int, ...]
    slope_max: float


AXES = {
    axis.name: axis
    for axis in (
        Axis("records", "records in an epoch, 100 keys", (10, 100, 1_000, 10_000, 100_000), 1.1),
        Axis("keys", "keys among 10,000 records", (1, 10, 100, 1_000, 10_000), 1.0),
        Axis("state", "keys in state, 1,000 of them change", (10**3, 10**4, 10**5, 10**6), 0.15),
        Axis("levels", "levels, 1,000 records", (1, 2, 4, 8, 16, 32), 1.1),
        Axis("slots", "slots, 1,000 records", (1, 8, 64, 512), 1.1),
    )
}


class EpochShape(NamedTuple):
    """What one point of an axis measures."""

    records: int = 1_000
    keys: int = 1_000
    state: int = 0
    levels: int = 1
    slots: int = 2


class TallyOn(Computation):
    """Counts, and passes on."""

    count: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts one record."""
        self.count += 1
        ctx.produce(record.value)


def shape_of(axis: str, size: int) -> EpochShape:
    """The point of an axis at a size."""
    match axis:
        case "records":
            return EpochShape(records=size, keys=100)
        case "keys":
            return EpochShape(records=10_000, keys=size)
        case "state":
            return EpochShape(keys=1_000, state=size)
        case "levels":
            return EpochShape(levels=size)
        case "slots":
            return EpochShape(slots=size)
    raise ValueError(f"there is no axis {axis!r}")


def run_axes(
    names: Sequence[str],
    *,
    sizes: Mapping[str, tuple[int, ...]] | None = None,
    say: Say = lambda line: None,
) -> dict[str, dict[str, Any]]:
    """Measures axes; the part of the JSON document for each."""
    found = {}
    for name in names:
        axis = AXES[name]
        points = []
        for size in (sizes or {}).get(name, axis.sizes):
            points.append({"size": size, **measure(shape_of(name, size))})
            say(f"{name} {size:,}: {points[-1]['cpu_ms']:.2f} ms of a processor an epoch")
        found[name] = judged(axis, points)
    return found


def judged(axis: Axis, points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The slope of an axis, and whether it is within its bar."""
    right = all(point["right"] for point in points)
    power = slope([p["size"] for p in points], [p["cpu_ms"] for p in points])
    shown = None if power is None else round(power, 4)
    bar = Bar(f"growth with {axis.name}: power", "at most", axis.slope_max, shown)
    return {
        "what": axis.what,
        "points": list(points),
        "slope": shown,
        "results_equal": right,
        "bar": bar.as_json(right),
    }


def measure(shape: EpochShape) -> dict[str, Any]:
    """What an epoch of this shape costs."""
    store = MemoryStore()
    function = _keys(shape)
    if shape.state:
        filling = _driver(shape, store, function, min(FILL_RECORDS, shape.state))
        _until(filling, shape.state)
        filling.stop()  # the plan that its last commit carries is as large as those before it
        filling.close()
    driver = _driver(shape, store, function, shape.records)
    _until(driver, driver.ledger.counters.records + WARM * shape.records)
    took, cpu = [], []
    for _ in range(EPOCHS):
        began, cpu_began = time.perf_counter(), time.process_time()
        _until(driver, driver.ledger.counters.records + shape.records)
        took.append((time.perf_counter() - began) * 1e3)
        cpu.append((time.process_time() - cpu_began) * 1e3)
    total = driver.ledger.counters.records
    driver.close()
    last = f"level {shape.levels}"
    counted = sum(kept["count"] for _, kept in Checkpoint(store).scan(last))
    return {
        "ms": round(median(took), 3),
        "cpu_ms": round(median(cpu), 3),
        "right": counted == total,
    }


def _until(driver: Driver, records: int) -> None:
    while driver.ledger.counters.records < records:
        driver.step()


def _driver(
    shape: EpochShape, store: Store, function: Callable[[int, Random], int], records: int
) -> Driver:
    pipeline = PipelineBuilder("growing")
    pipeline.read("level 0 out", generate(function, rate=1000.0))
    for level in range(1, shape.levels + 1):
        pipeline.compute(
            TallyOn, inputs={f"level {level - 1} out": _itself}, outputs=f"level {level} out",
            name=f"level {level}",
        )  # fmt: skip
    topology = pipeline.freeze()
    substrate = LocalSubstrate(Runtime(topology, store, WorkerCache()))
    options = Options(until=None, slots=shape.slots, epoch_records=records, background=False)
    setup = Setup(topology, fingerprint(topology.graph), store, substrate, options)
    return Follower(setup).take_over()


def _keys(shape: EpochShape) -> Callable[[int, Random], int]:
    total, keys = shape.state, shape.keys

    def key(n: int, dice: Random) -> int:
        if n < total:
            return n
        return dice.randrange(total) if total else n % keys

    return key


def _itself(value: int) -> int:
    return value


def format_axes(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The axes as lines of text."""
    lines = []
    for name, axis in found.items():
        sizes = ", ".join(f"{p['size']:,}: {p['cpu_ms']:,.2f} ms" for p in axis["points"])
        lines.append(f"{name:<8} to the power of {axis['slope']}  ({sizes})")
    return lines
