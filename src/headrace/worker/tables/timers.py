"""Timers of a slot's keys in columns, for `process_table` and `process_timers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.model.values.keys import decode_key, encode_part
from headrace.model.values.time import END
from headrace.state.view import CellId

if TYPE_CHECKING:
    from headrace.worker.records.slot import KeyedRun


class TableTimers:
    """The same timers as those of `ctx.set_timer`, by the position of their key."""

    def __init__(self, run: KeyedRun, keys: list[bytes]) -> None:
        self._run, self._keys = run, keys
        self._index = {key: i for i, key in enumerate(keys)}
        self._firing = False
        indexes, wall = run.slot.indexes, run.task.plan.wall
        takes = run.live.shape.takes_timer_tables
        self._due: set[tuple[str, CellId]] = set()
        if takes:
            self._due.update(("event", cell) for _, cell in indexes["event"].due(run.now))
            self._due.update(("wall", cell) for _, cell in indexes["wall"].due(wall))

    def times(self, tag: Any, clock: str) -> pa.Array:
        """When each key's timer fires; null where it has none."""
        entry, timers = encode_part(tag), self._run.timers
        found = (timers.get(clock, (key, clock, entry)) for key in self._keys)
        return pa.array([None if timed is None else timed[0] for timed in found], pa.int64())

    def set(
        self,
        key_index: Sequence[int],
        at: Sequence[int],
        tag: Any,
        clock: str,
        hold: Sequence[int] | None,
    ) -> None:
        """Sets one timer per row."""
        run = self._run
        if not run.live.shape.takes_timer_tables:
            raise ValueError(f"{run.node.name!r} sets timers, but has no process_timers")
        if clock not in ("event", "wall"):
            raise ValueError(f'set_timers: clock= is "event" or "wall", not {clock!r}')
        if len(key_index) != len(at) or (hold is not None and len(hold) != len(at)):
            raise ValueError("set_timers: give as many times and holds as key indexes")
        entry, event = encode_part(tag), clock == "event"
        limit = run.now if event else run.task.plan.wall
        for n, (i, when) in enumerate(zip(key_index, at, strict=True)):
            cell = (self._keys[i], clock, entry)
            if event and self._firing and run.now == END:
                run.emitter.counters.unfired += 1
                run.timers.set(clock, cell, None)
                continue
            held = hold[n] if hold is not None else when if event else END
            if event and held != END:
                held = min(held, when)
            run.timers.set(clock, cell, (when, held))
            if when <= limit and (event or not self._firing):
                self._due.add((clock, cell))

    def cancel(self, key_index: Sequence[int], tag: Any) -> None:
        """Removes timers, if there are any."""
        entry = encode_part(tag)
        for i in key_index:
            for clock in ("event", "wall"):
                self._run.timers.set(clock, (self._keys[i], clock, entry), None)

    def take_due(self) -> list[tuple[int, int, Any, str]]:
        """(at, key's index, tag, clock) of what is due, by time; they are timers no more."""
        run, self._firing = self._run, True
        found: list[tuple[int, int, Any, str]] = []
        due, self._due = self._due, set()
        for clock, cell in sorted(due):
            timed = run.timers.get(clock, cell)
            limit = run.now if clock == "event" else run.task.plan.wall
            if timed is None or timed[0] > limit:
                continue  # cancelled, or replaced by a later time
            run.timers.set(clock, cell, None)
            found.append((timed[0], self._index[cell[0]], decode_key(cell[2]), clock))
        return sorted(found, key=lambda timer: (timer[3], timer[0]))
