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
LOADED = "loaded.json"
OUTCOME = "outcome.json"

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
    slowest: list[tuple[int, float]] = []
    """(second of the input, how long its slowest answer took)."""
    clock_began: float | None = None
    """When the timed part began to arrive, in seconds since 1970."""
    verdict: dict[str, Any] | None = None
    """What the validator found; None if it did not run."""
    right: bool | None = None
    held: bool | None = None
    """Whether every answer was right and in time; None if that was not looked at."""


def slowest_by_second(answers: pa.Table) -> list[tuple[int, float]]:
    """How long the slowest answer to each timed second took."""
    timed = answers.filter(pc.is_valid(answers[TOOK])).group_by("time").aggregate([(TOOK, "max")])
    found = zip(timed["time"].to_pylist(), timed[f"{TOOK}_max"].to_pylist(), strict=True)
    return sorted((second, round(took, 3)) for second, took in found)


class LoadedRoads(msgspec.Struct, frozen=True):
    """What a run has loaded before it was left: a later one goes on with the timed part."""

    digest: str
    from_minute: int
    lines_per_s: float | None


def load(
    directory: Path, index: Index, output: Path, settings: RoadSettings, *, spark: Any, say: Say
) -> LoadedRoads:
    """Processes what lies before the timed part, and leaves the rest to `measure`."""
    if settings.from_minute is None:
        raise HeadraceError("there is nothing to load apart from the rest without --from-minute")
    _refuse_used(output, (ANSWERS, CHECKPOINT))
    watch = _run(directory, index, output, settings, spark=spark, say=say, load_only=True)
    loaded = LoadedRoads(index.digest, settings.from_minute, watch.loading_rate())
    (output / LOADED).write_bytes(msgspec.json.encode(loaded))
    return loaded


def measure(
    directory: Path, index: Index, output: Path, settings: RoadSettings, *, spark: Any, say: Say
) -> RoadOutcome:
    """Runs the input of a directory through the pipeline, and looks at the answers.

    What `load` has loaded into the same output is not processed again.
    """
    loaded = _loaded(output, index, settings)
    began, load_before = time.time(), os.getloadavg()
    watch = _run(directory, index, output, settings, spark=spark, say=say)
    run_s, load_after = time.time() - began, os.getloadavg()
    answers = read_answers(output / ANSWERS, watch.source.arrival)
    outcome = RoadOutcome(
        roads=index.roads,
        input=index.about,
        seconds=index.seconds,
        lines=sum(index.lines),
        settings=settings,
        run_s=round(run_s, 1),
        loading_lines_per_s=loaded.lines_per_s if loaded else watch.loading_rate(),
        answers=_counts(answers),
        timed=latencies(answers),
        cores=os.cpu_count() or 1,
        load_before=list(load_before),
        load_after=list(load_after),
        slowest=slowest_by_second(answers),
        clock_began=watch.source.began,
    )
    (output / OUTCOME).write_bytes(msgspec.json.encode(outcome))
    if settings.validate:
        _derive(outcome, directory, answers, say)
    return outcome


def validate_again(directory: Path, output: Path, say: Say) -> RoadOutcome:
    """Validates the answers of a run that has ended, and completes what it measured."""
    try:
        outcome = msgspec.json.decode((output / OUTCOME).read_bytes(), type=RoadOutcome)
    except FileNotFoundError:
        raise HeadraceError(
            f"{output} has no run that has ended: run without validation first"
        ) from None
    settings = outcome.settings
    source = RoadFiles(directory, paced_from=_paced_from(settings), speed=settings.speed)
    source.began = outcome.clock_began
    _derive(outcome, directory, read_answers(output / ANSWERS, source.arrival), say)
    return outcome


def _run(
    directory: Path,
    index: Index,
    output: Path,
    settings: RoadSettings,
    *,
    spark: Any,
    say: Say,
    load_only: bool = False,
) -> _Watch:
    paced_from = _paced_from(settings)
    if paced_from is not None and paced_from >= index.seconds:
        raise HeadraceError(
            f"the input ends after {index.seconds / 60:g} minutes: --from-minute must be less"
        )
    source = RoadFiles(directory, paced_from=paced_from, speed=settings.speed, waits=load_only)
    sink = sinks.parquet(output / ANSWERS)
    pipeline = linear_road(source, read_history(directory), sink)
    watch = _Watch(source, index, say)
    pipeline.run(
        checkpoint=output / CHECKPOINT,
        spark=spark,
        until="caught_up" if load_only else "end",
        slots=settings.slots,
        epoch_target=settings.epoch_target,
        on_epoch=watch.on_epoch,
    )
    return watch


def _paced_from(settings: RoadSettings) -> int | None:
    return None if settings.from_minute is None else settings.from_minute * 60


def _loaded(output: Path, index: Index, settings: RoadSettings) -> LoadedRoads | None:
    """What an earlier run has loaded; the next run starts anew."""
    try:
        loaded = msgspec.json.decode((output / LOADED).read_bytes(), type=LoadedRoads)
    except FileNotFoundError:
        _refuse_used(output, (ANSWERS, CHECKPOINT))
        return None
    if (loaded.digest, loaded.from_minute) != (index.digest, settings.from_minute):
        raise HeadraceError(
            f"{output} was loaded with other input, or up to minute {loaded.from_minute}: give the "
            "same options, or another --output"
        )
    (output / LOADED).unlink()
    return loaded


def _refuse_used(output: Path, parts: tuple[str, ...]) -> None:
    for part in parts:
        if (output / part).exists():
            raise HeadraceError(f"{output / part} is there already: choose another --output")


def _derive(outcome: RoadOutcome, directory: Path, answers: pa.Table, say: Say) -> None:
    say("The validator derives all answers again ...")
    _judge(outcome, validate(asked_of(directory), given_answers(answers)))


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
        self.source, self._index, self._say = source, index, say
        self._began = time.time()
        self._loaded: tuple[int, float] | None = None
        self._told = 0.0

    def on_epoch(self, progress: EpochProgress) -> None:
        """Notes when loading ended, and says where the run is every ten seconds."""
        now = time.time()
        if self.source.began is None:
            self._loaded = (progress.records_total, now - self._began)
        if now - self._told > 10:
            self._told = now
            what = "loading" if self.source.began is None else "paced"
            if self.source.paced_from is None:
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


def find_largest(most: int, held: Callable[[int], bool], first: int = 1) -> int:
    """The largest L up to `most` that is held: doubles until one is not, then halves the gap."""
    low, high = 0, first
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
    for part in (LOADED, OUTCOME):
        (output / part).unlink(missing_ok=True)
