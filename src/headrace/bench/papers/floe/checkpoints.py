"""Floe's figure 7: how large a checkpoint is beside the state, by the interval."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import msgspec
import numpy as np

from headrace.bench.frame.rounds import Say
from headrace.bench.papers.local.engine import LocalRun
from headrace.bench.papers.local.serving import SERVE, ServeKey, itself
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.limits import LIMITS
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.interval.cadence import Cadence
from headrace.sources.generated import generate
from headrace.store.disk import DiskStore
from headrace.system import System

INTERVALS_S = (2, 5, 10, 20, 60)
WORDS = 20_000
RATE = 500
"""Words per second; an epoch has the words of a second."""
CHECKPOINTS = 3
SMALL = 0.1
NO_RIDERS = msgspec.structs.replace(LIMITS, ride_bytes_max=0)
"""Small changes ride in the log and are durable at once. Here each one waits for a checkpoint."""


def measure(say: Say) -> Points:
    """Bytes of a checkpoint over the bytes of the state."""
    found: dict[str, Any] = {}
    for seconds in INTERVALS_S:
        found[str(seconds)] = each = _run(seconds)
        say(f"a checkpoint every {seconds} s: {each}")
    return {"intervals_s": found}


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """Small at two seconds, and it rises."""
    shares = [each["share"] for each in points["intervals_s"].values()]
    shape = Judgement().at_most("a checkpoint at 2 s, as a share of the state,", shares[0], SMALL)
    return shape.rises("that share, by the interval,", shares, times=2).verdict()


def _run(every: int) -> dict[str, float]:
    """All words occur once at first. Then they come by Zipf's law, as words of a text do."""
    pipeline = PipelineBuilder("words")
    warm = every * -(-WORDS // RATE // every)
    count = RATE * (warm + every * CHECKPOINTS + 1)
    pipeline.read("words", generate(_words(), count=count, rate=1000.0))
    pipeline.compute(ServeKey(0), inputs={"words": itself}, outputs="unused", name=SERVE)
    with tempfile.TemporaryDirectory(prefix="headrace-words-") as directory:
        run = LocalRun(
            pipeline, threads=2, slots=2, epoch_records=RATE,
            store=DiskStore(Path(directory), System(limits=NO_RIDERS)),
            checkpoint_every=Cadence(every), until=None,
        )  # fmt: skip
        run.until(lambda: run.driver.ledger.counters.records >= count - 1)
        slots = run.driver.ledger.slots[SERVE].values()
        whole = max(
            sum(entry.bytes for slot in slots for entry in slot.entries if entry.bottom),
            sum(max((entry.bytes for entry in slot.entries), default=0) for slot in slots),
        )
        run.close()
    sizes: dict[int, int] = defaultdict(int)
    for checkpoint in run.ran.checkpoints:
        sizes[checkpoint.epoch] += checkpoint.bytes
    late = [size for epoch, size in sizes.items() if epoch > warm + every]
    took = median(late) if late else 0
    return {
        "checkpoint_bytes": took,
        "state_bytes": whole,
        "checkpoints": len(late),
        "share": round(took / whole, 4) if whole and late else float("nan"),
    }


def _words() -> Callable[[int, Random], str]:
    weights = 1 / np.arange(1, WORDS + 1)
    until = np.cumsum(weights / weights.sum())

    def word(n: int, dice: Random) -> str:
        at = n if n < WORDS else int(np.searchsorted(until, dice.random()))
        return f"word-{at}"

    return word


FLOE_7 = PaperRow(
    "floe-7",
    "at an interval of 2 s a checkpoint is about 7 % of the state",
    f"without Spark: {WORDS:,} words by Zipf's law, {RATE}/s, an epoch per second; intervals of 2 "
    "to 60 s",
    "small at 2 s, rises",
    measure,
    judge,
)
