"""The ring: which slot owns which interval of the key space.

An interval is half-open, `[low, high)`, over 64-bit hashes. A ring is a sorted list of lower bounds
that begins at 0, and the slot of each. It is data: a plan names the ring that an epoch runs under.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from headrace.model.values.keys import HASH_SPACE

Hashes = np.ndarray[Any, np.dtype[np.uint64]]


class KeyInterval(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A half-open range of hashes, [low, high).

    It stores the last hash and not `high`, which may be 2**64 and so one more than
    MessagePack can carry.
    """

    low: int
    last: int

    @staticmethod
    def between(low: int, high: int) -> KeyInterval:
        """The interval [low, high)."""
        return KeyInterval(low, high - 1)

    @property
    def high(self) -> int:
        """The first hash after the interval."""
        return self.last + 1

    def overlap(self, other: KeyInterval) -> KeyInterval | None:
        """The interval that both share."""
        low, last = max(self.low, other.low), min(self.last, other.last)
        return KeyInterval(low, last) if low <= last else None


WHOLE = KeyInterval.between(0, HASH_SPACE)


class Ring(msgspec.Struct, frozen=True):
    """Lower bounds of the intervals, and the slot that owns each."""

    lows: tuple[int, ...]
    owners: tuple[int, ...]

    @staticmethod
    def even(slots: int) -> Ring:
        """One interval of equal length for each slot."""
        return Ring(tuple(HASH_SPACE * i // slots for i in range(slots)), tuple(range(slots)))

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots that own at least one interval, in order."""
        return tuple(sorted(set(self.owners)))

    def intervals(self, slot: int) -> tuple[KeyInterval, ...]:
        """The intervals that a slot owns."""
        highs = (*self.lows[1:], HASH_SPACE)
        return tuple(
            KeyInterval.between(low, high)
            for low, high, owner in zip(self.lows, highs, self.owners, strict=True)
            if owner == slot
        )

    def place(self, hashes: Hashes) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The slot of each hash."""
        lows = np.array(self.lows, np.uint64)
        owners = np.array(self.owners, np.int64)
        return owners[np.searchsorted(lows, hashes, side="right") - 1]
