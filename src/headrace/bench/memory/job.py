"""One process of `headrace bench memory`: runs a pipeline, and measures its own memory.

Every record sets a field of a key and a timer of it, and waits in an ordered computation. The
watermark stays `live` records behind, so there are always about `live` keys with state and a timer,
and `live` waiting records. When a timer fires, its key is forgotten, as a window is that closes.
Once there are `live` records, every second one is for a random key that has state already.

Driver and worker share the process, so the numbers are those of both. Memory is RssAnon: what the
process has allocated. Pages of mapped files are not counted, because the system can drop them.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.limits import LIMITS, Limits
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record, Timer
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.sources.generated import generate
from headrace.state.cache import WorkerCache
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.store.store import Store
from headrace.system import System
from headrace.worker.runtime import Runtime

MS = 1_000
WAITERS = 1_000
"""How many keys the waiting records are distributed over."""


class MemoryWork(msgspec.Struct, frozen=True):
    """What one process does."""

    checkpoint: str
    live: int
    """How many keys have state, and how many records wait."""
    payload: int
    """Bytes of each."""
    records: int
    """How many records there are in the end, those of earlier processes included."""
    epoch_records: int = 5_000
    recovery: str = "lazy"
    limits: Limits = LIMITS


class MemoryUse(msgspec.Struct, frozen=True):
    """What one process measured."""

    before_mb: float
    """RssAnon of the process before it has any state: everything is imported and has run once."""
    peak_mb: float
    opened_s: float
    """How long the first epoch took, which opens all slots."""
    epoch_s: float
    """How long an epoch took at the median."""
    state_mb: float
    """The segments of all slots at the end."""
    records: int
    timers: int
    """How many timers have fired so far."""
    released: int
    """How many records have waited, and were processed, so far."""
    hit_rate: float
    """The share of keys whose objects were in memory."""
    prefetched_hit_rate: float | None = None


class Keep(Computation):
    """Keeps a payload per key until a timer fires."""

    payload: bytes = state(b"")

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Keeps the payload, and sets the timer."""
        self.payload = record.value[1]
        ctx.set_timer(at=record.timestamp)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """The key is done."""
        ctx.forget()


class WaitInOrder(Computation, ordered=True):
    """Counts records, in the order of time."""

    count: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts one record."""
        self.count += 1
        ctx.count("released")


def run_process(work: MemoryWork) -> MemoryUse:
    """Runs the pipeline until it has read all records."""
    warm_up(work)
    before = rss_anon_mb()
    with sampling() as peak:
        driver, runtime = _driver(
            work, DiskStore(Path(work.checkpoint), System(limits=work.limits))
        )
        times: list[float] = []
        while driver.ledger.counters.records < work.records:
            began = time.perf_counter()
            driver.step()
            times.append(time.perf_counter() - began)
        counters = driver.ledger.counters
        entries = {
            entry.segment: entry.bytes
            for slots in driver.ledger.slots.values()
            for slot in slots.values()
            for entry in slot.entries
        }
        driver.close()
    hits, misses, prefetched, used = runtime.cache.objects.counts()
    return MemoryUse(
        before,
        peak[0],
        times[0],
        sorted(times)[len(times) // 2],
        sum(entries.values()) / 1e6,
        counters.records,
        counters.timers,
        counters.metrics.get("wait.released", 0),
        hits / max(hits + misses, 1),
        used / prefetched if prefetched else None,
    )


def warm_up(work: MemoryWork) -> None:
    """Runs some epochs of a few small records, in memory, so that all code is loaded."""
    little = msgspec.structs.replace(work, live=10, payload=10, epoch_records=10)
    driver, _ = _driver(little, MemoryStore(System(limits=work.limits)))
    while driver.ledger.epoch < 3:
        driver.step()
    driver.close()


def rss_anon_mb() -> float:
    """The memory that this process has allocated, in megabytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError("/proc/self/status has no RssAnon: the benchmark needs Linux")


@contextmanager
def sampling(every_s: float = 0.01) -> Iterator[list[float]]:
    """Samples the memory of this process while a block runs; the item of the list is the peak."""
    peak, done = [rss_anon_mb()], threading.Event()

    def sample() -> None:
        while not done.wait(every_s):
            peak[0] = max(peak[0], rss_anon_mb())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _driver(work: MemoryWork, store: Store) -> tuple[Driver, Runtime]:
    live, payload = work.live, work.payload

    def make(n: int, dice: random.Random) -> tuple[int, bytes, int]:
        key = n if n < live or n % 2 == 0 else n - dice.randrange(1, live)
        return key, dice.randbytes(payload), n * MS

    pipeline = PipelineBuilder("memory")
    source = generate(make, timestamp=_time, lateness=f"{live}ms")
    pipeline.read("events", source)
    pipeline.compute(Keep, inputs={"events": _first}, outputs=[], name="keep")
    pipeline.compute(WaitInOrder, inputs={"events": _waiter}, outputs=[], name="wait")
    topology = pipeline.freeze()
    runtime = Runtime(topology, store, WorkerCache())
    options = Options(
        until=None, slots=2, epoch_records=work.epoch_records, retain_epochs=2,
        recovery=work.recovery,
    )  # fmt: skip
    setup = Setup(topology, fingerprint(topology.graph), store, LocalSubstrate(runtime), options)
    return Follower(setup).take_over(), runtime


def _first(value: tuple[int, bytes, int]) -> int:
    return value[0]


def _waiter(value: tuple[int, bytes, int]) -> int:
    return value[0] % WAITERS


def _time(value: tuple[int, bytes, int]) -> int:
    return value[2]


def main() -> None:
    """Reads the work from standard input, and writes what was measured to standard output."""
    work = msgspec.json.decode(sys.stdin.buffer.read(), type=MemoryWork)
    sys.stdout.buffer.write(msgspec.json.encode(run_process(work)))


if __name__ == "__main__":
    main()
