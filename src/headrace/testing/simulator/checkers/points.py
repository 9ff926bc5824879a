"""Which segments count at 64 points of the key space, as the log says. Shares no engine code.

The intervals of a simulation's rings begin and end at these points, so a segment that counts at a
point counts in the interval around it. Each point knows its slot, its class, since when the slot
has owned it, and the segments that count there: its slot's own, and those that it brought along.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Any, NamedTuple

import msgspec

POINTS = 64
_STEP = 2**64 // POINTS


class Counted(NamedTuple):
    """A segment that counts at a point."""

    segment: str
    brought: bool
    """Whether the point brought it along when it came to its slot."""


class Point:
    """One point of the key space."""

    def __init__(self, slot: int) -> None:
        self.slot, self.of, self.since = slot, slot, 0
        self.counted: list[Counted] = []


class Points:
    """All points of one computation."""

    def __init__(self, slots: int) -> None:
        """Under the even ring of so many slots."""
        lows = [2**64 * i // slots for i in range(slots)]
        self._points = [
            Point(max(i for i, low in enumerate(lows) if low <= at * _STEP)) for at in range(POINTS)
        ]
        self._merged: set[int] = set()
        """Where a segment of the last merge counted."""

    @property
    def slots(self) -> set[int]:
        """The slots that have points."""
        return {point.slot for point in self._points}

    def move(self, moves: list[list[int]], classes: list[list[int]], epoch: int) -> None:
        """Points change their slots; they take along what counts there."""
        new = {(to, before): after for to, before, after in classes}
        for low, last, to in moves:
            for at, point in enumerate(self._points):
                if low <= at * _STEP <= last and point.slot != to:
                    point.of = new[to, point.of]
                    point.slot, point.since = to, epoch
                    point.counted = [Counted(each.segment, True) for each in point.counted]

    def read(self, data: bytes) -> bool:
        """Takes the classes from a ring object; returns whether it gives each point its slot."""
        _, lows, owners, classes = msgspec.msgpack.decode(data)
        starts = list(struct.unpack(f"<{len(lows) // 8}Q", lows))
        slots = struct.unpack(f"<{len(starts)}i", owners)
        names = struct.unpack(f"<{len(starts)}q", classes)
        for at, point in enumerate(self._points):
            place = bisect_right(starts, at * _STEP) - 1
            if slots[place] != point.slot:
                return False
            point.of = names[place]
        return True

    def delta(self, slot: int, segment: str | None, epoch: int) -> None:
        """A slot has a new segment."""
        for point in self._points:
            if segment is not None and point.slot == slot:
                point.counted.append(Counted(segment, False))

    def adopt(self, adoption: dict[str, Any]) -> int | None:
        """A merge replaces segments; returns a point where something counted and nothing does.

        The result counts where one of them did: it has no rows elsewhere. A result in pieces has
        one adoption for each, of which only the first names what they replace.
        """
        replaced = {(segment, of) for segment, of in adoption["replaces"]}
        result, last = adoption["entry"]["segment"], adoption["entry"]["last_epoch"]
        lost: int | None = None
        if replaced:
            self._merged = set()
        for at, point in enumerate(self._points):
            if point.slot != adoption["slot"]:
                continue
            kept = [
                each
                for each in point.counted
                if (each.segment, point.of if each.brought else None) not in replaced
            ]
            if len(kept) < len(point.counted):
                self._merged.add(at)
            if at not in self._merged:
                continue
            if point.since <= last:
                kept.append(Counted(result, False))
            elif point.of in adoption["classes"]:
                kept.append(Counted(result, True))
            else:
                lost = at
            point.counted = kept
        return lost

    def replace(self, slot: int, entries: list[dict[str, Any]]) -> None:
        """A person has accepted or dropped state: these entries are the slot's manifest now."""
        for point in self._points:
            if point.slot == slot:
                own = [e for e in entries if e.get("of") is None]
                brought = [e for e in entries if e.get("of") == point.of and "of" in e]
                point.counted = [
                    Counted(e["segment"], False) for e in own if e["last_epoch"] >= point.since
                ] + [Counted(e["segment"], True) for e in brought]

    def segments(self) -> set[str]:
        """Every segment that counts somewhere."""
        return {each.segment for point in self._points for each in point.counted}
