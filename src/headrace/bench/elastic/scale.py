"""`headrace bench scale`: what an epoch costs the driver, by intervals of a ring and by slots.

The real driver plans, judges, folds and writes commits, with rolling snapshots, over a checkpoint
in memory. Tasks are not run: a substrate makes up the report of every slot, each with a delta, so
that all slots are active. Its time does not count; the time to encode and write the work order
does. Merges and collection, which go on beside epochs, are left out: so every size is measured in
several short laps, each from a new checkpoint, in which a slot gets as many segments as it has when
the default policy merges them. The driver waits for nothing here, so the bars compare the time of a
processor: other processes of the machine change it less.

Also measured: a plan and commit that move a hundredth of one slot, and routing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec
import numpy as np

from headrace.bench.frame.bars import Bar
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Say
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.setup import Setup
from headrace.engine.history.recovery import recover
from headrace.engine.jobs.order_parts import PartsWriter
from headrace.engine.upkeep.held import HeldDeltas
from headrace.limits import LIMITS, Limits
from headrace.log import paths
from headrace.log.epochlog import EpochLog
from headrace.log.rings import resolve
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.state import state
from headrace.model.values.keys import HASH_SPACE
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import Report, SlotDelta, WorkOrder
from headrace.plan.options import Options
from headrace.plan.progress import StoreUse
from headrace.plan.rings.ring import Ring
from headrace.plan.rings.wanted import Move, Wanted
from headrace.plan.units import labels_of, saw_digest, slots_of
from headrace.plan.watermarks import Mark
from headrace.sources.in_memory import memory
from headrace.store.memory import MemoryStore
from headrace.store.store import Store
from headrace.system import System

COMPUTATION = "Count"
FEW_SLOTS = 64
INTERVALS_RATIO_MAX = 2.0
"""500,000 intervals against 1,000, with 64 slots."""
SLOTS_RATIO_MAX = 160.0
"""10,000 slots against 64, with 500,000 intervals: linear."""
AIM_MS = 50.0
ROUTED = 100_000


class ScaleWorkload(msgspec.Struct, frozen=True):
    """What to measure."""

    intervals: tuple[int, ...] = (1_000, 10_000, 100_000, 500_000)
    """With 64 slots."""
    slots: tuple[int, ...] = (64, 1_000, 10_000)
    """With the largest number of intervals."""
    epochs: int = 8
    """Measured epochs of each lap, after two for the ring and for warm-up."""
    laps: int = 3


class CountedNumbers(Computation):
    """Counts records per key; its hooks never run here."""

    n: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts one record."""
        self.n += 1


class EpochCost(NamedTuple):
    """What an epoch costs the driver."""

    ms: float
    cpu_ms: float
    """The same as time of a processor: without the time that other processes had it."""
    log_bytes: int


class MadeUpReports:
    """A substrate that runs nothing: every slot reports a small delta."""

    spark = None
    parallelism = FEW_SLOTS
    grows = False
    held: HeldDeltas | None = None

    def __init__(self, topology: Topology, store: Store) -> None:
        self._topology = topology
        self._parts = PartsWriter(store)
        self.seconds = 0.0
        """Spent here, without the time to encode the work order."""
        self.cpu_seconds = 0.0
        self.order_bytes = 0

    def run(self, order: WorkOrder) -> Sequence[Report]:
        """The reports of all units of an epoch."""
        data = msgspec.msgpack.encode(self._parts.split(order))
        self.order_bytes = len(data) + self._parts.bytes
        began, cpu = time.perf_counter(), time.thread_time()
        epoch = order.plan.epoch
        mark = Mark(epoch, epoch)
        found = [
            Report(read.label, read.stream, _digest(epoch, 0), mark, "")
            for task in order.plan.reads
            for read in task
        ]
        node = self._topology.keyed[COMPUTATION]
        made = [
            (label, _digest(epoch, 0))
            for host in self._topology.feeders(node)
            for label in labels_of(self._topology, order, host)
        ]
        saw = saw_digest(made)
        directory = paths.state_directory(COMPUTATION)
        for slot in slots_of(order, COMPUTATION):
            label = f"{COMPUTATION}/{slot}"
            digest = _digest(epoch, slot + 1)
            name = f"{directory}/{paths.content_name(epoch, label, digest, '.arrow')}"
            delta = SlotDelta(name, 10, 2000, epoch + 1000, epoch + slot)
            found.append(
                Report(label, COMPUTATION, digest, mark, saw, slot, epoch, delta, newest=epoch)
            )
        self.seconds += time.perf_counter() - began
        self.cpu_seconds += time.thread_time() - cpu
        return found

    def gone(self) -> str | None:
        """Never."""
        return None

    def give_up_when(self, look: Callable[[], bool]) -> None:
        """Does nothing: no job takes long here."""

    def used(self) -> StoreUse:
        """Nothing."""
        return StoreUse()

    def notes(self) -> Sequence[SlotNote]:
        """None."""
        return ()

    def close(self) -> None:
        """Does nothing."""


def run_scale(
    workload: ScaleWorkload, *, say: Say = lambda line: None, limits: Limits = LIMITS
) -> dict[str, Any]:
    """Measure all sizes and return the JSON document."""
    machine = describe_machine()
    most = max(workload.intervals)
    few = min(workload.slots)
    asked = [(intervals, few) for intervals in workload.intervals]
    asked += [(most, slots) for slots in workload.slots if slots != few]
    sizes = []
    for intervals, slots in asked:
        sizes.append(_measure(intervals, slots, workload, limits))
        found = sizes[-1]
        say(
            f"{intervals:,} intervals, {slots:,} slots: {found['driver_ms']:.2f} ms, "
            f"{found['commit_bytes']:,} bytes"
        )
    by_intervals = [each for each in sizes if each["slots"] == few]
    by_slots = [each for each in sizes if each["intervals"] == most]
    equal = all(each["recovered"] for each in sizes)
    first, last = by_intervals[0], by_intervals[-1]
    small, large = by_slots[0], by_slots[-1]
    per_slot = SLOTS_RATIO_MAX / (10_000 / FEW_SLOTS)
    return {
        "benchmark": "scale",
        "workload": msgspec.structs.asdict(workload),
        "sizes": sizes,
        "slope": {
            "intervals": _slope(by_intervals, "intervals"),
            "slots": _slope(by_slots, "slots"),
        },
        "results_equal": equal,
        "bars": [
            Bar(
                f"driver time, {last['intervals']:,} / {first['intervals']:,} intervals",
                "at most",
                INTERVALS_RATIO_MAX,
                last["driver_cpu_ms"] / first["driver_cpu_ms"],
            ).as_json(equal),
            Bar(
                f"driver time, {large['slots']:,} / {small['slots']:,} slots",
                "at most",
                round(per_slot * large["slots"] / small["slots"], 1),
                large["driver_cpu_ms"] / small["driver_cpu_ms"],
            ).as_json(equal),
        ],
        "aim_ms": AIM_MS,
        "machine": machine,
        "versions": describe_versions(),
    }


def format_scale(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    lines = [
        f"{'intervals':>12}{'slots':>9}{'driver_ms':>12}{'cpu_ms':>10}{'commit_bytes':>15}{'order_bytes':>14}"
        f"{'move_ms':>10}{'route_ms':>10}{'recover_ms':>12}"
    ]
    for each in document["sizes"]:
        lines.append(
            f"{each['intervals']:>12,}{each['slots']:>9,}{each['driver_ms']:>12.2f}"
            f"{each['driver_cpu_ms']:>10.2f}{each['commit_bytes']:>15,}{each['order_bytes']:>14,}{each['move_ms']:>10.2f}"
            f"{each['route_ms']:>10.2f}{each['recover_ms']:>12.1f}"
        )
    slope = document["slope"]
    lines.append(
        f"time grows as intervals to the power of {slope['intervals']:.2f}, and as slots to the "
        f"power of {slope['slots']:.2f}"
    )
    lines.append(f"recovered ledgers equal: {'yes' if document['results_equal'] else 'NO'}")
    for bar in document["bars"]:
        verdict = "reached" if bar["reached"] else "MISSED"
        lines.append(f"{verdict}  {bar['name']}: {bar['measured']:.2f} ({bar['bar']})")
    return "\n".join(lines)


class Lap(NamedTuple):
    """What one lap of a size has shown."""

    done: list[EpochCost]
    ring: Ring
    order_bytes: int
    moved: int
    move_ms: float
    recover_ms: float
    recovered: bool


def _measure(intervals: int, slots: int, workload: ScaleWorkload, limits: Limits) -> dict[str, Any]:
    """One size."""
    laps = [_lap(intervals, slots, workload.epochs, limits) for _ in range(workload.laps)]
    done = [each for lap in laps for each in lap.done]
    last = laps[-1]
    return {
        "intervals": intervals,
        "slots": slots,
        "records": len(last.ring),
        "driver_ms": round(median(each.ms for each in done), 4),
        "driver_ms_max": round(max(each.ms for each in done), 4),
        "driver_cpu_ms": round(median(each.cpu_ms for each in done), 4),
        "commit_bytes": int(median(each.log_bytes for each in done)),
        "order_bytes": last.order_bytes,
        "moved_intervals": last.moved,
        "move_ms": round(median(lap.move_ms for lap in laps), 4),
        "route_ms": round(_routing_ms(last.ring), 4),
        "recover_ms": round(median(lap.recover_ms for lap in laps), 3),
        "recovered": all(lap.recovered for lap in laps),
    }


def _lap(intervals: int, slots: int, epochs: int, limits: Limits) -> Lap:
    """Some epochs. The ring is dealt out of one slot, so that each slot has one class."""
    driver, substrate = _driver(epochs + 8, limits)
    _epoch(driver, substrate)
    driver.stop()
    driver.ledger.wanted[COMPUTATION] = Wanted(moves=_dealt(intervals, slots))
    for _ in range(2):
        _epoch(driver, substrate)
    done = [_epoch(driver, substrate) for _ in range(epochs)]
    ring = resolve(driver.store, driver.ledger.rings[COMPUTATION])
    moved, move_ms = _moving(driver, substrate, ring)
    log = EpochLog(driver.store)
    began = time.perf_counter()
    recovered = recover(log, driver.history.retain)
    recover_ms = (time.perf_counter() - began) * 1e3
    equal = recovered.ledger.slots == driver.ledger.slots
    equal = equal and recovered.ledger.rings == driver.ledger.rings
    driver.close()
    return Lap(done, ring, substrate.order_bytes, moved, move_ms, recover_ms, equal)


def _epoch(driver: Driver, substrate: MadeUpReports) -> EpochCost:
    """One epoch."""
    position, spent, worked_there = driver.log.position, substrate.seconds, substrate.cpu_seconds
    began, cpu = time.perf_counter(), time.thread_time()
    driver.step()
    took = time.perf_counter() - began - (substrate.seconds - spent)
    worked = time.thread_time() - cpu - (substrate.cpu_seconds - worked_there)
    limits = driver.store.system.limits
    written = [
        len(driver.store.read(paths.log_entry(at, limits)))
        for at in range(position + 1, driver.log.position + 1)
    ]
    return EpochCost(took * 1e3, worked * 1e3, sum(written))


def _moving(driver: Driver, substrate: MadeUpReports, ring: Ring) -> tuple[int, float]:
    """A hundredth of the intervals of one slot moves to another: how many, and the extra time."""
    mine = ring.records(ring.slots[0])
    some = max(1, len(mine.lows) // 100)
    pairs = zip(mine.lows[:some].tolist(), mine.lasts[:some].tolist(), strict=True)
    moves = tuple(Move(low, last, ring.slots[-1]) for low, last in pairs)
    driver.stop()
    plain = _epoch(driver, substrate)
    driver.stop()
    driver.ledger.wanted[COMPUTATION] = Wanted(moves=moves)
    moving = _epoch(driver, substrate)
    return some, moving.ms - plain.ms


def _routing_ms(ring: Ring) -> float:
    """Finding the slots of many keys."""
    hashes = np.random.default_rng(1).integers(0, HASH_SPACE - 1, ROUTED, np.uint64)
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        ring.place(hashes)
        best = min(best, time.perf_counter() - began)
    return best * 1e3


def _dealt(intervals: int, slots: int) -> tuple[Move, ...]:
    """Moves that deal intervals of equal length to the slots, one after the other."""
    lows = [HASH_SPACE * i // intervals for i in range(intervals + 1)]
    return tuple(Move(lows[i], lows[i + 1] - 1, i % slots) for i in range(intervals))


def _driver(records: int, limits: Limits) -> tuple[Driver, MadeUpReports]:
    pipeline = PipelineBuilder("scale")
    pipeline.read("numbers", memory(list(range(records)), timestamps=range(records)))
    pipeline.compute(CountedNumbers, inputs={"numbers": _key}, outputs="counts", name=COMPUTATION)
    topology = pipeline.freeze()
    store = MemoryStore(System(limits=msgspec.structs.replace(limits, collect_every_epochs=10**6)))
    substrate = MadeUpReports(topology, store)
    options = Options(until=None, slots=1, epoch_records=1, background=False, balance="off")
    setup = Setup(topology, "code", store, substrate, options, choose_run=lambda entries: ())
    return Follower(setup).take_over(), substrate


def _key(number: int) -> int:
    return number


def _digest(epoch: int, number: int) -> str:
    return f"{epoch:016x}{number:016x}"


def _slope(sizes: Sequence[Mapping[str, Any]], by: str) -> float:
    """The exponent with which the driver's time grows, by a line through logarithms."""
    if len(sizes) < 2:
        return 0.0
    x = np.log([each[by] for each in sizes])
    y = np.log([each["driver_cpu_ms"] for each in sizes])
    return round(float(np.polyfit(x, y, 1)[0]), 4)
