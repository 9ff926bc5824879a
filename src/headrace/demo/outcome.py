"""What the pipeline wrote, read back from its output directories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

Row = dict[str, Any]


@dataclass(frozen=True)
class DemoOutcome:
    """All rows of a finished run. `findings` are spikes and dips in order of time."""

    findings: list[Row]
    regions: list[Row]
    late: int


def read_outcome(output: Path) -> DemoOutcome:
    """Reads all rows that were delivered."""
    findings = [*_rows(output / "spikes"), *_rows(output / "dips")]
    return DemoOutcome(
        sorted(findings, key=lambda row: (row["seen"], row["query"])),
        list(_rows(output / "regions")),
        sum(1 for _ in _rows(output / "late")),
    )


class Tail:
    """Follows spikes and dips while the run goes on."""

    def __init__(self, output: Path) -> None:
        self._directories = [output / "spikes", output / "dips"]
        self._seen: set[Path] = set()

    def fresh(self) -> list[Row]:
        """The findings that became visible since the last call, in order of time."""
        rows: list[Row] = []
        for directory in self._directories:
            for path in _files(directory):
                if path not in self._seen:
                    self._seen.add(path)
                    rows += _read(path)
        return sorted(rows, key=lambda row: (row["seen"], row["query"]))


def _files(directory: Path) -> list[Path]:
    """Only whole epochs: what is still being built lies in directories that start with `_`."""
    return sorted(directory.glob("epoch=*/*.jsonl"))


def _rows(directory: Path) -> Iterator[Row]:
    for path in _files(directory):
        yield from _read(path)


def _read(path: Path) -> list[Row]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
