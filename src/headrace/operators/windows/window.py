"""`Window`: the contract of a kind of window. Each kind is one class in its own file.

The rows of a window have the timestamp `end - 1`, so downstream they belong to the same window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from headrace.errors import InvalidPipeline
from headrace.model.values.time import END, Duration, duration
from headrace.operators.columns.groups import Groups, Ints, group
from headrace.operators.columns.records import Records

WINDOW_COLUMNS = ("window_start", "window_end")
"""The columns that name the window of a row."""

Assigned: TypeAlias = tuple[Ints, Ints, Ints]
"""For each (time, window): the position of the time, the window's start, its end."""


@dataclass(frozen=True)
class Every:
    """Emit changes at a period in microseconds, or after a number of records of a window."""

    micros: int = 0
    records: int = 0


def every(what: Duration | int) -> Every:
    """Emit changes at a period ("5s", in the window's kind of time), or every n records."""
    if isinstance(what, int) and not isinstance(what, bool):
        if what < 1:
            raise InvalidPipeline(f"every({what!r}): a number of records from 1 on")
        return Every(records=what)
    return Every(micros=positive(what, "every"))


class Window(ABC):
    """Which windows a record belongs to, as half-open ranges of time: [start, end).

    To write a kind of your own, derive from this class and implement `assign`:

    - It returns the windows of each time, in microseconds since 1970 UTC. Every time is inside its
      windows: `start <= time < end`.
    - The windows of a time depend only on that time: not on a clock, on random numbers, or on the
      other times of the call. Records are assigned in any task, and again after a crash.
    - Two windows are the same if start and end are equal.
    - Parameters are attributes, set in `__init__`, whose `repr` is the same in every process. It is
      stored beside open windows, so that a changed kind is detected (see `meaning`).

    The class attributes say what the kind can be combined with. The other methods have defaults
    that work for every kind; a kind overrides them if it knows a faster way.
    """

    overlapping: ClassVar[bool] = False
    """Whether a time may be in several windows. If not, `assign` returns exactly one for each."""

    merging: ClassVar[bool] = False
    """Whether windows of one key that overlap become one. Then only the slot knows a record's
    window, so the slot decides whether the record is late."""

    endless: ClassVar[bool] = False
    """Whether the windows close only with the end of all input. Rows have no window columns."""

    columns: ClassVar[tuple[str, ...]] = ()
    """The columns that name the window of a record, if it does not follow from the time."""

    event_time_only: ClassVar[bool] = False
    """Whether it cannot use ingestion or processing time."""

    final_only: ClassVar[bool] = False
    """Whether its rows are emitted once, when a window closes."""

    can_join: ClassVar[bool] = True
    """Whether records of two streams can be joined within its windows."""

    can_rank: ClassVar[bool] = True
    """Whether `top` can rank the records of its windows."""

    @property
    def name(self) -> str:
        """Its name in messages: the class's name in lower case."""
        return type(self).__name__.lower()

    @abstractmethod
    def assign(self, times: Ints) -> Assigned:
        """The windows of each time, as three arrays of one length: the position of the time among
        those given, the window's start, and its end. It is never called without any time."""

    def closes(self, ends: Ints, grace_us: int) -> Ints:
        """When windows with these ends close for good: records for them are late from then on."""
        return np.minimum(ends, END - grace_us) + grace_us

    def meaning(self) -> str:
        """Identifies the kind and all its parameters. State of another meaning is refused."""
        shown = f"{type(self).__name__}({vars(self)!r})"
        if " at 0x" in shown:
            raise InvalidPipeline(
                f"the window {shown:.120} has a parameter whose repr is another one in every "
                "process; make it a dataclass of plain values, or override meaning()"
            )
        return shown

    def computations(self, by: str, emit: str | Every) -> tuple[type[Any], type[Any]] | None:
        """The computations that aggregate it: with and without combining before the shuffle.

        None means the usual ones, `CombinedAggregate` and `WindowAggregate`.
        """
        return None

    # How records are combined ---------------------------------------------

    def pieces(self, times: Ints) -> tuple[Ints, Ints]:
        """Start and end of a piece around each time. All times of a piece are in the same windows.

        Records of one piece are aggregated together before they are assigned to its windows. If
        windows do not overlap, a piece is a window; otherwise, by default, an instant.
        """
        if self.overlapping:
            return times, times + 1
        of, starts, ends = self.windows_of(times)
        if len(of) != len(times) or not (of == np.arange(len(times))).all():
            raise InvalidPipeline(
                f"{self.name} windows: assign() gave {len(of)} windows for {len(times)} times. "
                "One for each, in their order, or overlapping = True in the class"
            )
        return starts, ends

    def pieces_of(self, records: Records) -> tuple[Ints, Ints]:
        """The piece of each record."""
        return self.pieces(records.times)

    def cut(self, records: Records) -> tuple[Groups, Ints, Ints]:
        """Records of one key and piece as groups, and the start and end of each group's piece."""
        starts, ends = self.pieces_of(records)
        groups = group([ends, starts, records.key])
        one = groups.one_row()
        return groups, starts[one], ends[one]

    def windows_of(self, times: Ints) -> Assigned:
        """The checked result of `assign`."""
        if not len(times):
            return times, times, times
        of, starts, ends = self.assign(times)
        given = times[of]
        inside = (starts <= given) & ((given < ends) | (ends == END))
        if not inside.all() or not np.bincount(of, minlength=len(times)).all():
            raise InvalidPipeline(
                f"{self.name} windows: assign() must give each time a window that it lies in, "
                "start <= time < end"
            )
        return of, starts, ends

    def last_ends(self, starts: Ints, ends: Ints) -> Ints:
        """The end of the last window that contains each of these pieces."""
        if not self.overlapping:
            return ends
        of, _, window_ends = self.windows_of(starts)
        return Groups(of, len(starts)).newest(window_ends)


def positive(given: Any, what: str) -> int:
    """A duration in microseconds, longer than zero."""
    micros = duration(given, what=what)
    if not micros:
        raise InvalidPipeline(f"{what}: a duration longer than zero, not {given!r}")
    return micros
