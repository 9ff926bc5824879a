"""Clonos' figure 6: how long until latency is as before, after kills of executors.

Nexmark's joins are the paper's queries. Here the job of `headrace bench recovery`, a count per key,
is killed; a cold restart of the driver and Spark's own streaming are beside it.
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
TIMES = 8.0
ALIKE = 2.0


def measure(say: Say) -> Points:
    """One kill, three kills in both ways, a cold restart, and native Spark."""
    workload = Recovery(executors=3, warm_files=10)
    names = (OURS, STAGGERED, AT_ONCE, COLD, NATIVE)
    found = run_recovery(workload, names, rounds=1, say=say)
    return {
        "recovery_ms": {name: found["systems"][name]["recovery_ms"] for name in names},
        "latency_ms_before": {name: found["systems"][name]["latency_ms_before"] for name in names},
        "right": found["results_equal"],
    }


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """Eight times sooner than a cold restart; kills in a row and at once are alike."""
    took = points["recovery_ms"]

    def ratio(one: str, other: str) -> float | None:
        first, second = took.get(one), took.get(other)
        return first / second if first and second else None

    shape = Judgement().at_least("a cold restart / one kill, in time,", ratio(COLD, OURS), TIMES)
    shape.at_most("one kill / the same in native Spark", ratio(OURS, NATIVE), 1.0)
    apart = ratio(STAGGERED, AT_ONCE)
    both = max(apart, 1 / apart) if apart else None
    return shape.at_most(
        "staggered and concurrent kills, one over the other,", both, ALIKE
    ).verdict()


CLONOS_6 = PaperRow(
    "clonos-6",
    "q3: 10 s against 87 s, q8: 3 s against 72 s until latency is within 10 %; three kills, "
    "staggered or at once, are alike",
    "on a Spark cluster of this machine with 3 executors, a keyed count; kills with SIGKILL",
    "at least 8 x better than a cold restart; staggered and concurrent alike",
    measure,
    judge,
)
