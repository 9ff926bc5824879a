"""Live timed cells in memory (timers, holds, waiting records), by time and by hold.

The index is always at a committed epoch. The changes of a task are kept beside it, in a plain
dict, until the task's delta is known to be committed, so a rollback only drops that dict. Two heaps
with lazy deletion find the cells that are due, and the earliest hold on the watermark, without
reading the other cells. Whether these are all cells of the slot, `windowed.py` knows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

from headrace.state.view import CellId

Timed = tuple[int, int]
"""(time, hold)."""

Changes = Mapping[CellId, Timed | None]


class TimeIndex:
    """One kind's cells, by key, by time and by hold."""

    __slots__ = ("_by_hold", "_by_time", "_keys", "_size")

    def __init__(self) -> None:
        self._keys: dict[bytes, dict[tuple[str, bytes], Timed]] = {}
        self._size = 0
        self._by_time: list[tuple[int, CellId]] = []
        self._by_hold: list[tuple[int, CellId]] = []

    @staticmethod
    def of(cells: Mapping[CellId, Timed]) -> TimeIndex:
        """An index of these cells."""
        index = TimeIndex()
        for (key, field, entry), timed in cells.items():
            index._keys.setdefault(key, {})[field, entry] = timed
        index._size = len(cells)
        index._rebuild()
        return index

    def __len__(self) -> int:
        return self._size

    def get(self, cell: CellId) -> Timed | None:
        """The committed (time, hold) of a cell."""
        of_key = self._keys.get(cell[0])
        return None if of_key is None else of_key.get((cell[1], cell[2]))

    def of_key(self, key: bytes) -> list[CellId]:
        """The committed cells of a key."""
        return [(key, field, entry) for field, entry in self._keys.get(key, ())]

    def _rebuild(self) -> None:
        self._by_time, self._by_hold = [], []
        for key, cells in self._keys.items():
            for (field, entry), (time, hold) in cells.items():
                self._by_time.append((time, (key, field, entry)))
                self._by_hold.append((hold, (key, field, entry)))
        heapq.heapify(self._by_time)
        heapq.heapify(self._by_hold)

    def apply(self, changes: Changes) -> None:
        """Applies committed changes."""
        for cell, timed in changes.items():
            key, place = cell[0], (cell[1], cell[2])
            of_key = self._keys.get(key)
            if timed is None:
                if of_key is not None and of_key.pop(place, None) is not None:
                    self._size -= 1
                    if not of_key:
                        del self._keys[key]
                continue
            if of_key is None:
                of_key = self._keys[key] = {}
            self._size += place not in of_key
            of_key[place] = timed
            heapq.heappush(self._by_time, (timed[0], cell))
            heapq.heappush(self._by_hold, (timed[1], cell))
        if len(self._by_time) > 2 * self._size + 64:
            self._rebuild()

    def keys(self) -> list[bytes]:
        """The keys that have cells."""
        return list(self._keys)

    def drop(self, keys: Iterable[bytes]) -> None:
        """Removes all cells of some keys."""
        gone = 0
        for key in keys:
            gone += len(self._keys.pop(key, ()))
        if gone:
            self._size -= gone
            self._rebuild()

    def due(self, limit: int) -> list[tuple[int, CellId]]:
        """All live cells with time <= limit, in time order."""
        heap = self._by_time
        found: set[tuple[int, CellId]] = set()
        todo = [0] if heap and heap[0][0] <= limit else []
        while todo:
            at = todo.pop()
            time, cell = heap[at]
            live = self.get(cell)
            if live is not None and live[0] == time:
                found.add((time, cell))
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(heap) and heap[child][0] <= limit:
                    todo.append(child)
        return sorted(found)

    def first(self, count: int) -> list[tuple[int, CellId]]:
        """About `count` of the earliest live cells, in time order."""
        found = heapq.nsmallest(2 * count, self._by_time)
        return [(t, cell) for t, cell in found if (live := self.get(cell)) and live[0] == t][:count]

    def items(self) -> Iterator[tuple[CellId, Timed]]:
        """All live cells."""
        for key, cells in self._keys.items():
            for (field, entry), timed in cells.items():
                yield (key, field, entry), timed

    def earliest_hold(self, without: Changes) -> int | None:
        """The lowest hold of all cells but those in `without`."""
        return self._first(self._by_hold, 1, without)

    def earliest_time(self, without: Changes) -> int | None:
        """The lowest time of all cells but those in `without`."""
        return self._first(self._by_time, 0, without)

    def _first(self, heap: list[tuple[int, CellId]], which: int, changes: Changes) -> int | None:
        """The smallest live value outside of `changes`, by a best-first search of the heap."""
        frontier = [(heap[0], 0)] if heap else []
        while frontier:
            (value, cell), at = heapq.heappop(frontier)
            live = self.get(cell)
            if live is not None and live[which] == value and cell not in changes:
                return value
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(heap):
                    heapq.heappush(frontier, (heap[child], child))
        return None
