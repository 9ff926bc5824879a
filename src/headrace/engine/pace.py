"""How many records an epoch should take: back-pressure by epoch size. Pure.

The size follows the pace at which the last epochs went, so that an epoch takes
about its target time. A fixed cost per epoch is part of every measurement, so
growth is damped; a slow epoch takes effect at once.
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
    warm: bool = False

    def next(self) -> int:
        """Records for the next epoch."""
        return self.fixed if self.fixed is not None else self.records

    def took(self, records: int, seconds: float) -> None:
        """An epoch of `records` took `seconds`."""
        if records < self.records // 2:
            return  # there was not more to read: that says nothing about the pace
        if not self.warm:
            self.warm = True
            return  # workers were starting: the first epoch tells nothing either
        factor = self.target_s / max(seconds, 0.001)
        wanted = self.records * min(3.0, max(0.25, factor))
        self.records = int(min(RECORDS_MAX, max(RECORDS_MIN, wanted)))

    def halve(self) -> None:
        """An epoch failed for its size or its substrate: try a smaller one."""
        self.records = max(RECORDS_MIN, self.records // 2)
        if self.fixed is not None:
            self.fixed = max(1, self.fixed // 2)
