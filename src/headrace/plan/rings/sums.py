"""Sums over all manifests, kept in step with commits, so that no epoch looks at all slots (J13).

The tally counts how many entries name each file. A file that loses its last entry has left the
manifests; whoever collects files asks for those that have. It holds no truth of its own: it can be
made again from the manifests at any time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from headrace.plan.rings.classes import SegmentSlice, SlotLedger

Slots = Mapping[str, Mapping[int, SlotLedger]]


class ManifestSums:
    """Files, bytes, log positions and wall-time timers of all slots."""

    def __init__(self, slots: Slots) -> None:
        self.bytes = 0
        self.files: dict[str, int] = {}
        """Segment -> how many entries name it."""
        self.left: list[str] = []
        """Segments that lost their last entry since the last `take_left`."""
        self._riding: dict[int, int] = {}
        self._positions: list[int] = []
        self._timers: list[tuple[int, str, int]] | None = []
        """A heap of (when, computation, slot), also of times that no longer hold; None: to be
        made from the manifests, once commits change few of them."""
        self._earliest: int | None = None
        """The earliest timer, while there is no heap and `_is_known`."""
        self._is_known = False
        self._most_changed = False
        for name, of_name in slots.items():
            for slot, state in of_name.items():
                self.replaced(name, slot, None, state)

    def add(self, entries: Iterable[SegmentSlice]) -> None:
        """Manifests got entries."""
        files, riding = self.files, self._riding
        for entry in entries:
            segment = entry.segment
            if segment in files:
                files[segment] += 1
                continue
            files[segment] = 1
            self.bytes += entry.bytes
            if at := entry.at:
                if at not in riding:
                    riding[at] = 0
                    heapq.heappush(self._positions, at)
                riding[at] += 1

    def remove(self, entry: SegmentSlice) -> None:
        """A manifest lost an entry."""
        known = self.files[entry.segment]
        if known > 1:
            self.files[entry.segment] = known - 1
            return
        del self.files[entry.segment]
        self.left.append(entry.segment)
        self.bytes -= entry.bytes
        if entry.at:
            self._riding[entry.at] -= 1
            if not self._riding[entry.at]:
                del self._riding[entry.at]

    def timers(self, name: str, found: Sequence[int], slots: Mapping[int, SlotLedger]) -> None:
        """Some slots of a computation have another earliest wall-time timer.

        Where most have, in commit after commit, no heap is kept at all: to look at every slot once
        is cheaper than a push and a pop for each.
        """
        self._is_known = False
        self._most_changed = len(found) * 8 > len(slots) + 64
        if self._most_changed:
            self._timers = None
        elif self._timers is not None:
            for slot in found:
                if (at := slots[slot].next_wall_timer) is not None:
                    heapq.heappush(self._timers, (at, name, slot))

    def replaced(
        self, name: str, slot: int, before: SlotLedger | None, after: SlotLedger | None
    ) -> None:
        """A slot has another manifest."""
        old = () if before is None else before.entries
        new = () if after is None else after.entries
        if old is not new:
            self.add(new)
            for entry in old:
                self.remove(entry)
        timer = None if after is None else after.next_wall_timer
        changed = before is None or timer != before.next_wall_timer
        if changed:
            self._is_known = False
        if changed and timer is not None and self._timers is not None:
            heapq.heappush(self._timers, (timer, name, slot))

    def take_left(self) -> list[str]:
        """The segments that have left the manifests since the last call."""
        left, self.left = self.left, []
        return [name for name in left if name not in self.files]

    def rides_from(self) -> int | None:
        """The first log position whose entry holds a segment; None if there is none."""
        while self._positions and self._positions[0] not in self._riding:
            heapq.heappop(self._positions)
        return self._positions[0] if self._positions else None

    def next_wall_timer(self, slots: Slots) -> int | None:
        """When the earliest wall-time timer of all slots is due."""
        timers = self._timers
        if timers is None and self._most_changed:
            if not self._is_known:
                times = [
                    state.next_wall_timer for each in slots.values() for state in each.values()
                ]
                self._earliest = min([at for at in times if at is not None], default=None)
                self._is_known = True
            return self._earliest
        if timers is None or len(timers) > 1024 + 4 * sum(map(len, slots.values())):
            timers = self._timers = [  # most were out of date
                (at, name, slot)
                for name, of_name in slots.items()
                for slot, state in of_name.items()
                if (at := state.next_wall_timer) is not None
            ]
            heapq.heapify(timers)
        while timers:
            at, name, slot = timers[0]
            state = slots.get(name, {}).get(slot)
            if state is not None and state.next_wall_timer == at:
                return at
            heapq.heappop(timers)
        return None
