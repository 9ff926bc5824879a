"""MillWheel's figure 11: a straggler must not hold up its senders.

A chain of five computations. In one slot of the third, 10,000 records of one key arrive at once,
each of which takes a millisecond. The other keys go on at a slow pace.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np

from headrace.bench.frame.rounds import Say
from headrace.bench.papers.local.arrivals import Arrivals, ArrivalSchedule, Phase
from headrace.bench.papers.local.engine import LocalRun
from headrace.bench.papers.local.serving import EMULATED, balanced, itself
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder

DEPTH = 5
SLOW_LEVEL = 3
SLOTS = 4
HOT = 10_000
COST_US = 1_000
RATE = 40
BEFORE_S, AFTER_S = 5.0, 20.0
STRAGGLER_S = 1.0
TARGET_S = 0.5
LOOK_S = 1.0
"""Marks of slow tasks are written, and looked at, now and then."""


class RelayRecord(Computation):
    """Counts and passes on; at one level a record takes a while."""

    count: int = state(0)

    def __init__(self, cost_us: int) -> None:
        self.cost_us = cost_us

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Passes one record on."""
        if self.cost_us:
            time.sleep(self.cost_us / 1e6)
        self.count += 1
        ctx.produce(record.value)


def measure(say: Say) -> Points:
    """The time between two commits, and the latency of the other keys, around the burst."""
    keys = balanced(SLOTS)
    first = int(BEFORE_S * RATE)
    hot = keys(0, Random(0))

    def key(n: int, dice: Random) -> int:
        # Only the first slot has the hot key; the others stay in the slots beside it.
        if first <= n < first + HOT:
            return hot
        return keys(n * SLOTS + 1 + n % (SLOTS - 1), dice)

    phases = [Phase(BEFORE_S, RATE), Phase(0.01, HOT / 0.01), Phase(AFTER_S, RATE)]
    arrivals = Arrivals(ArrivalSchedule(phases), key)
    pipeline = PipelineBuilder("straggler")
    pipeline.read("level-0", arrivals)
    for level in range(1, DEPTH + 1):
        pipeline.compute(
            RelayRecord(COST_US if level == SLOW_LEVEL else 0),
            inputs={f"level-{level - 1}": itself}, outputs=f"level-{level}", name=f"level {level}",
        )  # fmt: skip
    run = LocalRun(
        pipeline, threads=SLOTS, arrivals=arrivals, slots=SLOTS, straggler_s=STRAGGLER_S,
        epoch_target_s=TARGET_S, epoch_records=2 * HOT, background=True,
    )  # fmt: skip
    ran = run.read(arrivals.schedule.count)
    counted = [
        sum(kept["count"] for _, kept in Checkpoint(run.store).scan(f"level {level}"))
        for level in range(1, DEPTH + 1)
    ]
    run.close()
    latency = ran.latencies_ms(arrivals)
    others = np.concatenate([latency[:first], latency[first + HOT :]])
    commits = [seen.at_s for seen in ran.epochs]
    gaps = np.diff(commits) if len(commits) > 1 else np.zeros(1)
    usual = float(np.median([seen.seconds for seen in ran.epochs if seen.at_s < BEFORE_S]))
    found = {
        "emulated": EMULATED,
        "burst_s": HOT * COST_US / 1e6,
        "budget_s": round(STRAGGLER_S + usual, 3),
        "target_s": TARGET_S + usual,
        "epoch_s_max": round(max(seen.seconds for seen in ran.epochs), 3),
        "between_commits_s_max": round(float(gaps.max()), 3),
        "latency_others_ms_p50": round(float(np.median(others)), 1),
        "latency_others_ms_max": round(float(others.max()), 1),
        "carried_max": max(seen.carried for seen in ran.epochs),
        "notices": [[at, text] for at, text in ran.told("overload")],
        "right": counted == [arrivals.schedule.count] * DEPTH,
    }
    say(f"{ {k: v for k, v in found.items() if k != 'notices'} }")
    return found


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """Other keys commit within the budget and one epoch more."""
    limit = points["budget_s"] + points["target_s"] + LOOK_S
    shape = Judgement().at_most(
        "the longest time between two commits, s, against the budget, one epoch and a look,",
        points["between_commits_s_max"],
        round(limit, 2),
    )
    shape.below(
        "that time, s", points["between_commits_s_max"], "the straggler's work", points["burst_s"]
    )
    return shape.at_least(
        "records that waited for a later epoch", points["carried_max"], 1
    ).verdict()


MILLWHEEL_11 = PaperRow(
    "millwheel-11",
    "stragglers are checkpointed after 1 s, so that senders are free",
    f"without Spark: {DEPTH} levels, {HOT:,} records of one key that take 1 ms each; {EMULATED}",
    "other keys commit within the budget plus one epoch",
    measure,
    judge,
)
