"""MillWheel's figure 15: how far the watermark of each of three stages is behind, polled."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

from headrace import Computation, EpochProgress, Pipeline, sources, state
from headrace.bench.elastic.steady import wait_until
from headrace.bench.frame.rounds import Say
from headrace.bench.frame.session import local_session
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict

RATE = 200.0
STAGES = 3
POLLS = 20
POLL_S = 1.0
WARM = 8


class CountOn(Computation):
    """Counts, and passes on."""

    count: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        """Passes one record on."""
        self.count += 1
        ctx.produce(record.value)


def measure(say: Say) -> Points:
    """The lag of each stage's watermark, and how long epochs of one and of three stages take."""
    with (
        tempfile.TemporaryDirectory(
            prefix="headrace-lag-", ignore_cleanup_errors=True
        ) as directory,
        local_session(2, Path(directory), "watermarks") as spark,
    ):
        one, one_ms = _run(spark, Path(directory), 1)
        three, three_ms = _run(spark, Path(directory), STAGES)
    lags = [round(mean(each), 1) for each in three]
    say(f"lags of three stages: {lags} ms; epochs: {one_ms} ms with one, {three_ms} ms with three")
    return {
        "lag_ms": lags,
        "lag_ms_one_stage": round(mean(one[0]), 1),
        "epoch_ms_one_stage": one_ms,
        "epoch_ms_three_stages": three_ms,
        "stage_ms": round(max(0.0, three_ms - one_ms) / (STAGES - 1), 1),
    }


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """A further stage adds at most one stage of Spark."""
    first, *rest = points["lag_ms"]
    shape = Judgement()
    before = first
    for number, lag in enumerate(rest, 2):
        # Lags are polled while epochs run, so they are known to a tenth of an epoch at best.
        most = points["stage_ms"] + 0.1 * points["epoch_ms_three_stages"]
        shape.at_most(f"what stage {number} adds to the lag, ms,", round(lag - before, 1), most)
        before = lag
    return shape.verdict()


def _run(spark: Any, directory: Path, stages: int) -> tuple[list[list[float]], float]:
    """The lags of each stage, in milliseconds, and the median epoch."""
    seen: list[float] = []

    def on_epoch(progress: EpochProgress) -> None:
        seen.append(progress.seconds * 1e3)

    p = Pipeline("lag")
    p.read("stage 0", sources.generate(_number, rate=RATE, paced=True))
    for number in range(1, stages + 1):
        p.compute(
            CountOn, inputs={f"stage {number - 1}": _key}, outputs=f"stage {number}",
            name=f"count {number}",
        )  # fmt: skip
    lags: list[list[float]] = [[] for _ in range(stages)]
    with p.start(
        checkpoint=str(directory / f"stages-{stages}"), spark=spark, slots=2, on_epoch=on_epoch
    ) as job:
        wait_until(lambda: len(seen) >= WARM, "warm epochs")
        for _ in range(POLLS):
            time.sleep(POLL_S)
            now, ins = time.time() * 1e3, dict(job._follower.ledger.ins)
            for number in range(stages):
                lags[number].append(now - ins[f"count {number + 1}"] / 1e3)
        job.stop()
    return lags, round(median(seen[WARM:]), 1)


def _number(n: int, dice: Random) -> int:
    return n


def _key(number: int) -> int:
    return number % 500


MILLWHEEL_15 = PaperRow(
    "millwheel-15",
    "three stages, watermark lag polled each second: 1795, 1954, 2081 ms",
    f"on Spark with two cores: three levels at {RATE:g} records/s, {POLLS} polls",
    "each further stage adds at most one Spark stage",
    measure,
    judge,
)
