"""What came out of a run, in a form in which two runs can be compared exactly.

Kinds are part of a value: `1`, `1.0`, `True` and `"1"` are four, `0.0` and `-0.0` are two, and NaN
equals NaN. The order of a row's columns is no part of it, and neither is the order of rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.property.mixed.shapes import Wiring

from headrace.testing import Harness

Rows = Counter[str]

NOT_COMPARED = ("epoch", "position", "traceback")
"""Of a dead letter: the epoch and the place in the input are those of the cut and the neighbours,
and a traceback shows which way a record took, alone or with others."""


def canonical(value: Any) -> str:
    """A text that two values share if and only if they are the same."""
    if type(value) is dict:
        cells = sorted(f"{canonical(name)}: {canonical(cell)}" for name, cell in value.items())
        return "{" + ", ".join(cells) + "}"
    if type(value) is list:
        return "[" + ", ".join(map(canonical, value)) + "]"
    return repr(value)  # of numbers, text, bytes, bools and None it is exact


@dataclass
class Outcome:
    """Rows of each stream, and dead letters of each computation."""

    rows: dict[str, Rows] = field(default_factory=dict)
    letters: dict[str, Rows] = field(default_factory=dict)
    late: int = 0

    @staticmethod
    def of(harness: Harness, wiring: Wiring) -> Outcome:
        """What a harness has seen."""
        found = Outcome(late=harness.counts["late"])
        for watched in wiring.watched:
            records = harness.records(watched.stream)
            if watched.shape.last_by is not None:
                records = last_rows(records, watched.shape.last_by)
            found.rows[watched.stream] = Counter(
                f"{canonical(value)} at {time}" if watched.shape.stamped else canonical(value)
                for value, time in records
            )
        for letter, time in harness.records("dead"):
            said = {name: cell for name, cell in letter.items() if name not in NOT_COMPARED}
            # What cannot be read has no time of its own: it is stamped when it is read.
            when = f" at {time}" if "computation" in letter else ""
            mine = found.letters.setdefault(letter.get("computation", "reading"), Counter())
            mine[canonical(said) + when] += 1
        return found

    def only(self, streams: set[str], without: set[str]) -> Outcome:
        """Some streams, and the letters of all but some computations."""
        rows = {name: rows for name, rows in self.rows.items() if name in streams}
        letters = {name: rows for name, rows in self.letters.items() if name not in without}
        return Outcome(rows, letters, self.late)

    def and_of(self, other: Outcome) -> Outcome:
        """What two runs over different records made together."""
        return Outcome(
            {
                n: self.rows.get(n, Rows()) + other.rows.get(n, Rows())
                for n in {**self.rows, **other.rows}
            },
            {
                n: self.letters.get(n, Rows()) + other.letters.get(n, Rows())
                for n in {**self.letters, **other.letters}
            },
            self.late + other.late,
        )


def last_rows(records: list[tuple[Any, int]], by: tuple[str, ...]) -> list[tuple[Any, int]]:
    """Of rows that replace each other, those that count in the end.

    Withdrawn sessions are gone, and so are the ranks that a shorter list no longer has: those
    come with nothing but key and rank.
    """
    last: dict[str, tuple[Any, int]] = {}
    for value, time in records:
        last[canonical([value.get(column) for column in by])] = (value, time)
    return [
        (value, time)
        for value, time in last.values()
        if not value.get("withdrawn")
        and not ("rank" in by and all(value[c] is None for c in value if c not in by))
    ]


def differences(wanted: Outcome, found: Outcome) -> list[str]:
    """One line for each row that only one of two runs has."""
    lines = []
    for title, ours, theirs in (
        ("stream", wanted.rows, found.rows),
        ("dead letters of", wanted.letters, found.letters),
    ):
        for name in sorted({**ours, **theirs}):
            left, right = ours.get(name, Rows()), theirs.get(name, Rows())
            lines += [f"{title} {name}: - {row} x {n}" for row, n in sorted((left - right).items())]
            lines += [f"{title} {name}: + {row} x {n}" for row, n in sorted((right - left).items())]
    return lines
