"""The `ctx` that hooks get: collects productions and timer changes, answers questions.

One context serves all keys of a computation in a task. Everything it collects
can be cut back to the point where a key began (`mark`, `rewind`), which is how a
failed record leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.causal.catalog import service_not_prepared
from headrace.causal.lineage import identity_part, origin_part
from headrace.causal.services import Drawing
from headrace.model.context import Context
from headrace.model.values.codec import NESTED_MAX, packed
from headrace.model.values.keys import encode_part
from headrace.model.values.rows import Rows
from headrace.model.values.schema import Schema
from headrace.model.values.time import END, Duration, Instant, duration, instant
from headrace.pipeline.graph.graph import Node
from headrace.state.timeindex import Timed, TimeIndex
from headrace.state.view import CellId
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.origins import keyless_origin


class StreamOutput:
    """Productions to one stream, as columns."""

    __slots__ = ("cells", "check", "origins", "timestamps")

    def __init__(self, schema: Schema | None = None) -> None:
        self.check = None if schema is None else schema.check
        self.cells: list[bytes] = []
        self.timestamps: list[int] = []
        self.origins: list[bytes] = []

    def rows(self, with_origins: bool) -> Rows:
        """What was produced."""
        origins = pa.array(self.origins, pa.binary()) if with_origins else None
        return Rows(
            np.array(self.timestamps, np.int64),
            packed=pa.array(self.cells, pa.binary()),
            origins=origins,
        )


class Outputs:
    """The output ports of a computation."""

    def __init__(self, node: Node, behind: int, *, traced: bool = False) -> None:
        """`traced`: origins that are added carry identities."""
        self._node = node
        self._traced = traced
        self._ports = {p: StreamOutput(node.schemas.get(s)) for p, s in node.outputs.items()}
        self._single = next(iter(self._ports.values())) if len(self._ports) == 1 else None
        self._behind = behind
        self.behind = 0

    def add(self, value: Any, to: str | None, timestamp: int, origin: bytes) -> None:
        """One production."""
        output = self._single if to is None else self._ports.get(to)
        if output is None:
            output = self._find(to)
        cell = packed(value, what="the produced value", depth=NESTED_MAX)
        if output.check is not None:
            output.check(cell)
        output.cells.append(cell)
        output.timestamps.append(timestamp)
        output.origins.append(origin)
        if timestamp < self._behind:
            self.behind += 1

    def _find(self, to: str | None) -> StreamOutput:
        streams = list(self._node.outputs.values())
        if to is not None and to in streams:
            return self._ports[list(self._node.outputs)[streams.index(to)]]
        if not self._ports:
            raise ValueError(f"{self._node.name!r} produces, but has no outputs=")
        names = ", ".join(repr(p or s) for p, s in self._node.outputs.items())
        asked = "produce() needs to=" if to is None else f"there is no output {to!r}"
        raise ValueError(f"{self._node.name!r}: {asked}; outputs are {names}")

    def mark(self) -> list[int]:
        """Where all ports are now."""
        return [len(output.cells) for output in self._ports.values()]

    def since(self, mark: list[int]) -> list[tuple[str, bytes, int]]:
        """(stream, encoded value, timestamp) of what was produced since `mark`."""
        streams = self._node.outputs.values()
        return [
            (stream, output.cells[at], output.timestamps[at])
            for stream, output, start in zip(streams, self._ports.values(), mark, strict=True)
            for at in range(start, len(output.cells))
        ]

    def rewind(self, mark: list[int]) -> None:
        """Forgets what was produced since `mark`."""
        for output, length in zip(self._ports.values(), mark, strict=True):
            del output.cells[length:], output.timestamps[length:], output.origins[length:]

    def number(self, mark: list[int], cause: bytes, index: int) -> None:
        """Gives what a keyless hook produced since `mark` its origins, before its identities."""
        for output, start in zip(self._ports.values(), mark, strict=True):
            for at in range(start, len(output.origins)):
                identity = identity_part(output.origins[at]) if self._traced else b""
                output.origins[at] = keyless_origin(cause, index, at - start) + identity

    def add_all(self, other: Outputs) -> None:
        """Takes over all that another collected for the same ports."""
        for port, output in other._ports.items():
            mine = self._ports[port]
            mine.cells += output.cells
            mine.timestamps += output.timestamps
            mine.origins += output.origins
        self.behind += other.behind

    def emit(self, emitter: Emitter) -> None:
        """Hands everything over."""
        needing = emitter.runtime.topology.needs_origin
        for port, stream in self._node.outputs.items():
            output = self._ports[port]
            if self._traced and stream not in emitter.runtime.topology.needs_identity:
                output.origins = [origin_part(cell) for cell in output.origins]
            if output.cells:
                emitter.emit(stream, output.rows(stream in needing))
        emitter.counters.behind += self.behind


class TimerChanges:
    """Timers and holds that a task changed, over the committed indexes."""

    def __init__(self, indexes: dict[str, TimeIndex]) -> None:
        self.indexes = indexes
        self._keys: dict[bytes, dict[tuple[str, CellId], Timed | None]] = {}

    def get(self, name: str, cell: CellId) -> Timed | None:
        """A cell as it is now."""
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

    def of_key(self, name: str, key: bytes) -> list[CellId]:
        """The live cells of a key."""
        cells = dict.fromkeys(self.indexes[name].of_key(key))
        for (which, cell), timed in self._keys.get(key, {}).items():
            if which == name and timed is None:
                cells.pop(cell, None)
            elif which == name:
                cells[cell] = None
        return list(cells)

    def mark(self, key: bytes) -> dict[tuple[str, CellId], Timed | None]:
        """The changes that concern a key, to rewind to."""
        return dict(self._keys.get(key, {}))

    def rewind(self, key: bytes, mark: dict[tuple[str, CellId], Timed | None]) -> None:
        """Undoes what was changed for a key since `mark`."""
        self._keys[key] = mark

    def flat(self) -> dict[str, dict[CellId, Timed | None]]:
        """All changes, by index."""
        found: dict[str, dict[CellId, Timed | None]] = {name: {} for name in self.indexes}
        for of_key in self._keys.values():
            for (name, cell), timed in of_key.items():
                found[name][cell] = timed
        return found


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
        plan = emitter.task.plan
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
        """The timestamp of the record or timer that runs."""
        self.in_timer = False
        self.on_timer_set: Callable[[CellId, int], None] | None = None
        self.on_forget: Callable[[], None] | None = None
        # Twice as fast to write to as the one that Python makes when somebody asks for vars().
        self.__dict__ = dict(vars(self))

    def inside(self) -> tuple[Emitter, Outputs, TimerChanges | None]:
        """What it collects in, for who watches hooks."""
        return self._emitter, self._outputs, self._timers

    def enter(self, key: Any, key_bytes: bytes) -> None:
        """The hooks of a key begin, perhaps once more: its clock and dice begin anew."""
        self.key, self.key_bytes = key, key_bytes
        self.draw_anew()

    # Services -------------------------------------------------------------

    def count(self, metric: str, n: int = 1) -> None:
        self._emitter.count(f"{self._name}.{metric}", n)

    def outside(self, name: str) -> Any:
        raise service_not_prepared(self._name, name)

    # Productions ----------------------------------------------------------

    def produce(
        self, value: Any, *, to: str | None = None, timestamp: Instant | None = None
    ) -> None:
        at = self.time if timestamp is None else instant(timestamp, what="produce: timestamp=")
        self._outputs.add(value, to, at, self._origin)

    def set_origin(self, origin: bytes) -> None:
        """From now on productions come from there."""
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
        if clock not in ("event", "wall"):
            raise ValueError(f'set_timer: clock= is "event" or "wall", not {clock!r}')
        if (at is None) == (after is None):
            meant = "" if tag == "" else "after=" if isinstance(tag, str) else "at="
            hint = f"; the first argument, {tag!r:.40}, is the tag: write {meant}" if meant else ""
            raise ValueError(f"set_timer takes at= or after=, one of them{hint}")
        if at is not None:
            when = instant(at, what="set_timer: at=")
        else:
            begin = self.time if clock == "event" else self.now()
            when = begin + duration(after, what="set_timer: after=")  # type: ignore[arg-type]
            when = min(when, END)
        if hold is not None:
            held = min(
                instant(hold, what="set_timer: hold="),
                when if clock == "event" and hold != END else END,
            )
        else:
            held = when if clock == "event" else END
        cell = (self.key_bytes, clock, encode_part(tag))
        if clock == "event" and self.final and self.in_timer:
            self._emitter.counters.unfired += 1
            timers.set(clock, cell, None)  # it replaces the one of its tag, and does not fire
            return
        timers.set(clock, cell, (when, held))
        if clock == "event" and self.on_timer_set is not None:
            self.on_timer_set(cell, when)

    def cancel_timer(self, tag: Any = "") -> None:
        timers = self._keyed("timers")
        entry = encode_part(tag)
        for clock in ("event", "wall"):
            timers.set(clock, (self.key_bytes, clock, entry), None)

    def hold(self, timestamp: Instant) -> None:
        at = instant(timestamp, what="hold")
        self._keyed("holds").set("hold", (self.key_bytes, "", b""), (at, at))

    def release(self) -> None:
        self._keyed("holds").set("hold", (self.key_bytes, "", b""), None)

    def forget(self) -> None:
        timers = self._keyed("state")
        for name in ("event", "wall", "hold"):
            for cell in timers.of_key(name, self.key_bytes):
                timers.set(name, cell, None)
        if self.on_forget is not None:
            self.on_forget()
