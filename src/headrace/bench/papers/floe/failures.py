"""Floe's figures 8a and 8b: several executors of twelve fail at once.

Twelve small executors of a standalone cluster on this machine, each with one slot and a replica of
another. Some of them, no neighbours, are killed with SIGKILL while epochs run. The next kill waits
until Spark has started as many new ones, and epochs take as long as before.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from headrace import Checkpoint, EpochProgress, Pipeline, sources
from headrace.bench.cluster import Cluster, cluster
from headrace.bench.elastic.emulated import COMPUTATION, Serve
from headrace.bench.elastic.steady import wait_until
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict

EXECUTORS = 12
REPLICAS = 1
KILLED = (1, 3, 4, 5, 6)
ROUNDS = 2
RATE = 240.0
COST_US = 2_000
CALM = 3
"""So many epochs in a row take at most twice as long as usual before the next kill."""
FLAT = 1.0
"""The longest recovery may be twice the shortest one."""
_TRIES = 32
"""How often a task may be lost: Spark counts each kill as a failure of the task that ran there."""


def measure(say: Say) -> Points:
    """Kills 1 to 6 executors, not neighbours. Both figures come from the same run."""
    found: dict[str, list[float]] = {}
    seen: list[tuple[float, float]] = []

    def on_epoch(progress: EpochProgress) -> None:
        seen.append((time.monotonic(), progress.seconds))

    with (
        tempfile.TemporaryDirectory(
            prefix="headrace-floe-", ignore_cleanup_errors=True
        ) as directory,
        cluster(Path(directory) / "cluster", EXECUTORS) as made,
        _session(made) as spark,
    ):
        made.ready()
        p = Pipeline("failures")
        count = int(RATE * 3600)
        p.read("numbers", sources.generate(_key, count=count, rate=RATE, paced=True))
        p.compute(Serve(COST_US), inputs={"numbers": _itself}, name=COMPUTATION, outputs="unused")
        place = str(Path(directory) / "checkpoint")
        with p.start(
            checkpoint=place, spark=spark, slots=EXECUTORS, on_epoch=on_epoch, epoch_target="1s",
            straggler_after=None, replicas=REPLICAS, balance="off",
        ) as job:  # fmt: skip
            wait_until(lambda: len(seen) >= 12, "warm epochs")
            usual = median(seconds for _, seconds in seen[6:])
            for _ in range(ROUNDS):
                for killed in KILLED:
                    found.setdefault(str(killed), []).append(_kill(made, killed, seen))
                    say(f"{killed} of {EXECUTORS} killed: {found[str(killed)][-1]:,.0f} ms")
                    _calm(made, usual, seen)
            job.stop()
            job.wait()
            total = job._follower.ledger.counters.records
        counted = sum(kept["count"] for _, kept in Checkpoint(place).scan(COMPUTATION))
    return {
        "executors": EXECUTORS,
        "epoch_ms_usual": round(usual * 1e3, 1),
        "recovery_ms": {killed: round(median(took), 1) for killed, took in found.items()},
        "rounds": found,
        "right": counted == total > 0,
    }


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """The number of failures does not matter."""
    took = [points["recovery_ms"][str(n)] for n in KILLED if n >= 3]
    return Judgement().flat("recovery, ms, of 3 to 6 failures", took, FLAT).verdict()


def judge_one(points: Mapping[str, Any]) -> ShapeVerdict:
    """Many failures take hardly longer than one."""
    one, six = (points["recovery_ms"][str(n)] for n in (1, 6))
    return Judgement().at_most("six failures / one, in time,", six / one, 1 + FLAT).verdict()


@contextmanager
def _session(made: Cluster) -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(made.url).appName("headrace-failures")
    for name, value in made.settings(**{"spark.task.maxFailures": str(_TRIES)}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _kill(made: Cluster, count: int, seen: list[tuple[float, float]]) -> float:
    """Kills every other executor; milliseconds until the next epoch is committed."""
    executors = made.pids()[::2][:count]
    at = time.monotonic()
    before = len(seen)
    for pid in executors:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(seen) > before, "an epoch after the kill")
    return round((seen[before][0] - at) * 1e3, 1)


def _calm(made: Cluster, usual: float, seen: list[tuple[float, float]]) -> None:
    """Waits until all executors are there again, and epochs take about as long as before."""
    made.ready()
    since = len(seen)

    def calm() -> bool:
        last = seen[since:][-CALM:]
        return len(last) == CALM and all(seconds <= 2 * usual for _, seconds in last)

    wait_until(calm, "epochs as before the kill")


def _key(n: int, dice: Random) -> int:
    return n % 5_000


def _itself(value: Any) -> Any:
    return value


_HOW = (
    f"on a Spark cluster of this machine: {EXECUTORS} executors of 512 MB with a slot each, "
    f"{REPLICAS} replica; 1 to 6 executors are killed at once; the time until the next epoch is "
    f"committed; emulated service time ({COST_US} us)"
)
FLOE_8A = PaperRow(
    "floe-8a",
    "n=12, r=1: 1,200 to 1,500 ms for 3 to 6 simultaneous failures",
    _HOW,
    "flat in the number killed",
    measure,
    judge,
)
FLOE_8B = PaperRow(
    "floe-8b",
    "the latency of a recovery hardly depends on the number of failures",
    _HOW,
    "flat in the number killed",
    measure,
    judge_one,
)
