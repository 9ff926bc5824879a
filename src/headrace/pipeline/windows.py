"""Windows and when they are emitted, as users name them.

A window is half-open, [start, end). All are aligned to 1970 UTC. Its rows are stamped
`end - 1`, so they fall into their own window downstream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.model.time import Duration, duration


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
