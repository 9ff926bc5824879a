"""The `ctx` of record and timer hooks: collects productions and timer changes, gives services.

One context serves all keys of a computation in a task. Everything that it collects can be undone
back to a savepoint (`savepoint`, `rewind`), so that a failed record leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.causal.catalog import service_not_prepared
from headrace.causal.services import Drawing
from headrace.model.context import Context
from headrace.model.values.keys import encode_part
from headrace.model.values.time import END, Duration, Instant, duration, instant
from headrace.pipeline.graph.graph import Node
from headrace.state.view import CellId
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.records.outputs import Outputs
from headrace.worker.timers import CLOCKS, EVENT, HOLD, TimerChanges


class HookContext(Drawing, Context):
    """`ctx` of record and timer hooks."""

    def __init__(
        self,
        emitter: Emitter,
        node: Node,
        outputs: Outputs,
        timers: TimerChanges | None,
        origin: bytes,
    ) -> None:
        plan = emitter.order.plan
        self._emitter = emitter
        self._outputs = outputs
        self._timers = timers
        self.prepare_drawing(plan.wall, plan.seed, node.name)
        self._origin = origin
        self._name = node.name
        self._takes_timers = node.shape.takes_timers
        self.final = False
        self.watermark = 0
        self.key: Any = None
        self.key_bytes = b""
        self.hook = 0
        self.time = 0
        """The timestamp of the record or timer whose hook runs."""
        self.in_timer = False
        self.on_timer_set: Callable[[CellId, int], None] | None = None
        self.on_forget: Callable[[], None] | None = None
        # Writing to this dict is twice as fast as to the one that Python creates for vars().
        self.__dict__ = dict(vars(self))

    def inside(self) -> tuple[Emitter, Outputs, TimerChanges | None]:
        """The objects in which it collects, for the hook recorder."""
        return self._emitter, self._outputs, self._timers

    def enter(self, key: Any, key_bytes: bytes) -> None:
        """Starts a pass over a key's hooks; its clock and random numbers start again too."""
        self.key, self.key_bytes = key, key_bytes
        self.restart_draws()

    # Services -------------------------------------------------------------

    def count(self, metric: str, n: int = 1) -> None:
        self._emitter.count(f"{self._name}.{metric}", n)

    def checkpoint(self) -> None:
        self._emitter.asks = True

    def outside(self, name: str) -> Any:
        raise service_not_prepared(self._name, name)

    # Productions ----------------------------------------------------------

    def produce(
        self, value: Any, *, to: str | None = None, timestamp: Instant | None = None
    ) -> None:
        at = self.time if timestamp is None else instant(timestamp, what="produce: timestamp=")
        self._outputs.add(value, to, at, self._origin)

    def set_origin(self, origin: bytes) -> None:
        """Sets the origin of all further productions."""
        self._origin = origin

    # Timers and holds -----------------------------------------------------

    def _keyed(self, what: str) -> TimerChanges:
        if self._timers is None:
            raise ValueError(f"{self._name!r} has no key, so it has no {what}")
        return self._timers

    def set_timer(
        self,
        tag: Any = "",
        *,
        at: Instant | None = None,
        after: Duration | None = None,
        clock: str = "event",
        hold: Instant | None = None,
    ) -> None:
        timers = self._keyed("timers")
        if not self._takes_timers:
            raise ValueError(f"{self._name!r} sets a timer, but has no process_timer")
        if clock not in CLOCKS:
            raise ValueError(f'set_timer: clock= is "event" or "wall", not {clock!r}')
        if (at is None) == (after is None):
            meant = "" if tag == "" else "after=" if isinstance(tag, str) else "at="
            hint = f"; the first argument, {tag!r:.40}, is the tag: write {meant}" if meant else ""
            raise ValueError(f"set_timer takes at= or after=, one of them{hint}")
        if at is not None:
            when = instant(at, what="set_timer: at=")
        else:
            begin = self.time if clock == EVENT else self.now()
            when = begin + duration(after, what="set_timer: after=")  # type: ignore[arg-type]
            when = min(when, END)
        held = None if hold is None else instant(hold, what="set_timer: hold=")
        cell = (self.key_bytes, clock, encode_part(tag))
        if not timers.set_timer(cell, when, held, after_end=self.final and self.in_timer):
            self._emitter.counters.unfired += 1
        elif clock == EVENT and self.on_timer_set is not None:
            self.on_timer_set(cell, when)

    def cancel_timer(self, tag: Any = "") -> None:
        self._keyed("timers").cancel_timer(self.key_bytes, encode_part(tag))

    def hold(self, timestamp: Instant) -> None:
        at = instant(timestamp, what="hold")
        self._keyed("holds").set(HOLD, (self.key_bytes, "", b""), (at, at))

    def release(self) -> None:
        self._keyed("holds").set(HOLD, (self.key_bytes, "", b""), None)

    def forget(self) -> None:
        timers = self._keyed("state")
        for name in (*CLOCKS, HOLD):
            for cell in timers.of_key(name, self.key_bytes):
                timers.set(name, cell, None)
        if self.on_forget is not None:
            self.on_forget()
