"""The page of all rows: the papers' figures, ours, and whether the shape is the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.bench.frame.provenance import machine_lines
from headrace.bench.papers.catalog import ROWS
from headrace.errors import HeadraceError

TITLE = "# The papers' experiments, repeated"


def read_rows(directory: Path) -> dict[str, dict[str, Any]]:
    """The documents of rows that lie in a directory, by id; other files do not count."""
    if not directory.is_dir():
        raise HeadraceError(f"there is no directory {directory} with the JSON files of rows")
    found = {}
    for path in sorted(directory.glob("*.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise HeadraceError(f"{path} is no JSON document: {error}; run it again") from None
        if isinstance(document, dict) and document.get("benchmark") == "paper":
            found[document["id"]] = document
    return found


def render_page(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """The page, as Markdown."""
    known = [documents[name] for name in ROWS if name in documents]
    same = [each for each in known if each["same_shape"]]
    lines = [
        TITLE,
        "",
        "Each row is one figure of a paper: what it showed, how it is run here, what was measured, "
        "and whether the shape is the same. Code judges that from the measured numbers "
        "(`headrace bench paper`); nothing here is written by hand. `make papers` runs all. The "
        "load is how many processes wanted a core when a row began: if there are fewer cores, "
        "times say little.",
        "",
        f"{len(known)} of {len(ROWS)} rows were run; {len(same)} have the same shape.",
        "",
        *machine_lines(known),
        "",
        "| ID | the paper | here | measured | same shape | why | load |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in ROWS.items():
        document = documents.get(name)
        if document is None:
            lines.append(f"| {name} | {_cell(row.paper)} | {_cell(row.ours)} | | not run | | |")
            continue
        cells = [
            name,
            document["paper"],
            document["how"],
            _figures(document["ours"]),
            _answer(document),
            document["why"],
            _load(document),
        ]
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join([*lines, ""])


LEAVES_MAX = 12


def _answer(document: Mapping[str, Any]) -> str:
    if not document.get("applies", True):
        return "does not apply"
    return "yes" if document["same_shape"] else "**no**"


def _load(document: Mapping[str, Any]) -> str:
    """How many processes wanted a core when the row began."""
    loads = document.get("machine", {}).get("load_average_before")
    return f"{loads[0]:g}" if loads else "unknown"


def _figures(points: Mapping[str, Any]) -> str:
    """The measured numbers, the first ones of many."""
    leaves = list(_leaves(points))
    shown = ", ".join(f"{name} {value:g}" for name, value in leaves[:LEAVES_MAX])
    more = len(leaves) - LEAVES_MAX
    return shown + (f", and {more} more in the JSON" if more > 0 else "")


def _leaves(points: Any, name: str = "") -> list[tuple[str, float]]:
    if isinstance(points, bool) or points is None or isinstance(points, str):
        return []
    if isinstance(points, int | float):
        return [(name, points)]
    if isinstance(points, Mapping):
        return [
            leaf
            for key, value in points.items()
            for leaf in _leaves(value, f"{name} {key}".strip())
        ]
    if isinstance(points, Sequence) and len(points) <= 8:
        return [leaf for value in points for leaf in _leaves(value, name)]
    return []


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
