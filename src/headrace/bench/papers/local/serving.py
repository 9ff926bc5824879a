"""Computations with an emulated service time, and the runs that most emulated experiments share."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from headrace.bench.papers.local.arrivals import Arrivals, ArrivalSchedule, Phase
from headrace.bench.papers.local.engine import LocalRun
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.state import state
from headrace.model.values.keys import encode_key, hash_key
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.rings.ring import Ring

EMULATED = "emulated: each record sleeps in its slot, and each slot has a thread of its own"
SERVE = "serve"


class ServeKey(Computation):
    """Counts the records of its key; each takes some microseconds, asleep."""

    count: int = state(0)

    def __init__(self, cost_us: int) -> None:
        self.cost_us = cost_us

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Serves one record."""
        if self.cost_us:
            time.sleep(self.cost_us / 1e6)
        self.count += 1


def itself(value: Any) -> Any:
    """The key of a record that is its own key."""
    return value


def spread(keys: int) -> Callable[[int, Random], int]:
    """Record number n -> its key, all keys in turn."""

    def key(n: int, dice: Random) -> int:
        return n % keys

    return key


def balanced(slots: int, per_slot: int = 20) -> Callable[[int, Random], int]:
    """Record number n -> its key: each slot of an even ring gets as many records as any other."""
    ring = Ring.even(slots)
    found: list[list[int]] = [[] for _ in range(slots)]
    key = 0
    while min(map(len, found)) < per_slot:
        hashes = np.array([hash_key(encode_key(key))], np.uint64)
        found[int(ring.place(hashes)[0])].append(key)
        key += 1

    def key_of(n: int, dice: Random) -> int:
        return found[n % slots][n // slots % per_slot]

    return key_of


def serving(
    phases: Sequence[Phase],
    key: Callable[[int, Random], Any],
    *,
    cost_us: int,
    threads: int,
    pace_s: float = 0.0,
    **options: Any,
) -> tuple[LocalRun, Arrivals]:
    """A pipeline of one computation that serves records as they arrive."""
    arrivals = Arrivals(ArrivalSchedule(phases), key)
    pipeline = PipelineBuilder("serving")
    pipeline.read("records", arrivals)
    pipeline.compute(ServeKey(cost_us), inputs={"records": itself}, outputs="unused", name=SERVE)
    options = {"background": True} | options
    run = LocalRun(pipeline, threads=threads, arrivals=arrivals, pace_s=pace_s, **options)
    return run, arrivals


def is_counted(run: LocalRun, arrivals: Arrivals, name: str = SERVE) -> bool:
    """Whether every record was counted once."""
    dice = Random(0)
    expected = Counter(arrivals.function(n, dice) for n in range(arrivals.schedule.count))
    found = {key: kept["count"] for key, kept in Checkpoint(run.store).scan(name)}
    return found == dict(expected)
