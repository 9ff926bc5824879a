"""SEEP's figures 6 and 7: Linear Road under a load that rises, with the scaler on.

The pipeline, its input and its validator are those of `headrace linear-road`. A report has an
emulated service time where tolls are made, so that slots are the unit of capacity. The roads are
less busy than the rules ask for, and time passes faster.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import sinks
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.local.engine import LocalRun, percentiles
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.model.context import TableContext
from headrace.plan.decisions.next_step import Finish
from headrace.plan.elastic.settings import EVEN, Scale
from headrace.workloads.linear_road.given import TOOK, asked_of, given_answers, read_answers
from headrace.workloads.linear_road.input_files import read_history, write_traffic
from headrace.workloads.linear_road.pipeline import linear_road
from headrace.workloads.linear_road.roads import Roads
from headrace.workloads.linear_road.source import LEAD_S, RoadFiles
from headrace.workloads.linear_road.traffic import Traffic
from headrace.workloads.linear_road.validator import LIMIT_S, validate

TRAFFIC = Traffic(
    roads=8, minutes=2, first_rate=4, last_rate=75, segments=(40, 50), incidents_per_hour=60
)
SPEED = 2.0
"""Two minutes of traffic arrive in one."""
COST_US = 5_000
MAX_SLOTS = 12
TOLLS, ACCOUNTS = "Roads", "Accounts"
SETTLES_S = 8.0
"""After another number of slots, latency is as before within this time."""
FOLLOWS_S = 3.0


class SlowRoads(Roads):
    """Tolls of a road; each report takes some microseconds, asleep."""

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Serves reports."""
        time.sleep(table.num_rows * COST_US / 1e6)
        super().process_table(table, ctx)


def measure(say: Say) -> Points:
    """Input, output, slots and latency over time; all answers are validated."""
    with tempfile.TemporaryDirectory(prefix="headrace-roads-") as directory:
        place = Path(directory)
        index = write_traffic(place / "in", TRAFFIC)
        source = RoadFiles(place / "in", paced_from=0, speed=SPEED)
        pipeline = linear_road(
            source, read_history(place / "in"), sinks.parquet(place / "out"), roads=SlowRoads
        )
        run = LocalRun(
            pipeline, threads=MAX_SLOTS, slots=1, max_slots=MAX_SLOTS, balance=EVEN,
            scale=Scale(every=2, cooldown="4s", drain="5s"), epoch_target_s=0.5, background=True,
            until="end",
        )  # fmt: skip
        began = time.time()
        run.ran.elapsed = lambda: time.time() - (source.began or began + LEAD_S)
        ran = run.read(sum(index.lines))
        while not isinstance(run.driver.step(), Finish):  # the last second is complete at the end
            pass
        run.close()
        answers = read_answers(place / "out", source.arrival)
        verdict = validate(asked_of(place / "in"), given_answers(answers))
        took = answers[TOOK].to_numpy()
        at = answers["time"].to_numpy() / SPEED
        worst = [float(took[at.astype(int) == s].max(initial=0.0)) for s in range(int(at.max()))]
    points: Points = {
        "epochs": [
            [round(e.at_s, 2), e.records, e.slots[TOLLS], e.slots[ACCOUNTS]] for e in ran.epochs
        ],
        "input_per_s": [sum(index.lines[s : s + int(SPEED)]) for s in range(0, index.seconds, 2)],
        "slowest_answer_s": [round(each, 3) for each in worst],
        "latency_ms": percentiles(took * 1e3) | {"p100": round(float(took.max()) * 1e3, 1)},
        "rescales": [[at, text] for at, text in ran.told("scaler")],
        "behind_s": round(max(0.0, ran.epochs[-1].at_s - index.seconds / SPEED), 2),
        "checked": sum(verdict.checked.values()),
        "right": verdict.right,
    }
    say(f"{points['checked']:,} answers: {points['latency_ms']}; {points['rescales']}")
    return points


def judge_throughput(points: Mapping[str, Any]) -> ShapeVerdict:
    """Output follows the input, and the toll calculator grows most."""
    shape = Judgement().at_most("seconds behind at the end", points["behind_s"], FOLLOWS_S)
    tolls = max(slots for _, _, slots, _ in points["epochs"])
    accounts = max(slots for _, _, _, slots in points["epochs"])
    shape.at_least("slots of the toll calculator at most", tolls, 3)
    return shape.below(f"slots of {ACCOUNTS}", accounts, f"those of {TOLLS}", tolls).verdict()


def judge_latency(points: Mapping[str, Any]) -> ShapeVerdict:
    """All answers in time; the slow ones come after another number of slots."""
    took = points["latency_ms"]
    shape = Judgement().below("the slowest answer, ms", took["p100"], "the limit", LIMIT_S * 1e3)
    slowest = points["slowest_answer_s"]
    high = 2 * float(np.median(slowest)) if slowest else 0.0
    peaks = [second for second, worst in enumerate(slowest) if worst > high]
    changes = [at for at, _ in points["rescales"]]
    alone = [p for p in peaks if not any(at - SETTLES_S <= p <= at + SETTLES_S for at in changes)]
    return shape.at_most(
        f"seconds with a peak (above {high:.2f} s) far from any rescale, of {len(peaks)},",
        len(alone),
        0,
    ).verdict()


_HOW = (
    f"without Spark: L = {TRAFFIC.roads}, {TRAFFIC.first_rate} to {TRAFFIC.last_rate} reports/s "
    f"and road, {TRAFFIC.minutes} minutes at {SPEED:g} x their pace, one slot, the scaler on; "
    f"emulated: each report sleeps where tolls are made ({COST_US} us); every answer validated"
)
SEEP_6 = PaperRow(
    "seep-6",
    "Linear Road L=350 on 50 VMs: throughput follows the input from 12,000 to 600,000 tuples/s",
    _HOW,
    "throughput follows input; toll slots grow most",
    measure,
    judge_throughput,
)
SEEP_7 = PaperRow(
    "seep-7",
    "Linear Road L=350: p50 153, p95 700, p99 1,459 ms, with peaks of 4 s after scale-outs",
    _HOW,
    "all below 5 s; peaks only at rescales",
    measure,
    judge_latency,
)
