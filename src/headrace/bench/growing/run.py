"""`headrace bench growth`: all axes, or some of them, as one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.bench.frame.bars import bar_lines
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Say
from headrace.bench.growing.axes import AXES, format_axes, run_axes
from headrace.bench.growing.epochs import format_epochs, run_epochs
from headrace.bench.growth import Growth, format_growth, run_growth

FILES, EPOCHS = "files", "epochs"


def run_all(
    names: Sequence[str],
    files: Growth,
    *,
    epochs: int,
    work_dir: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measures the axes that are named, or all, and returns the JSON document."""
    chosen = list(dict.fromkeys(names)) or [FILES, *AXES, EPOCHS]
    found: dict[str, Any] = {
        "benchmark": "growth",
        "results_equal": True,
        "bars": [],
        "machine": describe_machine(),
        "versions": describe_versions(),
    }
    if FILES in chosen:
        found |= run_growth(files, work_dir=work_dir, say=say)
    axes: dict[str, Any] = run_axes([name for name in AXES if name in chosen], say=say)
    bars = [axis["bar"] for axis in axes.values()]
    if EPOCHS in chosen:
        axes[EPOCHS] = run_epochs(epochs, work_dir=work_dir, say=say)
        bars += axes[EPOCHS]["bars"]
    right = found["results_equal"] and all(axis["results_equal"] for axis in axes.values())
    return found | {"axes": axes, "bars": [*found["bars"], *bars], "results_equal": right}


def format_all(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    axes = {name: axis for name, axis in document["axes"].items() if name != EPOCHS}
    lines = [format_growth(document), ""] if "epoch_ms" in document else []
    lines += format_axes(axes)
    if EPOCHS in document["axes"]:
        lines += format_epochs(document["axes"][EPOCHS])
    files = 3 if "epoch_ms" in document else 0  # those are shown with the files
    return "\n".join([*lines, "", *bar_lines(document["bars"][files:], digits=3)])
