"""`headrace bench recovery --replay`: recovery by state against recovery by source replay (SEEP).

SEEP compares two ways back after a loss. *State management*: open the last checkpoint and go on.
*Source replay*: keep no state, and process the input of the last seconds again. (Its third way,
upstream backup, has no counterpart on Spark: tasks keep no buffers for each other.)

Input arrives at a rate, one file per second; each file is one epoch. Then all Python workers are
killed, and the next file is there. Measured is the time of a run until the results of that file are
committed. Both ways start with new workers in the same Spark session, so starting Spark is not part
of it. Rates are those that this machine has to work for. `replaying_intervals` has the part about
checkpoint intervals.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headrace import Checkpoint, Computation, Pipeline, sources, state
from headrace.bench.frame.bars import Bar, bar_lines
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Say
from headrace.bench.frame.session import local_session
from headrace.bench.ours import PlannedSource
from headrace.bench.recovery.replaying_intervals import last_epoch_before, lose_written, run_until
from headrace.errors import HeadraceError
from headrace.sources import Range, Source

BY_STATE = "state-management"
BY_REPLAY = "source-replay"


@dataclass(frozen=True)
class Replaying:
    """The workload."""

    rates: tuple[int, ...] = (1_000, 10_000, 50_000)
    """Records per second."""
    seconds: int = 30
    """How much input there is before the loss; SEEP's windows have 30 s."""
    keys: int = 10_000
    slots: tuple[int, ...] = (1, 2)
    """Serial and parallel recovery."""
    intervals: tuple[int, ...] = (1, 5, 10, 30)
    """Epochs, which are seconds here, from one checkpoint of state to the next."""
    interval_rate: int = 10_000
    """Records per second where intervals are compared."""


class CountWords(Computation):
    """Counts per key, with a Python call per record."""

    count: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        """Counts one record."""
        self.count += 1


class SecondBySecond(PlannedSource):
    """Parquet files in name order, of which some have arrived; an epoch reads one file.

    A replay finds them all there at once, and reads as much per epoch as it likes.
    """

    def __init__(self, inner: Source, rate: int, seconds: int) -> None:
        super().__init__(inner)
        self._rate, self._arrived = rate, rate * seconds

    def plan(self, split: str, start: int, records: int) -> Range | None:
        return self._inner.plan(split, start, self._rate) if start < self._arrived else None


def run_replaying(
    workload: Replaying, *, rounds: int = 1, say: Say = lambda line: None
) -> dict[str, Any]:
    """Measures both ways at every rate, with every number of slots, in turns; returns JSON."""
    if rounds < 1:
        raise HeadraceError(f"a benchmark needs at least 1 round, not {rounds}")
    took: dict[str, list[float]] = {}
    equal = True
    with tempfile.TemporaryDirectory(
        prefix="headrace-replaying-", ignore_cleanup_errors=True
    ) as directory:
        rates = {*workload.rates, *([workload.interval_rate] if workload.intervals else [])}
        inputs = {rate: _write_input(workload, rate, Path(directory)) for rate in sorted(rates)}
        with local_session(max(workload.slots), Path(directory), "replaying") as spark:
            for number in range(rounds):
                for rate, slots in _cases(workload):
                    say(f"round {number + 1}: {rate:,} records per second, {slots} slots")
                    where = Path(directory) / f"{number}-{rate}-{slots}"
                    found = _measure(spark, workload, rate, slots, inputs[rate], where)
                    for name, (seconds, counts) in found.items():
                        label = _label(name, rate, slots)
                        took.setdefault(label, []).append(round(seconds * 1000, 1))
                        equal = equal and counts == inputs[rate].counts
                        say(f"  {name}: {seconds * 1000:,.0f} ms")
                for every in workload.intervals:
                    where = Path(directory) / f"{number}-every-{every}"
                    label = _interval_label(every, workload)
                    seconds, lost, right = _measure_interval(
                        spark, workload, every, inputs[workload.interval_rate], where
                    )
                    took.setdefault(label, []).append(round(seconds * 1000, 1))
                    equal = equal and right
                    say(
                        f"round {number + 1}: {label}, {lost} epochs lost: {seconds * 1000:,.0f} ms"
                    )
    return document(workload, took, equal)


def document(
    workload: Replaying, took: Mapping[str, Sequence[float]], equal: bool
) -> dict[str, Any]:
    """The JSON document, from the times of each round."""
    middle = {label: round(median(times), 1) for label, times in took.items()}

    def ratio(rate: int, slots: int) -> float | None:
        mine, theirs = (middle.get(_label(n, rate, slots)) for n in (BY_STATE, BY_REPLAY))
        return round(mine / theirs, 4) if mine is not None and theirs else None

    cases = list(_cases(workload))
    ratios = {f"{rate}/s, {slots} slots": ratio(rate, slots) for rate, slots in cases}
    highest, most = max(workload.rates), max(workload.slots)
    replayed = middle.get(_label(BY_REPLAY, workload.interval_rate, most))
    for every in workload.intervals:
        mine = middle.get(_interval_label(every, workload))
        if mine is not None and replayed:
            ratios[f"checkpoint every {every}"] = round(mine / replayed, 4)
    low, high = ratio(min(workload.rates), most), ratio(highest, most)
    growth = round(high / low, 4) if low and high and low != high else None
    bars = [
        Bar(f"{BY_STATE} / {BY_REPLAY} at {highest}/s, {most} slots", "at most", 1.0, high),
        Bar("that ratio at the highest rate / at the lowest", "at most", 1.0, growth),
    ]
    return {
        "benchmark": "recovery-by-replay",
        "workload": asdict(workload),
        "systems": {label: {"recovery_ms": value} for label, value in middle.items()},
        "ratios": ratios,
        "results_equal": equal,
        "bars": [bar.as_json(equal) for bar in bars],
        "rounds": {label: list(times) for label, times in took.items()},
        "machine": describe_machine(),
        "versions": describe_versions(),
    }


def format_replaying(found: Mapping[str, Any]) -> str:
    """The document as a table of plain text."""
    lines = [f"{'way, rate, slots':<64}{'recovery':>14}"]
    for label, numbers in found["systems"].items():
        lines.append(f"{label:<64}{numbers['recovery_ms']:>11,.0f} ms")
    lines += ["", f"results equal: {'yes' if found['results_equal'] else 'NO'}"]
    return "\n".join([*lines, *bar_lines(found["bars"])])


def _cases(workload: Replaying) -> Iterator[tuple[int, int]]:
    for rate in workload.rates:
        for slots in workload.slots:
            yield rate, slots


def _label(name: str, rate: int, slots: int) -> str:
    return f"{name} at {rate}/s, {slots} slots"


def _interval_label(every: int, workload: Replaying) -> str:
    return f"{_label(BY_STATE, workload.interval_rate, max(workload.slots))}, every {every}"


@dataclass(frozen=True)
class _Input:
    directory: Path
    counts: dict[str, int]
    """Key -> how often it occurs in all files."""


def _write_input(workload: Replaying, rate: int, directory: Path) -> _Input:
    """Writes one file per second, and one more for the second of the loss."""
    where = directory / f"input-{rate}"
    where.mkdir()
    random = np.random.default_rng(rate)
    total = np.zeros(workload.keys, np.int64)
    for second in range(workload.seconds + 1):
        drawn = random.integers(0, workload.keys, rate)
        total += np.bincount(drawn, minlength=workload.keys)
        keys = pa.array([f"key-{each}" for each in drawn.tolist()])
        pq.write_table(pa.table({"key": keys}), where / f"second-{second:06d}.parquet")
    counts = {f"key-{i}": int(n) for i, n in enumerate(total.tolist()) if n}
    return _Input(where, counts)


def _measure(
    spark: SparkSession,
    workload: Replaying,
    rate: int,
    slots: int,
    given: _Input,
    where: Path,
) -> dict[str, tuple[float, dict[str, int]]]:
    """Seconds of recovery by each way, and the counts that it ends with."""
    kept, new = str(where / "kept"), str(where / "new")
    files = sources.parquet(str(given.directory), ordered_by_name=True)
    before = _pipeline(SecondBySecond(files, rate, workload.seconds))
    before.run(checkpoint=kept, spark=spark, until="caught_up", slots=slots)
    found = {}
    for name, pipeline, checkpoint in (
        (BY_STATE, _pipeline(SecondBySecond(files, rate, workload.seconds + 1)), kept),
        (BY_REPLAY, _pipeline(files), new),
    ):
        _kill_workers()
        began = time.perf_counter()
        pipeline.run(checkpoint=checkpoint, spark=spark, until="caught_up", slots=slots)
        seconds = time.perf_counter() - began
        scanned = Checkpoint(checkpoint).scan("count")
        found[name] = (seconds, {key: fields["count"] for key, fields in scanned})
    return found


def _measure_interval(
    spark: SparkSession, workload: Replaying, every: int, given: _Input, where: Path
) -> tuple[float, int, bool]:
    """Seconds of recovery, the epochs whose state was lost, and whether all counts are right."""
    rate, slots = workload.interval_rate, max(workload.slots)
    files = sources.parquet(str(given.directory), ordered_by_name=True)
    last = last_epoch_before(workload.seconds, every)
    options: dict[str, Any] = {"spark": spark, "slots": slots, "checkpoint_every": every}
    run_until(_pipeline(SecondBySecond(files, rate, last)), last, str(where), **options)
    _kill_workers()
    lost = lose_written(str(where))
    began = time.perf_counter()
    after = _pipeline(SecondBySecond(files, rate, last + 1))
    after.run(checkpoint=str(where), until="caught_up", **options)
    seconds = time.perf_counter() - began
    rest = _pipeline(SecondBySecond(files, rate, workload.seconds + 1))
    rest.run(checkpoint=str(where), until="caught_up", **options)
    counts = {key: fields["count"] for key, fields in Checkpoint(where).scan("count")}
    return seconds, lost, counts == given.counts


def _pipeline(files: Source) -> Pipeline:
    p = Pipeline("replaying")
    p.read("words", files)
    p.compute(CountWords, inputs={"words": "key"}, name="count")
    return p


def _kill_workers() -> None:
    """Kills all Python workers of this process's Spark: what they had in memory is lost."""
    for child in psutil.Process().children(recursive=True):
        try:
            if any("pyspark.daemon" in word for word in child.cmdline()):
                child.kill()
        except psutil.Error:
            continue
