"""A task's changes of timers, holds and waiting records, over the committed time indexes.

This module owns the rules for timers. They are the same for records and for tables:

- An event timer holds the output watermark at its time, or at an earlier `hold`. With `hold` at
  the end of time it does not hold the watermark. A wall timer holds the watermark only if it has a
  `hold`.
- An event timer that is set by a timer under the final watermark replaces the timer of the same
  tag, and does not fire. Otherwise timers that set timers would keep a pipeline from ending.
"""

from __future__ import annotations

from headrace.model.values.time import END
from headrace.state.times.timeindex import Timed
from headrace.state.times.windowed import WindowedIndex
from headrace.state.view import CellId

EVENT, WALL, HOLD, WAITING = "event", "wall", "hold", "waiting"
"""The time indexes of a slot. Clocks of timers are the first two."""

CLOCKS = (EVENT, WALL)

Changed = dict[tuple[str, CellId], Timed | None]
"""(index, cell) -> its time and hold, or None if it was removed."""


class TimerChanges:
    """The changes of a task so far. Only this task sees them until its delta is committed."""

    def __init__(self, indexes: dict[str, WindowedIndex]) -> None:
        self.indexes = indexes
        self._keys: dict[bytes, Changed] = {}

    def get(self, name: str, cell: CellId) -> Timed | None:
        """The current (time, hold) of a cell, with this task's changes."""
        of_key = self._keys.get(cell[0])
        if of_key is not None and (name, cell) in of_key:
            return of_key[name, cell]
        return self.indexes[name].get(cell)

    def set(self, name: str, cell: CellId, timed: Timed | None) -> None:
        """Changes a cell; None removes it."""
        of_key = self._keys.setdefault(cell[0], {})
        if timed is None and self.indexes[name].get(cell) is None:
            of_key.pop((name, cell), None)
        else:
            of_key[name, cell] = timed

    def set_timer(self, cell: CellId, at: int, hold: int | None, *, after_end: bool) -> bool:
        """Sets a timer; returns whether it will fire. Its clock is the cell's field.

        `after_end`: the timer is set by a timer, under the final watermark.
        """
        clock = cell[1]
        if clock == EVENT:
            if after_end:
                self.set(clock, cell, None)
                return False
            held = at if hold is None else hold if hold == END else min(hold, at)
        else:
            held = END if hold is None else hold
        self._keys.setdefault(cell[0], {})[clock, cell] = (at, held)
        return True

    def cancel_timer(self, key: bytes, tag: bytes) -> None:
        """Removes the timers of a tag, of both clocks, if there are any."""
        for clock in CLOCKS:
            self.set(clock, (key, clock, tag), None)

    def of_key(self, name: str, key: bytes) -> list[CellId]:
        """The live cells of a key."""
        cells = dict.fromkeys(self.indexes[name].of_key(key))
        for (which, cell), timed in self._keys.get(key, {}).items():
            if which == name and timed is None:
                cells.pop(cell, None)
            elif which == name:
                cells[cell] = None
        return list(cells)

    def savepoint(self, key: bytes) -> Changed:
        """The changes of a key so far, for `rewind`."""
        return dict(self._keys.get(key, {}))

    def rewind(self, key: bytes, savepoint: Changed) -> None:
        """Undoes what was changed for a key since `savepoint`."""
        self._keys[key] = savepoint

    def by_index(self) -> dict[str, dict[CellId, Timed | None]]:
        """All changes, by index."""
        found: dict[str, dict[CellId, Timed | None]] = {name: {} for name in self.indexes}
        for of_key in self._keys.values():
            for (name, cell), timed in of_key.items():
                found[name][cell] = timed
        return found
