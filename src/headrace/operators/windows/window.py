"""Windows and when they are emitted, as users name them.

A window is half-open, [start, end). All are aligned to 1970 UTC. Its rows are stamped
`end - 1`, so they fall into their own window downstream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.model.values.time import Duration, duration

AFTER_THE_END = "late after the end"
"""A metric: records for windows that had closed because all input was read, in an earlier run."""

HOPS_MAX = 100_000
"""How many hopping windows a record may be in: each of them becomes a row."""


@dataclass(frozen=True)
class Window:
    """Which windows a record belongs to."""

    kind: str
    size_us: int = 0
    every_us: int = 0


@dataclass(frozen=True)
class Every:
    """Emit what changed every so many microseconds, or every so many records of a window."""

    micros: int = 0
    records: int = 0


def tumbling(size: Duration) -> Window:
    """Windows of one size, one after another."""
    return Window("tumbling", _positive(size, "tumbling"))


def hopping(size: Duration, *, every: Duration) -> Window:
    """Windows of one size that begin every so often; a record is in several of them."""
    size_us, every_us = _positive(size, "hopping"), _positive(every, "hopping: every=")
    if every_us > size_us:
        raise InvalidPipeline(
            f"hopping({size!r}, every={every!r}) leaves gaps between windows; let every= be at "
            "most the size"
        )
    if size_us > HOPS_MAX * every_us:
        raise InvalidPipeline(
            f"hopping({size!r}, every={every!r}): each record would be in "
            f"{-(-size_us // every_us):,} windows, and {HOPS_MAX:,} are the limit; let every= be "
            "longer, or take sliding(size), which has one window per record"
        )
    return Window("hopping", size_us, every_us)


def sliding(size: Duration) -> Window:
    """A window that ends with each record: everything of the key in the `size` up to it.

    For a record at t it is [t + 1 - size, t + 1), in microseconds. Records of one key
    with the same timestamp share it.
    """
    return Window("sliding", _positive(size, "sliding"))


def session(gap: Duration) -> Window:
    """Records that follow each other within less than `gap`; the window ends `gap` after the last.

    A record that lies between two sessions merges them.
    """
    return Window("session", _positive(gap, "session"))


def whole() -> Window:
    """One window for all time, closed when all input has ended; rows have no window columns."""
    return Window("whole")


def same_window() -> Window:
    """The window that the rows carry already, as `window_start` and `window_end`."""
    return Window("same")


def every(what: Duration | int) -> Every:
    """Emit what changed every so often ("5s", by the window's own time), or every n records."""
    if isinstance(what, int) and not isinstance(what, bool):
        if what < 1:
            raise InvalidPipeline(f"every({what!r}): a number of records from 1 on")
        return Every(records=what)
    return Every(micros=_positive(what, "every"))


def _positive(given: Any, what: str) -> int:
    micros = duration(given, what=what)
    if not micros:
        raise InvalidPipeline(f"{what}: a duration longer than zero, not {given!r}")
    return micros
