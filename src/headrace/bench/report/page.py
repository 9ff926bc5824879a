"""Writes the report: a Markdown page, and its plots beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.bench.frame.provenance import machine_lines
from headrace.bench.growing.axes import AXES
from headrace.bench.growing.run import EPOCHS, FILES
from headrace.bench.report.plot import SECTIONS, Plot
from headrace.bench.report.plots import plots_of
from headrace.errors import HeadraceError

EXPECTED = (
    "keyed-count-large", "keyed-count-records", "keyed-count-small", "keyed-count-state",
    "windowed-count-large", "windowed-count-small", "windowed-count-hot", "top-k-large",
    "top-k-small", "overhead", "recovery", "replay", "interval", "growth", "scale", "stores",
    "backends", "rescale", "deploy", "balance", "scaler", "memory", "eviction", "latency",
    "latency-windowed", "keyed-count-foreign", "nexmark-q3", "nexmark-q8", "nexmark-q11",
    "kafka", "linear-road",
)  # fmt: skip
"""What `make bench` writes. A file that is missing is named in the report as not run."""


PAPERS = "papers"
"""Where `make papers` writes."""


def read_documents(directory: Path) -> dict[str, dict[str, Any]]:
    """The documents in a directory, and of papers below it, by the names of their files.

    A broken file is an error.
    """
    found = {}
    for path in [*sorted(directory.glob("*.json")), *sorted(directory.glob(f"{PAPERS}/*.json"))]:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise HeadraceError(f"{path} is no JSON document: {error}; run it again") from None
        if isinstance(document, dict) and "benchmark" in document:
            found[path.stem] = document
    return found


def write_report(directory: Path, page: Path, keep: Path | None = None) -> tuple[int, int]:
    """Writes the page and its plots; how many documents and plots there are.

    With `keep`, the documents of the directory are copied there first, each in the place of an
    older one with its name, and the page is about all that lie there.
    """
    documents = read_documents(directory)
    if keep is not None and keep.resolve() != directory.resolve():
        kept = read_documents(keep)
        for name in documents:
            _copy(name, directory, keep)
        documents = kept | documents
    text, plots = render(documents)
    page.parent.mkdir(parents=True, exist_ok=True)
    for plot in plots:
        (page.parent / f"{plot.name}.svg").write_text(plot.svg, encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    return len(documents), len(plots)


def _copy(name: str, source: Path, target: Path) -> None:
    """Copies a document to the same place below another directory."""
    for place in ("", PAPERS):
        if (source / place / f"{name}.json").exists():
            (target / place).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / place / f"{name}.json", target / place / f"{name}.json")


def render(documents: Mapping[str, Mapping[str, Any]]) -> tuple[str, list[Plot]]:
    """The page as Markdown, and its plots."""
    plots = [plot for name, document in documents.items() for plot in plots_of(name, document)]
    missing = [name for name in EXPECTED if name not in documents]
    missing += [f"growth with {axis}" for axis in _axes_left(documents.get("growth"))]
    lines = [
        "# Report of the benchmarks",
        "",
        "Written by `headrace bench report` from the JSON files of `make bench`. Numbers of one "
        "plot come from one run on one machine; compare ratios, not times of different machines.",
        "",
        *machine_lines(documents.values()),
        f"- Not run: {', '.join(missing)}." if missing else "- All benchmarks were run.",
        "",
        "## Bars",
        "",
        *_bars(documents),
        "",
        "## Runs",
        "",
        *_runs(documents),
    ]
    for section in SECTIONS:
        chosen = [plot for plot in plots if plot.section == section]
        lines += ["", f"## {section}", ""]
        if not chosen:
            lines.append("Not run.")
        for plot in chosen:
            lines += [f"![{plot.title}]({plot.name}.svg)", ""]
    return "\n".join(lines).rstrip() + "\n", plots


def _axes_left(growth: Mapping[str, Any] | None) -> list[str]:
    """The axes that a document of growth does not have."""
    if growth is None:
        return []
    files = [] if growth.get("epochs") else [FILES]
    return files + [axis for axis in (*AXES, EPOCHS) if axis not in growth.get("axes", {})]


def _runs(documents: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    """When each document was measured, and of which code."""
    if not documents:
        return ["None."]
    lines = ["| benchmark | day | commit | load before |", "| --- | --- | --- | --- |"]
    for name, document in documents.items():
        loads = document.get("machine", {}).get("load_average_before") or [""]
        day, commit = document.get("day", ""), document.get("commit", "")
        lines.append(f"| {name} | {day} | {commit} | {loads[0]} |")
    return lines


def _bars(documents: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    rows = [
        (name, bar)
        for name, document in documents.items()
        for bar in document.get("bars", ())
        if isinstance(bar, Mapping)
    ]
    if not rows:
        return ["No benchmark with a bar was run."]
    lines = ["| benchmark | what | measured | bar | |", "| --- | --- | --- | --- | --- |"]
    for name, bar in rows:
        measured = bar.get("measured")
        number = f"{measured:.3g}" if isinstance(measured, int | float) else "not measured"
        verdict = "reached" if bar.get("reached") else "**missed**"
        what = str(bar["name"]).replace("|", "\\|")
        lines.append(f"| {name} | {what} | {number} | {bar['bar']} | {verdict} |")
    return lines
