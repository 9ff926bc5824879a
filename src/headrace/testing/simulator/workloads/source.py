"""A source whose records are known in advance and appear in steps, in several splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.errors import SourceError
from headrace.model.source import Range, Reading, Source, Timing


class SimulatedSource(Source):
    """The records of each split; `shown` of them have arrived so far."""

    def __init__(self, timing: Timing, records: Mapping[str, Sequence[Any]]) -> None:
        self.timing = timing
        self.bounded = True
        self._records = {split: list(values) for split, values in records.items()}
        self._shown = dict.fromkeys(self._records, 0)
        self._released = dict.fromkeys(self._records, 0)
        self.forgets = False
        """Whether it cannot read again what was released."""

    def show(self, split: str, more: int) -> None:
        """More records arrive."""
        self._shown[split] = min(self._shown[split] + more, len(self._records[split]))

    @property
    def complete(self) -> bool:
        """Whether everything has arrived."""
        return all(self._shown[s] == len(values) for s, values in self._records.items())

    def splits(self) -> Sequence[str]:
        return list(self._records)

    def plan(self, split: str, start: int, records: int) -> Range | None:
        whole = len(self._records[split])
        end = min(self._shown[split], start + max(records, 1))
        if start == end and end < whole:
            return None
        return Range(start, end, end - start, last=end == whole)

    def release(self, split: str, position: int) -> None:
        self._released[split] = max(position, self._released[split])

    def reaches(self, split: str) -> int | None:
        return self._shown[split]

    def read(self, split: str, range: Range) -> Reading:
        if self.forgets and range.start < min(range.end, self._released[split]):
            raise SourceError(f"{split} is released up to {self._released[split]}")
        values = self._records[split][range.start : range.end]
        return Reading(np.arange(range.start, range.end, dtype=np.int64), values=values)

    def describe(self) -> str:
        return "simulated"
