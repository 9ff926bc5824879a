"""Floe's figures 8a and 8b: several workers of twelve fail at once.

Twelve executors do not fit on a small machine. State lives in Spark's Python workers, so these are
killed here, with SIGKILL, while an epoch runs: Spark starts new ones, and their slots are opened
from segments again.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import psutil

from headrace import Checkpoint, EpochProgress, Pipeline, sources
from headrace.bench.elastic.emulated import COMPUTATION, Serve
from headrace.bench.elastic.steady import wait_until
from headrace.bench.frame.rounds import Say
from headrace.bench.frame.session import local_session
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict

WORKERS = 12
KILLED = (1, 3, 4, 5, 6)
RATE = 240.0
COST_US = 2_000
BETWEEN_S = 6.0
FLAT = 1.0
"""The longest recovery may be twice the shortest one."""


def measure(say: Say) -> Points:
    """Kills 1 to 6 workers, not neighbours. Both figures come from the same run."""
    found: dict[str, list[float]] = {}
    seen: list[tuple[float, float, int]] = []

    def on_epoch(progress: EpochProgress) -> None:
        seen.append((time.monotonic(), progress.seconds, progress.records))

    with (
        tempfile.TemporaryDirectory(
            prefix="headrace-floe-", ignore_cleanup_errors=True
        ) as directory,
        local_session(WORKERS, Path(directory), "failures", failures=8) as spark,
    ):
        p = Pipeline("failures")
        count = int(RATE * 3600)
        p.read("numbers", sources.generate(_key, count=count, rate=RATE, paced=True))
        p.compute(Serve(COST_US), inputs={"numbers": _itself}, name=COMPUTATION, outputs="unused")
        place = str(Path(directory) / "checkpoint")
        with p.start(
            checkpoint=place, spark=spark, slots=WORKERS, on_epoch=on_epoch, epoch_target="1s",
            straggler_after=None,
        ) as job:  # fmt: skip
            wait_until(lambda: len(seen) >= 8, "warm epochs")
            usual = median(seconds for _, seconds, _ in seen[3:])
            for _ in range(2):
                for killed in KILLED:
                    time.sleep(BETWEEN_S / 2)
                    found.setdefault(str(killed), []).append(_kill(killed, seen))
            job.stop()
            job.wait()
            total = job._follower.ledger.counters.records
        counted = sum(kept["count"] for _, kept in Checkpoint(place).scan(COMPUTATION))
    points: Points = {
        "workers": WORKERS,
        "epoch_ms_usual": round(usual * 1e3, 1),
        "recovery_ms": {killed: round(median(took), 1) for killed, took in found.items()},
        "rounds": found,
        "right": counted == total > 0,
    }
    say(f"recovery, ms, by workers killed: {points['recovery_ms']}")
    return points


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """The number of failures does not matter."""
    took = [points["recovery_ms"][str(n)] for n in KILLED if n >= 3]
    return Judgement().flat("recovery, ms, of 3 to 6 failures", took, FLAT).verdict()


def judge_one(points: Mapping[str, Any]) -> ShapeVerdict:
    """Many failures take hardly longer than one."""
    one, six = (points["recovery_ms"][str(n)] for n in (1, 6))
    return Judgement().at_most("six failures / one, in time,", six / one, 1 + FLAT).verdict()


def _kill(count: int, seen: list[tuple[float, float, int]]) -> float:
    """Kills every other worker; milliseconds until the next epoch is committed."""
    workers = _workers()[::2][:count]
    at = time.monotonic()
    before = len(seen)
    for pid in workers:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_until(lambda: len(seen) > before, "an epoch after the kill")
    return round((seen[before][0] - at) * 1e3, 1)


def _workers() -> list[int]:
    """The Python workers: children of the daemon of this process's Spark."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if any("pyspark.daemon" in word for word in child.cmdline()):
                found += [worker.pid for worker in child.children()]
        except psutil.Error:
            continue
    return sorted(set(found))


def _key(n: int, dice: Random) -> int:
    return n % 5_000


def _itself(value: Any) -> Any:
    return value


_HOW = (
    f"on Spark, {WORKERS} slots with a Python worker each, of which 1 to 6 are killed at once; the "
    f"time until the next epoch is committed; emulated service time ({COST_US} us)"
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
