"""`headrace bench eviction`: does the object cache keep the right objects?

Three pipelines run in this process, and what they ask of the object cache is recorded: windows
(a key per user and minute, forgotten when the minute is over), sessions (a key per user, forgotten
after a gap), and counts of keys of which few are frequent (Zipf). Each trace is then replayed with
several policies, for caches that hold a part of the keys that are alive at a time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from headrace.bench.frame.bars import Bar
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Say
from headrace.bench.memory.policies import POLICIES, CacheEvent, hit_rate
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

SHARES = (0.05, 0.1, 0.25, 0.5)
SECOND = 1_000_000
USERS = 5_000
MINUTE = 60 * SECOND


class EvictionWork(msgspec.Struct, frozen=True):
    """What to measure."""

    records: int = 200_000
    epoch_records: int = 2_000
    seed: int = 1


class InMinute(Computation):
    """Counts the records of a user in a minute, and forgets them when it is over."""

    n: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts one record."""
        self.n += 1
        ctx.set_timer(at=record.timestamp // MINUTE * MINUTE + MINUTE)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """The minute is over."""
        ctx.forget()


class InSession(Computation):
    """Counts the records of a session, and forgets them after a gap of ten seconds."""

    n: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts one record."""
        self.n += 1
        ctx.set_timer(at=record.timestamp + 10 * SECOND)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """The session is over."""
        ctx.forget()


class CountedKey(Computation):
    """Counts the records of a key."""

    n: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts one record."""
        self.n += 1


class Recorder(ObjectCache):
    """An object cache without a limit that records what is asked of it."""

    trace: ClassVar[list[CacheEvent]]

    def take(self, key: bytes) -> tuple[Any, bool]:
        """Takes an object."""
        self.trace.append(CacheEvent(key, False))
        return super().take(key)

    def give(self, key: bytes, state: Any, *, again: bool) -> None:
        """Takes an object back."""
        self.bytes_max = 1 << 62
        self.trace.append(CacheEvent(key, True, state.weigh()[1]))
        super().give(key, state, again=again)


TRACES: dict[str, tuple[type[Computation], str]] = {
    "windows": (InMinute, "user and minute"),
    "sessions": (InSession, "user"),
    "zipf": (CountedKey, "user"),
}


def run_eviction(
    work: EvictionWork, *, work_dir: Path | None = None, say: Say = lambda line: None
) -> dict[str, Any]:
    """Records the traces, replays them, and returns the JSON document."""
    machine = describe_machine()
    traces: dict[str, Any] = {}
    bars = []
    for name in TRACES:
        trace = record(name, work)
        alive = most_alive(trace)
        rates = {
            policy: {
                f"{share:g}": round(hit_rate(policy, trace, max(1, round(share * alive))), 4)
                for share in SHARES
            }
            for policy in POLICIES
        }
        traces[name] = {"events": len(trace), "alive": alive, "hit_rate": rates}
        say(f"{name}: {len(trace):,} events, {alive:,} keys at a time")
        ours, lru = (np.mean(list(rates[policy].values())) for policy in ("headrace", "lru"))
        ratio = round(float(ours / lru), 4) if lru else None
        bars.append(Bar(f"{name}: hit rate / lru", "at least", 1.0, ratio).as_json(True))
    return {
        "benchmark": "eviction",
        "workload": msgspec.structs.asdict(work),
        "traces": traces,
        "results_equal": True,
        "bars": bars,
        "machine": machine,
        "versions": describe_versions(),
    }


def record(name: str, work: EvictionWork) -> list[CacheEvent]:
    """What a pipeline asks of the object cache, in order."""
    computation, key = TRACES[name]
    weights = 1.0 / np.arange(1, USERS + 1)
    heavy = np.cumsum(weights / weights.sum())

    def make(n: int, dice: random.Random) -> tuple[int, int]:
        time = n * SECOND // 200
        if name == "zipf":
            return int(np.searchsorted(heavy, dice.random())), time
        # At a time, one user of eight is there; who that is changes every half minute.
        group = (time // (30 * SECOND)) % 8
        return dice.randrange(USERS // 8) * 8 + group, time

    pipeline = PipelineBuilder("eviction")
    pipeline.read("events", generate(make, count=work.records, seed=work.seed, timestamp=_time))
    by = _user_and_minute if key == "user and minute" else _user
    pipeline.compute(computation, inputs={"events": by}, name="c")
    topology, store = pipeline.freeze(), MemoryStore()

    class RecorderOfTrace(Recorder):
        trace: ClassVar[list[CacheEvent]] = []

    runtime = Runtime(topology, store, WorkerCache(RecorderOfTrace))
    options = Options(slots=1, epoch_records=work.epoch_records, background=False)
    setup = Setup(topology, fingerprint(topology.graph), store, LocalSubstrate(runtime), options)
    driver = Follower(setup).take_over()
    while driver.ledger.counters.records < work.records:
        driver.step()
    driver.close()
    return RecorderOfTrace.trace


def most_alive(trace: list[CacheEvent]) -> int:
    """How many keys have state at a time, at most."""
    alive: set[bytes] = set()
    most = 0
    for event in trace:
        if event.given and event.empty:
            alive.discard(event.key)
        elif event.given:
            alive.add(event.key)
            most = max(most, len(alive))
    return most


def format_eviction(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    lines = ["hit rate, if the cache holds a share of the keys that are alive at a time"]
    for name, trace in document["traces"].items():
        lines.append(f"{name}: {trace['events']:,} events, {trace['alive']:,} keys at a time")
        shares = next(iter(trace["hit_rate"].values()))
        lines.append(f"  {'':<14}" + "".join(f"{float(share):>9.0%}" for share in shares))
        for policy, rates in trace["hit_rate"].items():
            lines.append(f"  {policy:<14}" + "".join(f"{r:>9.1%}" for r in rates.values()))
    for bar in document["bars"]:
        verdict = "reached" if bar["reached"] else "MISSED"
        lines.append(f"{verdict}  {bar['name']}: {bar['measured']} ({bar['bar']})")
    return "\n".join(lines)


def _user(value: tuple[int, int]) -> int:
    return value[0]


def _user_and_minute(value: tuple[int, int]) -> tuple[int, int]:
    return value[0], value[1] // MINUTE


def _time(value: tuple[int, int]) -> int:
    return value[1]
