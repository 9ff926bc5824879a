"""The source with which a harness replaces each source of a pipeline.

Its items are records and ticks. A tick says that time has passed: nothing older than its floor
will come. Positions count items, so marks are a function of positions alone and a replay computes
the same marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.errors import InvalidPipeline
from headrace.model.source import Range, Reading, Source, Timing, cell_of
from headrace.model.values.time import BEGINNING, LATEST

SPLIT = "harness"


class HarnessSource(Source):
    """Records that a test sends."""

    def __init__(self, timing: Timing, clock: Any) -> None:
        self.timing = timing
        self.bounded = True
        self._clock = clock
        self._items: list[tuple[Any, int] | None] = []
        self._floors: list[int] = []
        self._ended = False
        self.front: int | None = None
        """The time of the newest record plus the time that has passed since."""

    def send(self, value: Any) -> None:
        """Adds a record."""
        newest = self._newest(value)
        if newest is not None:
            self.front = newest if self.front is None else max(self.front, newest)
        self._items.append((value, self._clock()))
        self._floors.append(max(self.floor, (self.front or 0) - self.timing.lateness_us))

    def tick(self, micros: int, silent: int) -> None:
        """Time passes: the floor rises from the newest record on, or to `silent` without one."""
        self.front = silent if self.front is None else self.front + micros
        self._items.append(None)
        self._floors.append(max(self.floor, self.front))

    def end(self) -> None:
        """Ends the source."""
        self._ended = True

    @property
    def floor(self) -> int:
        """Nothing older than this will come."""
        return self._floors[-1] if self._floors else 0

    def _newest(self, value: Any) -> int | None:
        given = self.timing.timestamp
        if given is None:
            return int(self._clock())
        try:
            raw = cell_of(value, given) if isinstance(given, str) else given(value)
            micros = self.timing.micros(raw)
        except Exception:
            return None  # the reader rejects it, by the injector's policy
        return micros if BEGINNING <= micros < LATEST else None

    def splits(self) -> Sequence[str]:
        return [SPLIT]

    def plan(self, split: str, start: int, records: int) -> Range | None:
        end = min(len(self._items), start + max(records, 1))
        if start == end and not self._ended:
            return None
        return Range(start, end, end - start, last=self._ended and end == len(self._items))

    def reaches(self, split: str) -> int | None:
        return len(self._items)

    def read(self, split: str, range: Range) -> Reading:
        chosen = [
            (i, item)
            for i, item in enumerate(self._items[range.start : range.end], range.start)
            if item
        ]
        values = [item[0] for _, item in chosen]
        stamps = None
        if self.timing.timestamp is None:
            stamps = np.array([item[1] for _, item in chosen], np.int64)
        positions = np.array([i for i, _ in chosen], np.int64)
        return Reading(positions, values=values, timestamps=stamps)

    def low_watermark(self, split: str, position: int) -> int | None:
        return self._floors[position - 1] if position else 0

    def describe(self) -> str:
        return "harness"


def replaced(source: Source, clock: Any) -> HarnessSource:
    """A harness source with the timing of another."""
    if not isinstance(source, Source):
        raise InvalidPipeline(f"{source!r} is not a source")
    return HarnessSource(source.timing, clock)
