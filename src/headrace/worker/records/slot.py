"""A keyed computation in one slot: open the state, run the hooks, seal the change.

Ordered computations hold back what the watermark has not passed: such records
lie as WAITING cells in the state and come back, merged with the new ones by
(timestamp, order of inputs, origin, arrival), when it has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from headrace.causal.lineage import identity_part, origin_part
from headrace.errors import UserCodeError
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.model.record import Record
from headrace.model.values.codec import decode_value, encode_value
from headrace.model.values.keys import decode_key, hash_key
from headrace.model.values.time import END, oldest_on_time
from headrace.pipeline.graph.graph import Node, To
from headrace.plan.epoch import SlotDelta, WorkOrder
from headrace.state.segment import HOLD, TIMER, WAITING, Cell, encode_segment
from headrace.state.view import CellId, Stored
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.keyless import keep_on_time
from headrace.worker.records import key_state
from headrace.worker.records.arrivals import Arrival, Grouped, keys_of
from headrace.worker.records.context import Outputs, TimerChanges
from headrace.worker.records.hooks import KeyedHooks
from headrace.worker.records.key_records import KeyRecords, OrderedRecords
from headrace.worker.records.key_state import KeyState
from headrace.worker.records.parallel import KeyWork, run_keys
from headrace.worker.records.traced_context import Identities, names_outputs
from headrace.worker.runtime import Runtime
from headrace.worker.tables.slot import run_keyed_table
from headrace.worker.watching.watchdog import HookWatch, watching

# Unique among a key's waiting records; what orders them is in the value.
_HELD_ENTRY = struct.Struct(">qqHI")
_order = itemgetter(0)

_KINDS = {"event": TIMER, "wall": TIMER, "hold": HOLD, "waiting": WAITING}


class KeyedRun:
    """One computation, one slot, one epoch."""

    def __init__(
        self,
        runtime: Runtime,
        task: WorkOrder,
        node: Node,
        slot: int,
        emitter: Emitter,
        *,
        now: int,
    ) -> None:
        plan = task.plan
        self.runtime, self.task, self.node, self.emitter = runtime, task, node, emitter
        self.live = runtime.live(node)
        self.before = task.ins.get(node.name, 0)
        self.now = now
        self.slot = runtime.cache.open(
            runtime.store,
            task.checkpoint,
            node.name,
            slot,
            task.bases[node.name][slot],
            plan.rings[node.name].intervals(slot),
        )
        self.watch = HookWatch(node)
        self.timers = TimerChanges(self.slot.indexes)
        self.outputs = self.new_outputs()
        self.cells: list[Cell] = []
        self.objects: list[tuple[bytes, Any, bool]] = []
        self._waiting_values: dict[CellId, bytes] = {}

    def new_outputs(self) -> Outputs:
        """Where productions are collected."""
        behind = oldest_on_time(self.task.outs.get(self.node.name, 0))
        return Outputs(self.node, behind, traced=names_outputs(self.emitter, self.node))

    def run(self, arrivals: list[Arrival]) -> tuple[SlotDelta, int | None]:
        """Runs everything; gives what changed and the oldest thing still held."""
        arrivals = [self._on_time(arrival) for arrival in arrivals]
        self.emitter.counters.records += sum(len(a.parcel.rows) for a in arrivals)
        if self.live.shape.takes_table:
            run_keyed_table(self, arrivals)
        else:
            with watching(self.watch):
                self._run_hooks(arrivals)
        self.outputs.emit(self.emitter)
        return self._seal()

    def _on_time(self, arrival: Arrival) -> Arrival:
        if arrival.feedback or self.node.combines or self.before == END:
            return arrival
        parcel = arrival.parcel
        late = parcel.rows.timestamps < self.before
        if not late.any():
            return arrival
        rows = keep_on_time(self.emitter, self.node, parcel.rows, self.before)
        if self.node.late != "process":
            kept = np.flatnonzero(~late)
            parcel = type(parcel)(parcel.keys, parcel.codes[kept], rows)
        return Arrival(arrival.index, arrival.stream, parcel)

    # Records and timers ---------------------------------------------------

    def _run_hooks(self, arrivals: list[Arrival]) -> None:
        groups = [Grouped(arrival) for arrival in arrivals]
        due = _by_key(self.slot.indexes["event"].due(self.now))
        due_wall = _by_key(self.slot.indexes["wall"].due(self.task.plan.wall))
        ordered = self._ordered(groups) if self.node.ordered else None
        arrived = keys_of(groups) if ordered is None else ordered
        keys = list(dict.fromkeys([*arrived, *due, *due_wall]))
        if not keys:
            return
        found = self._load(keys, lambda key: self._first_time(key, groups, ordered, due))
        again = isinstance(self.node.errors, To)

        def inputs_of(key: bytes) -> tuple[KeyRecords, Identities]:
            if ordered is not None:
                records, identities = ordered.get(key, ([], []))
                return OrderedRecords(records, again=again), lambda: identities
            shown = decode_key(key)
            parts = [group.part(key, shown, self.before) for group in groups if key in group.spans]
            return KeyRecords(parts), lambda: [i for g in groups for i in g.identities(key)]

        work = (
            KeyWork(key, *found[key][:2], due.get(key, []), due_wall.get(key, [])) for key in keys
        )
        for key, state, last_time in run_keys(self, work, inputs_of):
            self._change(key, state, last_time)
            self.objects.append((key, state, found[key][2]))

    def new_hooks(self, emitter: Emitter, outputs: Outputs) -> KeyedHooks:
        """Hooks that collect what they make there."""
        hooks = KeyedHooks(
            emitter, self.live, self.slot, self.timers, outputs, before=self.before, now=self.now
        )
        if self.node.concurrency == 1:  # or else every key has a thread, and a watch, of its own
            hooks.watch = self.watch.over(hooks.context)
        return hooks

    def _first_time(
        self,
        key: bytes,
        groups: list[Grouped],
        ordered: dict[bytes, tuple[list[Record[Any]], list[bytes]]] | None,
        due: dict[bytes, list[tuple[int, CellId]]],
    ) -> int:
        """The time of a key's first hook (D11)."""
        if self.live.shape.options.clock == "wall":
            return self.task.plan.wall
        if ordered is not None:
            times = [record.timestamp for record in ordered.get(key, ([], []))[0]]
        else:
            times = [time for group in groups for time in group.times(key)]
        oldest = min(times, default=END)
        fired = min((at for at, _ in due.get(key, ()) if at <= oldest), default=None)
        first = fired if fired is not None else times[0] if times else self.before
        return max(first, self.before)

    def _load(
        self, keys: list[bytes], first_time: Callable[[bytes], int]
    ) -> dict[bytes, tuple[KeyState, Stored, bool]]:
        """The state of all keys: warm objects, and one multi-get for the others."""
        found: dict[bytes, tuple[KeyState, Stored, bool]] = {}
        # A failed hook needs the stored bytes again, so with errors=to() nothing is warm.
        warm = not isinstance(self.node.errors, To)
        cold = []
        for key in keys:
            state, again = self.slot.objects.take(key) if warm else (None, False)
            if state is None:
                cold.append(key)
            else:
                found[key] = (state, Stored(), again)
        if cold:
            hashes = np.fromiter(map(hash_key, cold), np.uint64, len(cold))
            stored = self.slot.view.fetch(cold, hashes, maps=bool(self.live.shape.maps))
            for key, cells in zip(cold, stored, strict=True):
                if 0 < cells.version < self.live.shape.options.version:
                    cells.clock = first_time(key)
                found[key] = (key_state.load(self.live, key, cells), cells, False)
        return found

    def _change(self, key: bytes, state: KeyState, last_time: int) -> None:
        try:
            self.cells.extend(key_state.changes(self.live, key, state, last_time))
        except (TypeError, AttributeError) as error:
            raise UserCodeError(
                f"computation {self.node.name!r}, key {decode_key(key)!r:.100}: {error}"
            ) from error

    # Ordered computations -------------------------------------------------

    def _ordered(self, groups: list[Grouped]) -> dict[bytes, tuple[list[Record[Any]], list[bytes]]]:
        """What the watermark has passed, in time order, with identities; the rest waits."""
        ready: dict[bytes, list[tuple[tuple[Any, ...], Record[Any], bytes]]] = {}
        with_identity = self.runtime.topology.needs_identity
        passed = self.now if self.now == END else self.now - 1
        live = {cell for _, cell in self.slot.indexes["waiting"].due(passed)}
        for cell, data in self.slot.view.waiting(passed) if live else ():
            if cell not in live:
                continue
            live.discard(cell)
            timestamp, index, origin, epoch, position, late, value = decode_value(data)
            schema = self.runtime.topology.graph.schemas.get(cell[1])
            value = value if schema is None else schema.of(value)
            record: Record[Any] = Record(value, timestamp, decode_key(cell[0]), cell[1], late)
            if cell[1] in with_identity:
                origin, identity = origin_part(origin), identity_part(origin)
            else:
                identity = b""
            order = (timestamp, index, origin, epoch, position)
            ready.setdefault(cell[0], []).append((order, record, identity))
            self.timers.set("waiting", cell, None)
        epoch = self.task.plan.epoch
        for group in groups:
            index, stream = group.arrival.index, group.arrival.stream
            before = 0 if group.arrival.feedback else oldest_on_time(self.before)
            for key, (start, end) in group.spans.items():
                shown = decode_key(key)
                values: list[Any] | None = None
                raw: list[Any] | None = None
                for position, timestamp in zip(range(start, end), group.times(key), strict=True):
                    carried = group.origins[position] if group.origins else b""
                    late = timestamp < before
                    if timestamp < self.now or self.now == END:
                        traced = stream in with_identity
                        origin = origin_part(carried) if traced else carried
                        order = (timestamp, index, origin, epoch, position)
                        if values is None:
                            values = group.values(key, shown)
                        record = Record(values[position - start], timestamp, shown, stream, late)
                        ready.setdefault(key, []).append((order, record, identity_part(carried)))
                        continue
                    if raw is None:
                        raw = group.raw(key, shown)
                    cell = (key, stream, _HELD_ENTRY.pack(timestamp, epoch, index, position))
                    self.timers.set("waiting", cell, (timestamp, timestamp))
                    self._waiting_values[cell] = encode_value(
                        (
                            timestamp,
                            index,
                            carried,
                            epoch,
                            position,
                            late,
                            raw[position - start],
                        )
                    )
        # By key, as the order in which waiting records lie in segments changes with compaction.
        found: dict[bytes, tuple[list[Record[Any]], list[bytes]]] = {}
        for key in sorted(ready):
            rows = sorted(ready[key], key=_order)
            found[key] = [record for _, record, _ in rows], [identity for _, _, identity in rows]
        return found

    # The end --------------------------------------------------------------

    def _seal(self) -> tuple[SlotDelta, int | None]:
        """Writes the delta; nothing of it counts before a commit names it."""
        changes = self.timers.flat()
        version = self.live.shape.options.version
        for name, changed in changes.items():
            for cell, timed in changed.items():
                time, hold = timed if timed is not None else (0, END)
                self.cells.append(
                    Cell(
                        hash_key(cell[0]),
                        cell[0],
                        _KINDS[name],
                        cell[1],
                        cell[2],
                        self._waiting_values.get(cell, b""),
                        time,
                        hold,
                        version,
                        timed is None,
                    )
                )
        indexes = self.slot.indexes
        holds = [
            indexes[name].earliest_hold(changes[name])
            for name in ("event", "hold", "waiting", "wall")
        ]
        oldest = min((hold for hold in holds if hold is not None), default=None)
        next_event = indexes["event"].earliest_time(changes["event"])
        next_wall = indexes["wall"].earliest_time(changes["wall"])
        segment: str | None = None
        size = 0
        if self.cells:
            data = encode_segment(self.cells, f"slot {self.emitter.label}")
            size = len(data)
            name = paths.content_name(
                self.task.plan.epoch, self.emitter.label, digest_of(data), ".arrow"
            )
            segment = f"{paths.state_directory(self.node.name)}/{name}"
            reach("before-segment-write")
            self.runtime.store.write(segment, data)
            reach("after-segment-write")
            self.emitter.made(segment)
        self.slot.leave(segment, changes, self.objects)
        return SlotDelta(segment, len(self.cells), size, next_event, next_wall), oldest


def _by_key(due: list[tuple[int, CellId]]) -> dict[bytes, list[tuple[int, CellId]]]:
    found: dict[bytes, list[tuple[int, CellId]]] = {}
    for at, cell in due:
        found.setdefault(cell[0], []).append((at, cell))
    return found
