"""SEEP's figures 12, 13 and 15: recovery and overhead by the checkpoint interval.

Input arrives in epochs. Then the process is lost, and a new one goes on: with everything that was
written (a lost process), or without what was only written (as a power loss may take it). What was
only written is made again from the input.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np

from headrace.bench.frame.rounds import Say
from headrace.bench.interval import CountingFiles
from headrace.bench.papers.local.engine import LocalRun
from headrace.bench.papers.local.serving import EMULATED, SERVE, itself
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.bench.recovery.replaying_intervals import last_epoch_before, lose_written
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.interval.cadence import Cadence
from headrace.sources.generated import generate
from headrace.store.disk import DiskStore
from headrace.system import System

EVERY = (1, 5, 10, 30)
SECONDS = 30
"""Epochs before the loss; each stands for a second of input."""
RECORDS = 400
KEYS = 400
PADDING = 2_000
ROUNDS = 3
PARALLEL_EVERY = (1, 5, 30)
PARALLEL_RECORDS = 60
COST_US = 5_000


class ServePadded(Computation):
    """Counts the records of its key, beside some bytes; too many of these to ride in the log."""

    count: int = state(0)
    padding: bytes = state(b"")

    def __init__(self, cost_us: int) -> None:
        self.cost_us = cost_us

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Serves one record."""
        if self.cost_us:
            time.sleep(self.cost_us / 1e6)
        self.count += 1
        self.padding = Random(self.count).randbytes(PADDING)


def measure_recovery(say: Say) -> Points:
    """Recovery, and what epochs cost, by the interval."""
    found: dict[str, Any] = {}
    right = True
    for every in EVERY:
        laps = [_lap(every, RECORDS, slots=2, cost_us=0) for _ in range(ROUNDS)]
        right = right and all(lap["right"] for lap in laps)
        found[str(every)] = {
            name: round(median(lap[name] for lap in laps), 3)
            for name in ("lost_process_ms", "lost_written_ms", "epoch_ms_p95", "synced_bytes")
        } | {"lost_epochs": laps[0]["lost_epochs"]}
        say(f"a checkpoint every {every} epochs: {found[str(every)]}")
    return {"every": found, "right": right}


def judge_recovery(points: Mapping[str, Any]) -> ShapeVerdict:
    """Two curves of recovery, and less overhead."""
    every = points["every"].values()
    process = [each["lost_process_ms"] for each in every]
    written = [each["lost_written_ms"] for each in every]
    shape = Judgement().at_most(
        "recovery of a lost process, ms, at the longest interval / at the shortest,",
        process[-1] / process[0],
        1.5,
    )
    shape.rises("recovery of what was only written, ms,", written, times=1.5)
    return shape.verdict()


def judge_overhead(points: Mapping[str, Any]) -> ShapeVerdict:
    """Longer intervals cost epochs less."""
    every = points["every"].values()
    shape = Judgement().falls(
        "the 95th percentile of epochs, ms,", [e["epoch_ms_p95"] for e in every]
    )
    return shape.falls("synced bytes per epoch", [e["synced_bytes"] for e in every]).verdict()


def measure_parallel(say: Say) -> Points:
    """Recovery of what was only written, with one slot and with two."""
    found: dict[str, Any] = {}
    right = True
    for every in PARALLEL_EVERY:
        each: dict[str, float] = {}
        for slots in (1, 2):
            lap = _lap(every, PARALLEL_RECORDS, slots=slots, cost_us=COST_US)
            right = right and lap["right"]
            each["serial" if slots == 1 else "parallel"] = lap["lost_written_ms"]
        found[str(every)] = each
        say(f"a checkpoint every {every} epochs: {each}")
    return {"emulated": EMULATED, "every": found, "right": right}


def judge_parallel(points: Mapping[str, Any]) -> ShapeVerdict:
    """Equal where little is lost, parallel ahead where much is."""
    every = list(points["every"].values())
    gained = [each["serial"] - each["parallel"] for each in every]
    scale = every[-1]["serial"]
    shape = Judgement().at_most(
        "what two slots gain or lose at the shortest interval, as a share of the longest recovery,",
        abs(gained[0]) / scale,
        0.1,
    )
    longest = every[-1]["parallel"] / every[-1]["serial"]
    return shape.at_most("parallel / serial at the longest interval", longest, 0.75).verdict()


def _lap(every: int, records: int, *, slots: int, cost_us: int) -> dict[str, Any]:
    """Runs to one epoch before a checkpoint, and recovers in both ways."""
    last = last_epoch_before(SECONDS, every)
    with tempfile.TemporaryDirectory(prefix="headrace-seep-") as directory:
        kept, lost = Path(directory, "kept"), Path(directory, "lost")
        files = CountingFiles()
        run = _open(kept, records, last, every, slots, cost_us, files)
        before = files.counted()["synced_bytes"]
        run.until(lambda: run.driver.ledger.epoch >= last)
        synced = (files.counted()["synced_bytes"] - before) / last
        epochs = [seen.seconds * 1e3 for seen in run.ran.epochs[last // 5 :]]
        run.substrate.close()  # the process is gone; nothing is put in order
        shutil.copytree(kept, lost)
        taken = lose_written(str(lost))
        found: dict[str, Any] = {
            "synced_bytes": round(synced),
            "epoch_ms_p95": float(np.percentile(epochs, 95)),
            "lost_epochs": taken,
            "right": True,
        }
        for name, where in (("lost_process_ms", kept), ("lost_written_ms", lost)):
            began = time.perf_counter()
            again = _open(where, records, last, every, slots, cost_us, CountingFiles())
            again.until(lambda: again.driver.ledger.epoch > last)  # noqa: B023
            found[name] = round((time.perf_counter() - began) * 1e3, 1)
            again.close()
            counted = Checkpoint(DiskStore(where)).scan(SERVE)
            total = sum(fields["count"] for _, fields in counted)
            found["right"] = found["right"] and total == last * records + 1
        return found


def _open(
    where: Path,
    records: int,
    epochs: int,
    every: int,
    slots: int,
    cost_us: int,
    files: CountingFiles,
) -> LocalRun:
    """A driver over the input of all epochs before the loss, and one record after it."""
    pipeline = PipelineBuilder("intervals")
    pipeline.read("numbers", generate(_key, count=epochs * records + 1, rate=1000.0))
    pipeline.compute(ServePadded(cost_us), inputs={"numbers": itself}, outputs="unused", name=SERVE)
    return LocalRun(
        pipeline, threads=slots, store=DiskStore(where, System(files)), slots=slots,
        epoch_records=records, checkpoint_every=Cadence(every), background=True,
    )  # fmt: skip


def _key(n: int, dice: Random) -> int:
    return n % KEYS


_HOW = (
    f"without Spark: {RECORDS:,} records in an epoch, {SECONDS} epochs, then the process is gone; "
    f"a checkpoint every 1 to 30 epochs; medians of {ROUNDS} rounds"
)

SEEP_12 = PaperRow(
    "seep-12",
    "recovery time rises with the checkpoint interval",
    _HOW,
    "two curves: recovery from a lost process does not rise with n, recovery of what was only "
    "written does",
    measure_recovery,
    judge_recovery,
)
SEEP_15 = PaperRow(
    "seep-15",
    "the 95th percentile of latency falls with the checkpoint interval",
    _HOW,
    "overhead falls",
    measure_recovery,
    judge_overhead,
)
SEEP_13 = PaperRow(
    "seep-13",
    "serial against two-way recovery: equal at short checkpoint intervals, parallel wins at long",
    f"without Spark, one slot and two; {EMULATED} ({COST_US} us)",
    "equal at short intervals, parallel wins at long ones",
    measure_parallel,
    judge_parallel,
)
