"""Runs Linear Road, times its answers, validates them, and finds the largest L.

The time of an answer runs from the arrival of its cause at the source to the moment its epoch
appears in the output directory. Each kind of answer, and all together, have their percentiles.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace import sinks
from headrace.errors import HeadraceError
from headrace.plan.progress import EpochProgress
from headrace.workloads.linear_road.answers import ALERT, BALANCE, EXPENDITURE, TOLL
from headrace.workloads.linear_road.given import TOOK, asked_of, given_answers, read_answers
from headrace.workloads.linear_road.input_files import Index, read_history
from headrace.workloads.linear_road.pipeline import linear_road
from headrace.workloads.linear_road.source import RoadFiles
from headrace.workloads.linear_road.validator import LIMIT_S, RoadVerdict, validate

NAMES = {TOLL: "toll", ALERT: "alert", BALANCE: "balance", EXPENDITURE: "expenditure"}
PERCENTILES = (50, 95, 99, 99.9, 100)
ANSWERS = "answers"
CHECKPOINT = "checkpoint"

Say = Callable[[str], None]


class RoadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is measured."""

    from_minute: int | None = None
    """From here on input arrives at its own pace; None: all of it as fast as possible."""
    speed: float = 1.0
    """How much faster than real time the pace is."""
    slots: int | None = None
    epoch_target: str = "2s"
    validate: bool = True


class Latency(msgspec.Struct, frozen=True):
    """How long answers took, in seconds."""

    answers: int
    late: int
    percentiles: dict[str, float]


class RoadOutcome(msgspec.Struct, kw_only=True):
    """All that was measured in a run."""

    roads: int
    input: str
    seconds: int
    lines: int
    settings: RoadSettings
    run_s: float
    loading_lines_per_s: float | None
    """How fast the input before the timed part was processed."""
    answers: dict[str, int]
    """Answers in the output, by kind."""
    timed: dict[str, Latency]
    """By kind, and of all."""
    cores: int
    load_before: list[float]
    load_after: list[float]
    verdict: dict[str, Any] | None = None
    """What the validator found; None if it did not run."""
    right: bool | None = None
    held: bool | None = None
    """Whether every answer was right and in time; None if that was not looked at."""


def measure(
    directory: Path, index: Index, output: Path, settings: RoadSettings, *, spark: Any, say: Say
) -> RoadOutcome:
    """Runs the input of a directory through the pipeline, and looks at the answers."""
    for part in (ANSWERS, CHECKPOINT):
        if (output / part).exists():
            raise HeadraceError(f"{output / part} is there already: choose another --output")
    paced_from = None if settings.from_minute is None else settings.from_minute * 60
    if paced_from is not None and paced_from >= index.seconds:
        raise HeadraceError(
            f"the input ends after {index.seconds / 60:g} minutes: --from-minute must be less"
        )
    source = RoadFiles(directory, paced_from=paced_from, speed=settings.speed)
    sink = sinks.parquet(output / ANSWERS)
    pipeline = linear_road(source, read_history(directory), sink)
    watch = _Watch(source, index, say)
    began, load_before = time.time(), os.getloadavg()
    pipeline.run(
        checkpoint=output / CHECKPOINT,
        spark=spark,
        until="end",
        slots=settings.slots,
        epoch_target=settings.epoch_target,
        on_epoch=watch.on_epoch,
    )
    run_s, load_after = time.time() - began, os.getloadavg()
    answers = read_answers(output / ANSWERS, source.arrival)
    outcome = RoadOutcome(
        roads=index.roads,
        input=index.about,
        seconds=index.seconds,
        lines=sum(index.lines),
        settings=settings,
        run_s=round(run_s, 1),
        loading_lines_per_s=watch.loading_rate(),
        answers=_counts(answers),
        timed=latencies(answers),
        cores=os.cpu_count() or 1,
        load_before=list(load_before),
        load_after=list(load_after),
    )
    if settings.validate:
        say("The validator derives all answers again ...")
        _judge(outcome, validate(asked_of(directory), given_answers(answers)))
    return outcome


def _judge(outcome: RoadOutcome, verdict: RoadVerdict) -> None:
    outcome.verdict = msgspec.to_builtins(verdict)
    outcome.right = verdict.right
    if "all" in outcome.timed:
        outcome.held = verdict.right and verdict.in_time


def _counts(answers: pa.Table) -> dict[str, int]:
    counted = pc.value_counts(answers["type"].combine_chunks()).to_pylist()
    return {NAMES[row["values"]]: row["counts"] for row in counted}


def latencies(answers: pa.Table) -> dict[str, Latency]:
    """How long the timed answers took, by kind, and all together."""
    timed = answers.filter(pc.is_valid(answers[TOOK]))
    took, kinds = timed[TOOK].to_numpy(), timed["type"].to_numpy()
    if not len(took):
        return {}
    groups = {"all": took, **{NAMES[k]: took[kinds == k] for k in np.unique(kinds).tolist()}}
    return {
        name: Latency(
            len(some),
            int((some > LIMIT_S).sum()),
            {f"p{p:g}": round(float(np.percentile(some, p)), 3) for p in PERCENTILES},
        )
        for name, some in groups.items()
    }


class _Watch:
    """Follows a run: how fast the first part was loaded, and how far the rest is."""

    def __init__(self, source: RoadFiles, index: Index, say: Say) -> None:
        self._source, self._index, self._say = source, index, say
        self._began = time.time()
        self._loaded: tuple[int, float] | None = None
        self._told = 0.0

    def on_epoch(self, progress: EpochProgress) -> None:
        """Notes when loading ended, and says where the run is every ten seconds."""
        now = time.time()
        if self._source.began is None:
            self._loaded = (progress.records_total, now - self._began)
        if now - self._told > 10:
            self._told = now
            what = "loading" if self._source.began is None else "paced"
            if self._source.paced_from is None:
                what = "running"
            minute = progress.newest / 60e6
            self._say(
                f"  {what}: minute {minute:.1f} of {self._index.seconds / 60:g}, "
                f"{progress.records_total:,} lines, last epoch {progress.records:,} lines in "
                f"{progress.seconds:.2f} s"
            )

    def loading_rate(self) -> float | None:
        """Lines per second while input was processed as fast as possible."""
        if self._loaded is None:
            return None
        lines, seconds = self._loaded
        return round(lines / max(seconds, 0.001))


def find_largest(most: int, held: Callable[[int], bool]) -> int:
    """The largest L up to `most` that is held: doubles until one is not, then halves the gap."""
    low, high = 0, 1
    while high <= most and held(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if held(middle) else (low, middle)
    return low


def clean(output: Path) -> None:
    """Removes answers and checkpoint of a run, when the next is to take its place."""
    for part in (ANSWERS, CHECKPOINT):
        shutil.rmtree(output / part, ignore_errors=True)
