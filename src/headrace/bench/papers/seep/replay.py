"""SEEP's figure 11: recovery by state management beside source replay, by rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.bench.frame.rounds import Say
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.bench.recovery.replaying import BY_REPLAY, BY_STATE, Replaying, run_replaying

RATES = (1_000, 10_000, 40_000)
SECONDS = 15


def measure(say: Say) -> Points:
    """Both ways at every rate, on Spark."""
    workload = Replaying(rates=RATES, seconds=SECONDS, slots=(2,), intervals=())
    found = run_replaying(workload, rounds=1, say=say)
    took = {
        name: [found["systems"][f"{name} at {rate}/s, 2 slots"]["recovery_ms"] for rate in RATES]
        for name in (BY_STATE, BY_REPLAY)
    }
    return {"rates": list(RATES), "recovery_ms": took, "right": found["results_equal"]}


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """State management is ahead, and more so at higher rates."""
    ours, replay = (points["recovery_ms"][name] for name in (BY_STATE, BY_REPLAY))
    shape = Judgement().below("by state at the highest rate, ms", ours[-1], "by replay", replay[-1])
    gap = [theirs - mine for mine, theirs in zip(ours, replay)]
    return shape.rises("what replay takes longer, ms, by rate,", gap).verdict()


SEEP_11 = PaperRow(
    "seep-11",
    "recovery time: state management < source replay < upstream backup",
    f"on Spark: {SECONDS} s of input at 1,000 to 40,000 records/s, then all workers are killed; "
    "upstream backup has no counterpart on Spark",
    "same order, the gap grows with the rate",
    measure,
    judge,
)
