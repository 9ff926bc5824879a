"""Clonos' figure 6: how long until latency is as before, after kills of executors.

The jobs are the paper's, Nexmark's joins q3 and q8. An executor that has a part of the join is
killed; a cold restart of the driver and Spark's own streaming are beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.bench.frame.rounds import Say
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.bench.recovery.kills import Recovery, run_recovery

OURS = "executor-kill"
STAGGERED, AT_ONCE = "executor-kills-staggered", "executor-kills-at-once"
COLD, NATIVE = "driver-cold", "spark-native-executor-kill"
SYSTEMS = {"q3": (OURS, STAGGERED, AT_ONCE, COLD, NATIVE), "q8": (OURS, COLD, NATIVE)}
"""Query -> what is measured. Three kills are measured with one of them, to save time."""
TIMES = 8.0
ALIKE = 2.0


def measure(say: Say) -> Points:
    """One kill, three kills in both ways, a cold restart, and native Spark."""
    took: dict[str, dict[str, float | None]] = {}
    before: dict[str, dict[str, float]] = {}
    right = True
    for query, names in SYSTEMS.items():
        workload = Recovery(executors=3, warm_files=10, query=query)
        say(f"{query}:")
        found = run_recovery(workload, names, rounds=1, say=say)
        systems = found["systems"]
        took[query] = {name: systems[name]["recovery_ms"] for name in names}
        before[query] = {name: systems[name]["latency_ms_before"] for name in names}
        right = right and found["results_equal"]
    return {"recovery_ms": took, "latency_ms_before": before, "right": right}


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """Eight times sooner than a cold restart; kills in a row and at once are alike."""
    shape = Judgement()
    for query in SYSTEMS:
        took = points["recovery_ms"][query]
        cold, native = _ratio(took, COLD, OURS), _ratio(took, OURS, NATIVE)
        shape.at_least(f"{query}: a cold restart / one kill, in time,", cold, TIMES)
        shape.at_most(f"{query}: one kill / the same in native Spark", native, 1.0)
    apart = _ratio(points["recovery_ms"]["q3"], STAGGERED, AT_ONCE)
    both = max(apart, 1 / apart) if apart else None
    return shape.at_most(
        "staggered and concurrent kills, one over the other,", both, ALIKE
    ).verdict()


def _ratio(took: Mapping[str, float | None], one: str, other: str) -> float | None:
    first, second = took.get(one), took.get(other)
    return first / second if first and second else None


CLONOS_6 = PaperRow(
    "clonos-6",
    "q3: 10 s against 87 s, q8: 3 s against 72 s until latency is within 10 %; three kills, "
    "staggered or at once, are alike",
    "on a Spark cluster of this machine with 3 executors: q3 and q8 of Nexmark, three kills with "
    "q3; kills with SIGKILL",
    "at least 8 x better than a cold restart; staggered and concurrent alike",
    measure,
    judge,
)
