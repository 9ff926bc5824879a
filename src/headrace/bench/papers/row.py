"""One figure of a paper: what it showed, how it is run here, and how the result is judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.shape import ShapeClaim, ShapeVerdict

Points = dict[str, Any]
"""What was measured. `right` says whether all results were right, where that was checked."""


@dataclass(frozen=True)
class PaperRow:
    """One row of the table."""

    id: str
    paper: str
    """What the paper shows."""
    ours: str
    """How it is run here, and with what: Spark or not, emulated or not."""
    expect: str
    measure: Callable[[Say], Points]
    judge: Callable[[Mapping[str, Any]], ShapeVerdict]
    note: str = ""
    """What is known of a difference; shown only if the shape differs."""
    applies: bool = True
    """Whether there is anything here that the figure could be about."""


def run_row(row: PaperRow, *, say: Say = lambda line: None) -> dict[str, Any]:
    """Runs the experiment of a row, and returns its JSON document."""
    machine = describe_machine()
    began = time.perf_counter()
    points = row.measure(say)
    seconds = time.perf_counter() - began
    return document(row, points, machine) | {
        "seconds": round(seconds, 1),
        "machine": machine,
        "versions": describe_versions(),
    }


def document(
    row: PaperRow, points: Points, machine: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The judged part of the JSON document."""
    right = bool(points.get("right", True))
    verdict = row.judge(points)
    if not right:
        wrong = ShapeClaim("all results are right", False)
        verdict = ShapeVerdict((wrong, *verdict.claims))
    why = verdict.why
    if not verdict.same_shape:
        known = f"Known of this row: {row.note}" if row.note else ""
        load = overloaded(machine or {}) if row.applies else ""
        why = ". ".join(part for part in (why, known, load) if part)
    return {
        "benchmark": "paper",
        "id": row.id,
        "paper": row.paper,
        "how": row.ours,
        "ours": points,
        "expect": row.expect,
        "same_shape": verdict.same_shape,
        "applies": row.applies,
        "why": why,
        "claims": [{"claim": claim.text, "holds": claim.holds} for claim in verdict.claims],
        "results_equal": right,
    }


def overloaded(machine: Mapping[str, Any]) -> str:
    """Says so if more processes wanted a core than there are: then times say little."""
    load, cores = (machine.get("load_average_before") or [0.0])[0], machine.get("cores") or 0
    if load <= cores:
        return ""
    return (
        f"The load was {load:g} on {cores} cores when it began, so times say little: run it again "
        "on a quiet machine"
    )


def format_row(found: Mapping[str, Any]) -> str:
    """The document as plain text."""
    lines = [
        f"{found['id']}: {found['paper']}",
        f"here: {found['how']}",
        f"expected: {found['expect']}",
        "",
    ]
    for claim in found["claims"]:
        lines.append(f"{'yes' if claim['holds'] else 'NO ':<4}{claim['claim']}")
    return "\n".join([*lines, "", f"same shape: {'yes' if found['same_shape'] else 'NO'}"])
