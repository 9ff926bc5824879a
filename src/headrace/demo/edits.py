"""Zeitgeist over real edits of Wikipedia: which editions are suddenly edited more, or less?

A file has JSON lines with `time`, `channel` and, if known, `namespace`, in about the order of time.
An edition takes the place of a query, and a namespace that of a region. A file of one day has no
daily cycle to learn, so each half hour is compared with those before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill
from typing import Any

import msgspec

from headrace.demo.model import STEADY
from headrace.demo.outcome import DemoOutcome
from headrace.demo.reference import Finding, reference
from headrace.demo.show import WIDTH
from headrace.errors import HeadraceError
from headrace.model.values.time import MINUTE, SECOND
from headrace.workloads.text.runs import lines_of

LATENESS = "10m"
FILE = "edits.jsonl"
SHOWN = 12

Edit = dict[str, Any]


def write_edits(given: Path, directory: Path) -> int:
    """Writes the edits of a file as input of the pipeline, in the order of time; how many."""
    edits = sorted(_edits(lines_of(given)), key=lambda edit: edit["ts"])
    if not edits:
        raise HeadraceError(f"{given} has no edits")
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f"{FILE}.partial"
    with partial.open("wb") as out:
        out.writelines(msgspec.json.encode(edit) + b"\n" for edit in edits)
    partial.replace(directory / FILE)
    return len(edits)


def read_edits(directory: Path) -> Iterator[Edit]:
    """What `write_edits` wrote."""
    with (directory / FILE).open("rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line)


def opening_lines(edits: int) -> list[str]:
    """Explains the input and what the run will do."""
    text = (
        f"Zeitgeist: {edits:,} edits of Wikipedia. Which editions are suddenly edited much more, "
        f"or much less, than before? By buckets of {STEADY.bucket // MINUTE} minutes."
    )
    return [fill(text, WIDTH), ""]


def closing_lines(edits: Iterable[Edit], outcome: DemoOutcome, directory: Path) -> list[str]:
    """The findings, after a check against plain Python."""
    found = sorted(map(Finding.of, outcome.findings))
    if found != reference(edits, lateness=LATENESS, rhythm=STEADY):
        raise HeadraceError("the answer is not that of plain Python: this is an error in Headrace")
    kinds = Counter(finding.kind for finding in found)
    return [
        "",
        f"{kinds['spike']} spikes and {kinds['dip']} dips, as plain Python finds them.",
        *_busiest(found),
        "",
        f"Input, output and checkpoint are in {directory}",
    ]


def _busiest(found: Sequence[Finding]) -> list[str]:
    """The highest spikes, and the dips of the busiest editions."""
    chosen = sorted(found, key=lambda f: (-f.limit, f.start, f.query))[:SHOWN]
    how = {"spike": "more than", "dip": "fewer than"}
    return [
        f"  {datetime.fromtimestamp(f.start // SECOND, UTC):%H:%M}  {f.kind:5}  {f.query:18} "
        f"{how[f.kind]} {f.limit} edits"
        for f in sorted(chosen, key=lambda f: (f.start, f.query))
    ]


def _edits(lines: Iterable[str]) -> Iterator[Edit]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            edit = msgspec.json.decode(line)
            at = datetime.fromisoformat(edit["time"])
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            ts = round(at.timestamp() * 1e3) * (SECOND // 1000)
            channel = str(edit["channel"]).removeprefix("#")
            yield {"ts": ts, "query": channel, "region": str(edit.get("namespace") or "unknown")}
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise HeadraceError(
                f"line {number} is no edit, a JSON object with time and channel: {error}"
            ) from error
