"""What is normal for a query at a time of day, learned from the stream.

A day has 24 slots, and each slot of each query has a *level*: the smoothed square root of its past
counts. Square roots, because a count scatters with the square root of its size: a busy query and a
quiet one, noon and midnight then all scatter alike, and one *spread* per query describes them.

All functions are pure, so the pipeline and the plain-Python reference share them to the last bit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from headrace.model.values.time import HOUR, MINUTE

BUCKET = HOUR
BUCKETS_PER_DAY = 24


class Rhythm(NamedTuple):
    """How time is cut into buckets, and after how many of them the same is expected again."""

    bucket: int = BUCKET
    """In microseconds."""
    cycle: int = BUCKETS_PER_DAY

    def slot_of(self, bucket: int) -> int:
        """The place of a bucket in the cycle: the time of day, if that is a day."""
        return bucket % self.cycle


DAILY = Rhythm()
STEADY = Rhythm(30 * MINUTE, 1)
"""Each half hour is expected to be like those before it: for input of a single day."""

LEVEL_RATE = 0.3
SPREAD_RATE = 0.02
# Chance alone gives the root of a count a spread of 1/2; and a level that rests on a single day
# scatters as much again, so the two together have a spread of 1/2 * sqrt(2).
SPREAD_MIN = 0.7
# Beyond five times the spread it is not chance: less than once in a million buckets.
SPREADS_ALLOWED = 5.0
# With this offset (Anscombe's) the root behaves down to the smallest counts.
ROOT_OFFSET = 0.375


def root(count: int) -> float:
    """A count on the scale on which levels and spreads are kept."""
    return math.sqrt(count + ROOT_OFFSET)


def dip_limit(level: float, spread: float) -> int:
    """Counts below this are a dip; 0 where normal counts are too small to prove a dip."""
    low = level - SPREADS_ALLOWED * spread
    return max(0, math.ceil(low * low - ROOT_OFFSET)) if low > 0 else 0


def spike_limit(level: float, spread: float) -> int:
    """Counts above this are a spike."""
    high = level + SPREADS_ALLOWED * spread
    return math.floor(high * high - ROOT_OFFSET)


def learn(level: float | None, spread: float, count: int) -> tuple[float, float]:
    """The level and spread after a bucket with `count`.

    A surprise moves them only as far as the limits: one spike must not make tomorrow's ordinary
    hour look like a dip, and yet a query that has changed for good is followed within days.
    """
    if level is None:
        return root(count), spread
    allowed = SPREADS_ALLOWED * spread
    surprise = min(max(root(count) - level, -allowed), allowed)
    # The mean distance of a normal scatter is 0.8 of its spread, hence the factor.
    spread += SPREAD_RATE * (1.25 * abs(surprise) - spread)
    return level + LEVEL_RATE * surprise, max(spread, SPREAD_MIN)
