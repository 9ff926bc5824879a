"""Low watermarks: pure arithmetic over marks.

A *mark* describes the output of a task: `bound` (no older record will follow; None if nothing
bounds it) and `newest` (the newest time that the task has seen). Rules D1, D4 and D6 of the
protocol are implemented here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from headrace.model.values.time import BEGINNING, END


class Mark(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A bound that may be absent, and the newest time seen."""

    bound: int | None
    newest: int

    @property
    def value(self) -> int:
        """The watermark that this mark implies."""
        return self.newest if self.bound is None else self.bound

    def at_least(self, committed: int) -> Mark:
        """This mark, but never behind the committed watermark."""
        if self.bound is None:
            return Mark(None, max(self.newest, committed))
        return Mark(max(self.bound, committed), max(self.newest, committed))

    def lagging(self, lag_us: int) -> Mark:
        """This mark for a computation that may produce `lag_us` behind it, unless it is final."""
        if not lag_us or self.value == END:
            return self
        bound = None if self.bound is None else max(self.bound - lag_us, BEGINNING)
        return Mark(bound, max(self.newest - lag_us, BEGINNING))

    def held(self, hold: int | None) -> Mark:
        """This mark, kept back by the oldest hold."""
        if hold is None or hold >= END:
            return self
        return Mark(min(self.value, hold), self.newest)


BUCKETS_MAX = 512

UNBOUNDED = Mark(None, BEGINNING)
FINAL = Mark(END, END)


def merge(marks: Iterable[Mark]) -> Mark:
    """The mark of several producers together: the lowest bound, or else the newest time seen."""
    found = list(marks)
    bounds = [mark.bound for mark in found if mark.bound is not None]
    newest = max([mark.newest for mark in found], default=BEGINNING)
    return Mark(min(bounds, default=None), max(newest, BEGINNING))


def feedback_input(previous: int, forward: Iterable[int], oldest_feedback: int | None) -> int:
    """in(e) of a computation with a feedback input: one epoch behind (D6)."""
    floor = min(forward, default=END)
    if oldest_feedback is not None:
        floor = min(floor, oldest_feedback)
    return max(previous, floor)


class Histogram(msgspec.Struct):
    """A mergeable histogram of timestamps: buckets of 2**shift microseconds."""

    shift: int = 0
    counts: dict[int, int] = {}

    @staticmethod
    def of(timestamps: np.ndarray[Any, np.dtype[np.int64]]) -> Histogram:
        """The histogram of these timestamps."""
        shift = 0
        buckets, counts = np.unique(timestamps, return_counts=True)
        while len(buckets) > BUCKETS_MAX:
            shift += 1
            buckets, inverse = np.unique(buckets >> 1, return_inverse=True)
            counts = np.bincount(inverse, weights=counts).astype(np.int64)
        return Histogram(shift, dict(zip(buckets.tolist(), counts.tolist(), strict=True)))

    def merge(self, other: Histogram) -> None:
        """Adds another histogram to this one."""
        shift = max(self.shift, other.shift)
        merged: dict[int, int] = {}
        for histogram in (self, other):
            for bucket, count in histogram.counts.items():
                at = bucket >> (shift - histogram.shift)
                merged[at] = merged.get(at, 0) + count
        self.shift, self.counts = shift, merged
        self._shrink()

    def quantile(self, share: float) -> int | None:
        """The lower edge of the bucket below which at most `share` of the timestamps lie."""
        total = sum(self.counts.values())
        below = 0
        for bucket in sorted(self.counts):
            if below + self.counts[bucket] > share * total:
                return bucket << self.shift
            below += self.counts[bucket]
        return None

    def _shrink(self) -> None:
        while len(self.counts) > BUCKETS_MAX:
            self.shift += 1
            halved: dict[int, int] = {}
            for bucket, count in self.counts.items():
                halved[bucket >> 1] = halved.get(bucket >> 1, 0) + count
            self.counts = halved
