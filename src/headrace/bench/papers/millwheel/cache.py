"""MillWheel's figure 16: the CPU that a computation needs, by the size of its cache.

Windows are buffered: a key for each user and minute, forgotten when the minute is over. The same
records run with caches from nothing to one and a half times what is alive, with the cache of
Headrace and with plain LRU in its place.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from headrace.bench.frame.rounds import Say
from headrace.bench.memory.eviction import MINUTE, SECOND
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record, Timer
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.sources.generated import generate
from headrace.state.cache import WorkerCache
from headrace.state.objects import ObjectCache
from headrace.store.memory import MemoryStore
from headrace.worker.runtime import Runtime

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
RECORDS = 12_000
EPOCH_RECORDS = 1_500
USERS = 1_000
BUFFERED_BYTES = 400
ROUNDS = 2
NOISE = 1.05
"""Two times of a processor that differ by less are the same here."""
FALL = 1.5
"""The paper's CPU is halved; half of that must be seen."""


class BufferMinute(Computation):
    """Buffers the values of a user's minute, and forgets them when it is over."""

    buffered: list[bytes] = state()

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Buffers one value."""
        self.buffered.append(record.value[2])
        ctx.set_timer(at=record.timestamp // MINUTE * MINUTE + MINUTE)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """The minute is over."""
        ctx.count("closed", len(self.buffered))
        ctx.forget()


class LruCache(ObjectCache):
    """Plain LRU in the place of the cache of objects: one stage, in the order of use."""

    def give(self, key: bytes, state: Any, *, again: bool) -> None:
        """Puts an object into the cache, as the newest one."""
        self.drop(key)
        weight = state.weigh()[0]
        if 2 * weight <= self.bytes_max:
            self._once.put(key, state, weight)
            self.shrink()

    def _remember(self, key: bytes) -> None:
        """Evicted keys mean nothing here."""


def measure(say: Say) -> Points:
    """Time of a processor and hit rate, by the size of the cache as a share of what is alive."""
    _, most, _ = _run(1 << 40, ObjectCache)
    found: dict[str, dict[str, Any]] = {f"{share:g}": {} for share in SHARES}
    for number in range(ROUNDS):  # all take turns, and the least time of each counts
        for share in SHARES:
            for name, cache in _CACHES.items():
                cpu, _, hits = _run(int(share * most), cache)
                known = found[f"{share:g}"].get(name, {"cpu_s": cpu})
                least = round(min(cpu, known["cpu_s"]), 3)
                found[f"{share:g}"][name] = {"cpu_s": least, "hit_rate": round(hits, 4)}
            say(f"round {number + 1}, {share:.0%} of what is alive: {found[f'{share:g}']}")
    return {"working_set_bytes": most, "caches": found}


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """Falls to a plateau, and is never above LRU."""
    caches = points["caches"]
    ours = [caches[f"{share:g}"]["headrace"]["cpu_s"] for share in SHARES]
    plateau = [cpu for share, cpu in zip(SHARES, ours) if share >= 1]
    shape = Judgement().falls(
        "the time of a processor, s, from no cache to one of 1.5 x,", ours, times=FALL
    )
    shape.flat("it, from a cache that holds all on,", plateau, 0.1)
    worst = max(c["headrace"]["cpu_s"] / c["lru"]["cpu_s"] for c in caches.values())
    shape.at_most("the worst ratio to the time with LRU", worst, NOISE)
    hits = min(c["headrace"]["hit_rate"] - c["lru"]["hit_rate"] for c in caches.values())
    return shape.at_least(
        "the hit rate less that of LRU, at worst,", round(hits, 4), -0.005
    ).verdict()


def _run(bytes_max: int, cache: type[ObjectCache]) -> tuple[float, int, float]:
    """Time of a processor, the most bytes that the cache has held, and its hit rate."""

    def make(n: int, dice: random.Random) -> tuple[int, int, bytes]:
        return dice.randrange(USERS), n * SECOND // 100, dice.randbytes(BUFFERED_BYTES)

    weights: list[int] = []

    class Sized(cache):  # type: ignore[misc, valid-type]
        def give(self, key: bytes, state: Any, *, again: bool) -> None:
            self.bytes_max = bytes_max
            super().give(key, state, again=again)
            weights.append(self.weight)

    pipeline = PipelineBuilder("buffers")
    pipeline.read("events", generate(make, count=RECORDS, seed=1, timestamp=_time))
    pipeline.compute(BufferMinute, inputs={"events": _user_and_minute}, name="buffer")
    topology, store = pipeline.freeze(), MemoryStore()
    runtime = Runtime(topology, store, WorkerCache(Sized))
    options = Options(
        slots=1, epoch_records=EPOCH_RECORDS, background=False,
        state_cache_bytes=max(bytes_max, 1),
    )  # fmt: skip
    setup = Setup(topology, fingerprint(topology.graph), store, LocalSubstrate(runtime), options)
    driver = Follower(setup).take_over()
    began = time.process_time()
    while driver.ledger.counters.records < RECORDS:
        driver.step()
    cpu = time.process_time() - began
    driver.close()
    use = runtime.cache.objects
    return cpu, max(weights), use.hits / max(1, use.hits + use.misses)


def _user_and_minute(value: tuple[int, int, bytes]) -> tuple[int, int]:
    return value[0], value[1] // MINUTE


def _time(value: tuple[int, int, bytes]) -> int:
    return value[1]


_CACHES: dict[str, type[ObjectCache]] = {"headrace": ObjectCache, "lru": LruCache}

MILLWHEEL_16 = PaperRow(
    "millwheel-16",
    "CPU against cache size: falls, is flat after 550 MB, and halved there",
    f"{RECORDS:,} records buffered in windows, without Spark; caches of 0 to 1.5 x what is alive, "
    "beside plain LRU; time of a processor",
    "falls to a plateau; never above LRU",
    measure,
    judge,
    note="the paper's state is read from a server, key by key; here all keys of an epoch are "
    "looked up at once in segments in memory, so a cache saves about a twentieth of the time",
)
