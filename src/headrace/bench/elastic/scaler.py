"""`headrace bench scaler`: a load that triples and falls back; do the slots follow?

Files appear at a steady pace, first with few lines, then with three times as many, then with few
again. The scaler starts with the slots that the first load needs. For comparison, fixed numbers of
slots run the high load alone: the smallest that keeps up is the best fixed choice. Service time is
emulated (see `emulated`).
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace import EpochProgress, Pipeline, Scale, sources
from headrace.bench.elastic.balance import judged
from headrace.bench.elastic.emulated import (
    COMPUTATION,
    LABEL,
    Running,
    Serve,
    counts_of,
    emulated_session,
)
from headrace.bench.elastic.steady import wait_until
from headrace.bench.frame.bars import Bar
from headrace.bench.frame.machine import describe_machine, describe_versions

REPORTS_MAX = 3
MORE_SLOTS_MAX = 1.25
FILE_S = 0.25
"""How often a file appears."""
KEEPS_UP_S = 3.0
"""A fixed number of slots keeps up if, at the end, it is at most this far behind."""


@dataclass(frozen=True)
class ScalerWorkload:
    """A load that triples and falls back."""

    cost_us: int = 2_000
    demand: float = 1.0
    """How many slots the low load keeps busy all the time."""
    factor: int = 3
    slots: int = 2
    """How many slots there are at first."""
    max_slots: int = 8
    keys: int = 1_000
    low_s: float = 20.0
    """How long the low load lasts, before and after the high one."""
    high_s: float = 40.0
    every: int = 2
    """How many epochs one report covers."""

    def lines(self, factor: int) -> int:
        """How many lines a file has."""
        return max(1, round(self.demand * factor * FILE_S * 1e6 / self.cost_us))


@dataclass
class ScaledRun:
    """What one run showed."""

    epochs: list[tuple[float, int, int, int]] = field(default_factory=list)
    """(when, epoch, records so far, slots) of each epoch."""
    decisions: list[tuple[int, str]] = field(default_factory=list)
    """(epoch, what was decided)."""
    high_from: float = math.inf
    high_until: float = math.inf
    written: int = 0
    behind_s: float = math.inf
    """How long after the last line of the high load its results were complete."""
    counts: dict[str, int] = field(default_factory=dict)

    def slots_at(self, when: float) -> int:
        """How many slots there were at a time."""
        return [slots for at, _, _, slots in self.epochs if at <= when][-1]


def run_scaler(
    workload: ScalerWorkload,
    *,
    work_dir: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Runs the scaler and the fixed numbers of slots, and returns the JSON document."""
    machine = describe_machine()
    scale = Scale(every=workload.every, cooldown="5s")
    fixed: dict[int, float] = {}
    with tempfile.TemporaryDirectory(
        prefix="headrace-bench-", dir=work_dir, ignore_cleanup_errors=True
    ) as directory:
        with emulated_session(workload.max_slots, Path(directory)) as spark:
            say("with the scaler")
            seen = _run(workload, spark, Path(directory) / "scaled", scale=scale)
            for slots in range(math.ceil(workload.demand * workload.factor), workload.max_slots):
                say(f"{slots} slots, fixed")
                alone = _run(workload, spark, Path(directory) / f"fixed-{slots}", slots=slots)
                fixed[slots] = round(alone.behind_s, 2)
                if alone.behind_s <= KEEPS_UP_S:
                    break
    best = min((n for n, behind in fixed.items() if behind <= KEEPS_UP_S), default=None)
    at_end = seen.slots_at(seen.high_until)
    reports = _reports_until_more(workload, seen)
    expected = Counter(f"key {n % workload.keys}" for n in range(seen.written))
    right = seen.counts == dict(expected)
    bars = [
        Bar("reports until there are more slots", "at most", REPORTS_MAX, reports),
        Bar(
            "slots at the end of the high load / the best fixed number", "at most", MORE_SLOTS_MAX,
            None if best is None else round(at_end / best, 3),
        ),
        Bar("slots at the end / at the start", "at most", 1.0,
            seen.epochs[-1][3] / workload.slots),
    ]  # fmt: skip
    return {
        "benchmark": "scaler",
        "emulated": LABEL,
        "workload": asdict(workload),
        "systems": {
            "scaler": {
                "reports_until_more_slots": reports,
                "slots_at_end_of_high_load": at_end,
                "slots_at_end": seen.epochs[-1][3],
                "slots_most": max(slots for *_, slots in seen.epochs),
                "behind_s": round(seen.behind_s, 2),
            },
            "fixed": {"best": best, "behind_s": fixed},
        },
        "results_equal": right,
        "bars": [bar.as_json(right) for bar in bars],
        "decisions": [f"epoch {epoch}, {text}" for epoch, text in seen.decisions],
        "rounds": {"slots": [slots for *_, slots in seen.epochs]},
        "machine": machine,
        "versions": describe_versions(),
    }


def _reports_until_more(workload: ScalerWorkload, seen: ScaledRun) -> float | None:
    """How many reports of the high load there were until the scaler answered it."""
    first = next((epoch for when, epoch, *_ in seen.epochs if when >= seen.high_from), None)
    if first is None:
        return None
    answers = [epoch for epoch, _ in seen.decisions if epoch >= first]
    return float(math.ceil((answers[0] - first + 1) / workload.every)) if answers else None


def _run(
    workload: ScalerWorkload,
    spark: Any,
    scratch: Path,
    *,
    scale: Scale | None = None,
    slots: int | None = None,
) -> ScaledRun:
    """One run; with fixed `slots` only the high load."""
    inputs = scratch / "in"
    inputs.mkdir(parents=True)
    p = Pipeline("scaler")
    p.read("records", sources.jsonl(str(inputs), watch=True))
    p.compute(Serve(workload.cost_us), inputs={"records": "key"}, name=COMPUTATION, outputs="u")
    seen = ScaledRun()
    done = [0]
    running = Running()

    def on_epoch(progress: EpochProgress) -> None:
        done[0] = progress.records_total
        now = len(running.ring().slots)
        seen.epochs.append((time.monotonic(), progress.epoch, done[0], now))

    def on_notice(notice: Any) -> None:
        if notice.kind == "scaler":
            seen.decisions.append((seen.epochs[-1][1] + 1 if seen.epochs else 1, notice.text))

    with p.start(
        checkpoint=str(scratch / "checkpoint"), spark=spark, slots=slots or workload.slots,
        scale=scale, max_slots=workload.max_slots, on_epoch=on_epoch, on_notice=on_notice,
    ) as job:  # fmt: skip
        running.begins(job)
        feed = _Feed(workload, inputs, seen)
        feed.lines(workload.lines(1), 1)  # Spark starts its workers
        wait_until(lambda: done[0] >= seen.written, "the first file")
        if slots is None:
            feed.steadily(1, workload.low_s)
        seen.high_from = time.monotonic()
        feed.steadily(workload.factor, workload.high_s)
        seen.high_until, high_lines = time.monotonic(), seen.written
        if slots is None:
            feed.steadily(1, workload.low_s)
        wait_until(lambda: done[0] >= seen.written, "all lines")
    when = next(at for at, _, records, _ in seen.epochs if records >= high_lines)
    seen.behind_s = max(0.0, when - seen.high_until)
    seen.counts = counts_of(str(scratch / "checkpoint"))
    return seen


class _Feed:
    """Lets files appear."""

    def __init__(self, workload: ScalerWorkload, directory: Path, seen: ScaledRun) -> None:
        self._workload, self._directory, self._seen = workload, directory, seen
        self._files = 0

    def lines(self, count: int, files: int) -> None:
        """Some files appear at once, each complete."""
        for _ in range(files):
            first = self._seen.written
            keys = (f"key {n % self._workload.keys}" for n in range(first, first + count))
            text = "".join(json.dumps({"key": key}) + "\n" for key in keys)
            path = self._directory / f"{self._files:06d}.jsonl"
            part = path.with_suffix(".part")
            part.write_text(text)
            os.replace(part, path)
            self._files += 1
            self._seen.written += count

    def steadily(self, factor: int, seconds: float) -> None:
        """Files appear at a steady pace, whether they are read or not."""
        due = time.monotonic()
        until = due + seconds
        while due < until:
            time.sleep(max(0.0, due - time.monotonic()))
            self.lines(self._workload.lines(factor), 1)
            due += FILE_S


def format_scaler(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    workload, numbers = document["workload"], document["systems"]["scaler"]
    fixed = document["systems"]["fixed"]
    lines = [
        f"a load of {workload['demand']:g} slots that rises {workload['factor']}-fold and falls "
        f"back; {document['emulated']} {workload['cost_us']} us",
        f"scaler: {numbers['slots_at_end_of_high_load']} slots at the end of the high load, "
        f"{numbers['slots_at_end']} at the end, {numbers['slots_most']} at most",
        f"fixed: {fixed['best']} slots are the best choice (seconds behind: {fixed['behind_s']})",
        *document["decisions"],
    ]
    return "\n".join([*lines, "", *judged(document)])
