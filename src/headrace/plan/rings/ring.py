"""The ring: which slot owns which interval of the key space, and in which class it owns it.

An interval is half-open, `[low, high)`, over 64-bit hashes. A ring is a sorted list of lower bounds
that begins at 0, with the slot and the class of each. A class is what came to a slot in one ring
change from one class of one slot (see `classes`).

A ring is immutable. It knows neither its version nor where it is stored: see `refs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from headrace.model.values.keys import HASH_SPACE
from headrace.plan.rings.wanted import Move

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

_LAST = np.uint64(HASH_SPACE - 1)
_ONE = np.uint64(1)


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


class SlotRecords(NamedTuple):
    """The intervals of one slot, in order, and the class of each."""

    lows: Hashes
    lasts: Hashes
    classes: Numbers

    def of(self, classes: Sequence[int]) -> SlotRecords:
        """The intervals of some of the classes."""
        chosen = np.isin(self.classes, classes)
        return SlotRecords(self.lows[chosen], self.lasts[chosen], self.classes[chosen])

    def have(self, hashes: Hashes) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each hash lies in one of the intervals."""
        if not len(self.lows):
            return np.zeros(len(hashes), np.bool_)
        at = np.searchsorted(self.lows, hashes, side="right") - 1
        return (at >= 0) & (hashes <= self.lasts[np.maximum(at, 0)])


NOWHERE = SlotRecords(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64))
"""No interval at all."""


class Ring:
    """Lower bounds of the intervals, the slot that owns each, and its class there."""

    __slots__ = ("_by_slot", "_records", "classes", "lows", "owners", "slots")

    def __init__(self, lows: Any, owners: Any, classes: Any) -> None:
        self.lows: Hashes = np.asarray(lows, np.uint64)
        self.owners: Numbers = np.asarray(owners, np.int64)
        self.classes: Numbers = np.asarray(classes, np.int64)
        self.slots: tuple[int, ...] = tuple(np.flatnonzero(np.bincount(self.owners)).tolist())
        """The slots that own at least one interval, in order."""
        self._by_slot: tuple[Numbers, Numbers] | None = None
        self._records: dict[int, SlotRecords] = {}

    @staticmethod
    def even(slots: int) -> Ring:
        """One interval of equal length for each slot, in a class with the slot's number."""
        lows = np.array([HASH_SPACE * i // slots for i in range(slots)], np.uint64)
        return Ring(lows, range(slots), range(slots))

    def __len__(self) -> int:
        return len(self.lows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("lows", "owners", "classes")
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ring({len(self)} intervals, slots {list(self.slots)})"

    @property
    def lasts(self) -> Hashes:
        """The last hash of each interval."""
        return np.append(self.lows[1:] - _ONE, _LAST)

    def records(self, slot: int) -> SlotRecords:
        """The intervals that a slot owns."""
        found = self._records.get(slot)
        if found is None:
            found = self._records[slot] = self._find_records(slot)
        return found

    def _find_records(self, slot: int) -> SlotRecords:
        if self._by_slot is None:
            order = np.argsort(self.owners, kind="stable")
            self._by_slot = order, self.owners[order]
        order, sorted_owners = self._by_slot
        first, end = np.searchsorted(sorted_owners, (slot, slot + 1))
        mine = order[first:end]
        following = mine + 1
        inside = following < len(self.lows)
        lasts = np.full(len(mine), _LAST)
        lasts[inside] = self.lows[following[inside]] - _ONE
        return SlotRecords(self.lows[mine], lasts, self.classes[mine])

    def place(self, hashes: Hashes) -> Numbers:
        """The slot of each hash."""
        return self.owners[np.searchsorted(self.lows, hashes, side="right") - 1]

    def cut(self, moves: Sequence[Move]) -> tuple[Ring, Numbers]:
        """The ring cut where moves begin and end, and for each interval where it is to go.

        An interval that no move names goes to its own slot. Moves are in order and do not overlap.
        """
        starts = np.array([move.low for move in moves], np.uint64)
        ends = np.array([move.last for move in moves], np.uint64)
        to = np.array([move.to for move in moves], np.int64)
        lows = with_cuts(self.lows, np.concatenate((starts, ends[ends != _LAST] + _ONE)))
        before = np.searchsorted(self.lows, lows, side="right") - 1
        ring = Ring(lows, self.owners[before], self.classes[before])
        goes = ring.owners.copy()
        if len(moves):
            at = np.searchsorted(starts, lows, side="right") - 1
            inside = (at >= 0) & (lows <= ends[np.maximum(at, 0)])
            goes[inside] = to[at[inside]]
        return ring, goes

    def with_classes(self, owners: Numbers, classes: Numbers) -> Ring:
        """The same intervals with other owners and classes; equal neighbours become one."""
        keep = np.ones(len(self.lows), np.bool_)
        keep[1:] = (owners[1:] != owners[:-1]) | (classes[1:] != classes[:-1])
        return Ring(self.lows[keep], owners[keep], classes[keep])


def with_cuts(lows: Hashes, cuts: Hashes) -> Hashes:
    """Lower bounds in order, with more of them; costs little where few are added."""
    cuts = np.sort(cuts)
    at = np.searchsorted(lows, cuts)
    new = np.ones(len(cuts), np.bool_)
    new[1:] = cuts[1:] != cuts[:-1]
    inside = at < len(lows)
    new[inside] &= lows[at[inside]] != cuts[inside]
    return np.insert(lows, at[new], cuts[new])
