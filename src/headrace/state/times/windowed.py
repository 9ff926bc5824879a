"""One index of a slot's timed cells, of which only the earliest are in memory.

The index has a window: two places, one in the order of times and one in the order of holds.
Invariants, at the commit of the view that it is bound to:

1. Every cell in memory is live, with its committed time and hold.
2. Every live cell up to either place is in memory, in the order of holds every one that holds at
   all. Cells behind both places may be there too.

Without places the window is open: all live cells are in memory. Small slots stay like that, and
never look at the orders of their segments. A window grows when a question goes beyond it, and is
made narrower only between tasks. So what is due is in memory, as the task that asks for it needs
it there, and the rest stays in mapped files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.limits import LIMITS
from headrace.model.values.keys import HASH_SPACE, hash_key
from headrace.model.values.time import END
from headrace.state.times.far import (
    FIRST,
    Found,
    Place,
    after_all,
    cells_of_keys,
    cells_until,
    kind_of,
    next_cells,
)
from headrace.state.times.timeindex import Changes, Timed, TimeIndex
from headrace.state.view import CellId, SlotView

TouchedKeys = dict[bytes, dict[tuple[int, CellId], Timed | None]]


class KeysOfTask:
    """The timers and holds of the keys that a task touches, read at once at the first question."""

    def __init__(self, view: SlotView, step: int = LIMITS.window_cells) -> None:
        self.view = view
        self.step = step
        """About how many cells a window grows by."""
        self._expected: tuple[Sequence[bytes], Any] | None = None
        self._known: TouchedKeys = {}

    def expect(self, keys: Sequence[bytes], hashes: np.ndarray[Any, Any] | None = None) -> None:
        """The task will touch these keys."""
        self._expected = (keys, hashes)

    def of_key(self, key: bytes) -> dict[tuple[int, CellId], Timed | None]:
        """The timers and holds of a key."""
        if key not in self._known and self._expected is not None:
            keys, hashes = self._expected
            self._expected = None
            if hashes is None:
                hashes = np.fromiter(map(hash_key, keys), np.uint64, len(keys))
            self._known.update(cells_of_keys(self.view, keys, hashes))
        if key not in self._known:
            hashes = np.array([hash_key(key)], np.uint64)
            self._known.update(cells_of_keys(self.view, [key], hashes))
        return self._known[key]


class WindowedIndex:
    """The timed cells of one index of a slot, by key, by time and by hold."""

    __slots__ = ("_holds_to", "_keys", "_name", "_near", "_times_to")

    def __init__(self, name: str, cells: Mapping[CellId, Timed] | None = None) -> None:
        """An index with all of its cells in memory, or with none (None)."""
        self._name = name
        self._near = TimeIndex.of(cells or {})
        self._times_to: Place | None = FIRST if cells is None else None
        self._holds_to: Place | None = self._times_to
        self._keys: KeysOfTask | None = None

    def bind(self, keys: KeysOfTask) -> None:
        """A task begins, at the view of `keys`."""
        self._keys = keys

    @property
    def is_open(self) -> bool:
        """Whether all cells are in memory."""
        return self._times_to is None

    @property
    def is_closed(self) -> bool:
        """Whether nothing is known of its cells."""
        return self._times_to == self._holds_to == FIRST

    def __len__(self) -> int:
        """How many cells are in memory."""
        return len(self._near)

    def get(self, cell: CellId) -> Timed | None:
        """The committed (time, hold) of a cell."""
        found = self._near.get(cell)
        if found is not None or self._times_to is None:
            return found
        if self._name == "waiting":
            raise LookupError("waiting records are looked for by time, and not by key")
        return self._of_task.of_key(cell[0]).get((kind_of(self._name), cell))

    def of_key(self, key: bytes) -> list[CellId]:
        """The committed cells of a key."""
        if self._times_to is None:
            return self._near.of_key(key)
        kind = kind_of(self._name)
        found = self._of_task.of_key(key)
        return [
            cell
            for (which, cell), timed in found.items()
            if which == kind and timed is not None and self._has(cell)
        ]

    def due(self, limit: int) -> list[tuple[int, CellId]]:
        """All live cells with time <= limit, in time order."""
        if self._times_to is not None and self._times_to < after_all(limit):
            self._grow(cells_until(self._of_task.view, self._name, self._times_to, limit))
        return self._near.due(limit)

    def earliest_time(self, changes: Changes) -> int | None:
        """The lowest time once `changes` are taken into account."""
        while True:
            base = self._near.earliest_time(changes)
            if self._times_to is None or (base is not None and base <= self._times_to[0]):
                break
            self._grow(self._next(self._times_to, by_hold=False))
        return _lower(base, min((t[0] for t in changes.values() if t is not None), default=None))

    def earliest_hold(self, changes: Changes) -> int | None:
        """The lowest hold once `changes` are taken into account; None if nothing is held."""
        while True:
            base = self._near.earliest_hold(changes)
            if self._holds_to is None or (base is not None and base <= self._holds_to[0]):
                break
            self._holds_to = self._extended(self._next(self._holds_to, by_hold=True))
        mine = min((t[1] for t in changes.values() if t is not None), default=None)
        lowest = _lower(base, mine)
        return None if lowest == END else lowest

    def next_keys(self, count: int) -> list[bytes]:
        """About `count` keys whose cells come first in time."""
        while self._times_to is not None and len(self._near) < count:
            self._grow(self._next(self._times_to, by_hold=False))
        return list(dict.fromkeys(cell[0] for _, cell in self._near.first(count)))

    def apply(self, changes: Changes) -> None:
        """Applies committed changes."""
        if self._times_to is None:
            self._near.apply(changes)
            return
        time = self._times_to[0]
        hold = END - 1 if self._holds_to is None else self._holds_to[0]
        self._near.apply(
            {
                cell: timed if timed and (timed[0] <= time or timed[1] <= hold) else None
                for cell, timed in changes.items()
            }
        )

    def narrow(self, most: int) -> None:
        """Makes the window so narrow that about `most` cells, or twice as many, are in memory."""
        if len(self._near) <= 2 * most:
            return
        cells = [(cell, timed, hash_key(cell[0])) for cell, timed in self._near.items()]
        by_time = sorted((timed[0], where) for _, timed, where in cells)
        by_hold = sorted((timed[1], where) for _, timed, where in cells if timed[1] != END)
        times_to = by_time[most] if self._times_to is None else min(self._times_to, by_time[most])
        holds_to = self._holds_to
        if len(by_hold) > most:
            holds_to = by_hold[most] if holds_to is None else min(holds_to, by_hold[most])
        last = (END - 1, HASH_SPACE) if holds_to is None else holds_to
        self._near = TimeIndex.of(
            {
                cell: timed
                for cell, timed, where in cells
                if (timed[0], where) <= times_to or (timed[1], where) <= last
            }
        )
        self._times_to, self._holds_to = times_to, holds_to

    def keys(self) -> list[bytes]:
        """The keys that have cells in memory."""
        return self._near.keys()

    def drop(self, keys: Iterable[bytes]) -> None:
        """Removes all cells of some keys from memory: the view does not count them any more."""
        self._near.drop(keys)

    @property
    def _of_task(self) -> KeysOfTask:
        if self._keys is None:
            raise RuntimeError("a time index was asked beyond its window before a task began")
        return self._keys

    def _has(self, cell: CellId) -> bool:
        """Whether a timer's cell is of this index: the two clocks share a kind."""
        return self._name not in ("event", "wall") or cell[1] == self._name

    def _next(self, after: Place, *, by_hold: bool) -> Found:
        task = self._of_task
        return next_cells(task.view, self._name, after, task.step, by_hold=by_hold)

    def _grow(self, found: Found) -> None:
        """Moves the place in the order of times. Behind its end there is nothing that holds."""
        self._times_to = self._extended(found)
        if self._times_to is None:
            self._holds_to = None

    def _extended(self, found: Found) -> Place | None:
        """Adds what was found; returns how far its order is in memory now."""
        near = self._near
        near.apply({cell: timed for cell, timed in found.cells if near.get(cell) is None})
        return found.reached


def _lower(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
