"""How many records an epoch should read: back-pressure by epoch size. Pure.

An epoch costs a fixed time (Spark's stages, the commit) and a time per record. Both are estimated
by a line through the last epochs. The size is chosen so that the epoch takes its target time, but
never so small that the fixed cost exceeds the work: a loaded machine would otherwise spend its time
on ever smaller epochs.

The cost of a record is unknown at the start: a hook may take a second. So the first epochs are
small, and each is at most ten times as large as the one before while the cost is being measured.
Cheap records are read at full size after four or five epochs; expensive ones are committed early.
A driver that takes over begins with the size that its predecessor has committed.
"""

from __future__ import annotations

import msgspec

from headrace.plan.options import Options

RECORDS_MIN = 1
RECORDS_MAX = 4_000_000
FIRST = 50

BEGINNING = 6
"""How many epochs belong to the beginning, in which sizes change by larger steps."""
FIRST_STEP = 10.0
SHRINK, GROW = 0.5, 3.0
"""The steps after the beginning."""
STARTING = 10.0
"""The start of workers takes less than this multiple of the target; longer means slow records."""

MEMORY = 0.85
"""The weight of an epoch relative to the next one."""
SPREAD_MIN = 0.2
"""Sizes must differ by this share: epochs of one size tell nothing about the fixed cost."""

EXPLORE = 1.5
"""How much larger the next epoch is if sizes were too similar to find the fixed cost."""


class Pace(msgspec.Struct):
    """Chooses the size of the next epoch."""

    target_s: float
    fixed: int | None = None
    records: int = FIRST
    overhead_s: float = 0.0
    """The estimated fixed cost of an epoch."""
    _epochs: int = 0
    _sums: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)
    """Decaying sums of 1, records, seconds, records squared and records times seconds."""

    @staticmethod
    def after(recent_records: int, options: Options) -> Pace:
        """The pace of a new driver, after epochs of this size."""
        first = min(max(FIRST, recent_records), RECORDS_MAX)
        return Pace(options.epoch_target_s, options.epoch_records, first)

    def next(self) -> int:
        """How many records the next epoch should read."""
        return self.fixed if self.fixed is not None else self.records

    def took(self, records: int, seconds: float, planned: int = 0) -> None:
        """Learns that an epoch of `records` took `seconds`.

        `planned`: how many its sources thought that they offer. They may be wrong by far.
        """
        self._epochs += 1
        if self._epochs == 1:
            # Workers were starting: the first epoch says little about the speed.
            if seconds > STARTING * self.target_s:
                share = STARTING * self.target_s / seconds
                self.records = max(RECORDS_MIN, int(min(records, self.records) * share))
            return
        per_record = self._learn(records, seconds)
        if max(records, planned) < self.records // 2:
            return  # there was no more to read
        begins = self._epochs <= BEGINNING
        wanted = max(self.target_s - self.overhead_s, self.overhead_s) / per_record
        if not self._informed() and seconds < 2 * self.target_s:
            wanted = max(wanted, (GROW if begins else EXPLORE) * self.records)
        grow, shrink = (FIRST_STEP, 1 / FIRST_STEP) if begins else (GROW, SHRINK)
        wanted = min(grow * self.records, max(shrink * self.records, wanted))
        self.records = int(min(RECORDS_MAX, max(RECORDS_MIN, wanted)))

    def _learn(self, records: int, seconds: float) -> float:
        """Learns from an epoch; returns the time per record, without the fixed cost."""
        new = (1.0, records, seconds, records * records, records * seconds)
        n, x, y, xx, xy = (MEMORY * old + more for old, more in zip(self._sums, new, strict=True))
        self._sums = (n, x, y, xx, xy)
        if self._informed():
            slope = (n * xy - x * y) / (n * xx - x * x)
            self.overhead_s = (y - slope * x) / n
        self.overhead_s = min(max(self.overhead_s, 0.0), 0.9 * y / n)
        return max((y - n * self.overhead_s) / max(x, 1.0), 1e-9)

    def _informed(self) -> bool:
        """Whether the last epochs differed enough in size to separate fixed cost from work."""
        n, x, _, xx, _ = self._sums
        return n * xx - x * x > (SPREAD_MIN * x) ** 2

    def halve(self) -> None:
        """Halves the size after an epoch failed because of its size or its substrate."""
        self.records = max(RECORDS_MIN, self.records // 2)
        if self.fixed is not None:
            self.fixed = max(1, self.fixed // 2)
