"""MillWheel's figure 14: 20 to 2,000 CPUs with input in proportion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.bench.frame.rounds import Say
from headrace.bench.papers.local.arrivals import Phase
from headrace.bench.papers.local.engine import percentiles
from headrace.bench.papers.local.serving import EMULATED, balanced, is_counted, serving
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict

SLOTS = (1, 2, 4, 8, 16, 32, 64)
COST_US = 50_000
PACE_S = 1.0
"""An epoch begins every second."""
LOAD = 0.5
SECONDS = 15.0
WARM_UP = 0.25
"""This share of the records is not measured: caches are filled with them."""
FLAT = 0.2


def measure(say: Say) -> Points:
    """The latency of records with each number of slots, at half of what these can serve."""
    found: dict[str, Any] = {}
    right = True
    for slots in SLOTS:
        rate = LOAD * slots * 1e6 / COST_US
        run, arrivals = serving(
            [Phase(SECONDS, rate)],
            balanced(slots),
            cost_us=COST_US,
            threads=slots,
            slots=slots,
            pace_s=PACE_S,
        )
        ran = run.read(arrivals.schedule.count)
        latency = ran.latencies_ms(arrivals)
        right = right and is_counted(run, arrivals)
        run.close()
        found[str(slots)] = {
            "rate": rate,
            **percentiles(latency[int(len(latency) * WARM_UP) :]),
            "epoch_ms_p50": round(1e3 * float(np.median([e.seconds for e in ran.epochs])), 2),
        }
        say(f"{slots} slots, {rate:,.0f} records/s: {found[str(slots)]}")
    return {"emulated": EMULATED, "slots": found, "right": right}


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """The median must not move; the 99th percentile may get worse."""
    every = points["slots"].values()
    shape = Judgement().flat(
        "the median latency, ms, by slots", [e.get("p50") for e in every], FLAT
    )
    tails = [e.get("p99") for e in every]
    return shape.rises("the 99th percentile, as in the paper,", tails).verdict()


MILLWHEEL_14 = PaperRow(
    "millwheel-14",
    "20 to 2,000 CPUs, input in proportion: the median stays flat, the 99th percentile gets worse",
    f"1 to 64 slots at {LOAD:.0%} load, an epoch per second, without Spark; {EMULATED} "
    f"({COST_US} us)",
    f"median flat within {FLAT:.0%}",
    measure,
    judge,
    note="all slots share one interpreter and the cores of one machine, so what an epoch costs "
    "beside the service time grows with the number of slots",
)
