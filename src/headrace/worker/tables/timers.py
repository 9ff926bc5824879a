"""Timers of a slot's keys in columns, for `process_table` and `process_timers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.model.values.keys import decode_key, encode_part
from headrace.model.values.time import END
from headrace.state.view import CellId
from headrace.worker.slot_run import SlotRun
from headrace.worker.timers import CLOCKS, EVENT


class TableTimers:
    """The timers of `ctx.set_timer`, addressed by the position of their key."""

    def __init__(self, run: SlotRun, keys: list[bytes], due: Sequence[CellId]) -> None:
        """`due`: the timers of these keys that were due when the hooks began."""
        self._run, self._keys = run, keys
        self._index = {key: i for i, key in enumerate(keys)}
        self._firing = False
        self._due = {(cell[1], cell) for cell in due}  # the field of a timer's cell is its clock

    def times(self, tag: Any, clock: str) -> pa.Array:
        """The time of each key's timer; null if the key has no timer."""
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
        if clock not in CLOCKS:
            raise ValueError(f'set_timers: clock= is "event" or "wall", not {clock!r}')
        if len(key_index) != len(at) or (hold is not None and len(hold) != len(at)):
            raise ValueError("set_timers: give as many times and holds as key indexes")
        entry, event = encode_part(tag), clock == EVENT
        limit = run.now if event else run.order.plan.wall
        after_end = self._firing and run.now == END
        for n, (i, when) in enumerate(zip(key_index, at, strict=True)):
            cell = (self._keys[i], clock, entry)
            held = None if hold is None else hold[n]
            if not run.timers.set_timer(cell, when, held, after_end=after_end):
                run.emitter.counters.unfired += 1
            elif when <= limit and (event or not self._firing):
                self._due.add((clock, cell))

    def cancel(self, key_index: Sequence[int], tag: Any) -> None:
        """Removes timers, if there are any."""
        entry = encode_part(tag)
        for i in key_index:
            self._run.timers.cancel_timer(self._keys[i], entry)

    def take_due(self) -> list[tuple[int, int, Any, str]]:
        """Removes due timers; returns their (at, key's index, tag, clock), sorted by time."""
        run, self._firing = self._run, True
        found: list[tuple[int, int, Any, str]] = []
        due, self._due = self._due, set()
        tags: dict[bytes, Any] = {}
        """Entry -> tag: many timers have few tags."""
        for clock, cell in sorted(due):
            timed = run.timers.get(clock, cell)
            limit = run.now if clock == EVENT else run.order.plan.wall
            if timed is None or timed[0] > limit:
                continue  # cancelled, or replaced by a later time
            run.timers.set(clock, cell, None)
            entry = cell[2]
            if entry not in tags:
                tags[entry] = decode_key(entry)
            found.append((timed[0], self._index[cell[0]], tags[entry], clock))
        return sorted(found, key=lambda timer: (timer[3], timer[0]))
