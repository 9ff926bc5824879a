"""MillWheel's section 7.2: half a million intervals without loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.bench.elastic.scale import ScaleWorkload, run_scale
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict, slope

INTERVALS = (1_000, 10_000, 100_000, 500_000)
SLOTS = 64


def measure(say: Say) -> Points:
    """What an epoch costs the driver, by the intervals of its ring."""
    found = run_scale(ScaleWorkload(INTERVALS, (SLOTS,), epochs=8, laps=2), say=say)
    sizes = found["sizes"]
    return {
        "intervals": [each["intervals"] for each in sizes],
        "driver_cpu_ms": [each["driver_cpu_ms"] for each in sizes],
        "driver_ms": [each["driver_ms"] for each in sizes],
        "recover_ms": [each["recover_ms"] for each in sizes],
        "right": found["results_equal"],
    }


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """The time grows less than the number of intervals."""
    power = slope(points["intervals"], points["driver_cpu_ms"])
    shape = Judgement().at_most(
        "the power of intervals with which the driver's time grows", power, 0.9
    )
    most = max(points["intervals"])
    return shape.at_least("the largest number of intervals", most, 500_000).verdict()


MILLWHEEL_72 = PaperRow(
    "millwheel-7.2",
    "500,000 intervals of one computation without loss",
    f"the driver alone, without Spark, {SLOTS} slots: 1,000 to 500,000 intervals; time of a "
    "processor for an epoch; every ledger is recovered and compared",
    "driver time per epoch below linear",
    measure,
    judge,
)
