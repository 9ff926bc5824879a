"""How many records an epoch should take: back-pressure by epoch size. Pure.

An epoch costs a fixed time (Spark's stages, the commit) and a time per record.
Both are estimated, and the size is chosen so that the epoch takes its target
time; but never so small that the fixed cost outweighs the work, as a loaded
machine would otherwise spend itself on ever smaller epochs.
"""

from __future__ import annotations

import msgspec

RECORDS_MIN = 100
RECORDS_MAX = 4_000_000
FIRST = 10_000


class Pace(msgspec.Struct):
    """The size of the next epoch."""

    target_s: float
    fixed: int | None = None
    records: int = FIRST
    overhead_s: float | None = None
    """The estimated fixed cost: the fastest epoch seen, forgotten slowly."""

    def next(self) -> int:
        """Records for the next epoch."""
        return self.fixed if self.fixed is not None else self.records

    def took(self, records: int, seconds: float) -> None:
        """An epoch of `records` took `seconds`."""
        if self.overhead_s is None:
            self.overhead_s = seconds
            return  # workers were starting: the first epoch tells nothing about the pace
        self.overhead_s = min(seconds, self.overhead_s * 1.05)
        if records < self.records // 2:
            return  # there was not more to read, which tells nothing either
        work = max(seconds - self.overhead_s, 0.05 * seconds)
        wanted = max(self.target_s - self.overhead_s, self.overhead_s) * records / work
        wanted = min(3.0 * self.records, max(0.5 * self.records, wanted))
        self.records = int(min(RECORDS_MAX, max(RECORDS_MIN, wanted)))

    def halve(self) -> None:
        """An epoch failed for its size or its substrate: try a smaller one."""
        self.records = max(RECORDS_MIN, self.records // 2)
        if self.fixed is not None:
            self.fixed = max(1, self.fixed // 2)
