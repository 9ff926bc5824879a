"""The `ctx` of keyed tables: fields, maps and timers of a slot's keys, in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.causal.lineage import keyed_origin
from headrace.errors import InvalidRecord, UserCodeError
from headrace.model.context import Input
from headrace.model.state import Field
from headrace.model.values.arrow import python_list
from headrace.model.values.keys import decode_key, hash_key
from headrace.model.values.rows import Rows
from headrace.model.values.schema import Schema
from headrace.model.values.shown import shown
from headrace.model.values.time import BEGINNING, END, oldest_on_time
from headrace.pipeline.graph.graph import To
from headrace.state.backend import Stored
from headrace.state.entries import MapEntries
from headrace.state.segment import Cell
from headrace.state.view import CellId
from headrace.worker import dead_letters, key_state
from headrace.worker.cells import entry_cells_of_keys, field_cell, is_written
from headrace.worker.exchange.emitter import fit
from headrace.worker.key_state import KeyState
from headrace.worker.slot_run import SlotRun
from headrace.worker.tables.context import BareTableContext
from headrace.worker.tables.parts import inputs_apart
from headrace.worker.tables.timers import TableTimers
from headrace.worker.watching.tracebacks import describe


class KeyedTableContext(BareTableContext):
    """`ctx` of keyed tables: state by position of the distinct keys."""

    def __init__(
        self,
        run: SlotRun,
        keys: list[bytes],
        codes: Any,
        rows: Rows,
        inputs: Sequence[Input] = (),
        due: Sequence[CellId] = (),
        hook: int = 0,
    ) -> None:
        """`codes` are the key indexes of `rows`. Keys without rows come after the others.

        `due` are timers of these keys. `hook` tells calls over different keys of a slot apart.
        """
        super().__init__(run.emitter, run.node, rows, hook)
        self._inputs = inputs
        self.apart = inputs_apart(run.node)
        self._shows_keys = run.node.template.reads_values
        timestamps = rows.timestamps
        self._run = run
        self._behind = oldest_on_time(run.order.outs.get(run.node.name, BEGINNING))
        self._live = run.live
        self._fields = run.live.shape.plain
        self._version = run.live.shape.options.version
        self._keys = keys
        self._hashes = np.fromiter(map(hash_key, keys), np.uint64, len(keys))
        self._stored: Sequence[Stored]
        if self._version > 1:
            self._stored = run.state.fetch(keys, self._hashes, maps=True)
        else:
            self._stored = run.state.fields(keys, self._hashes)
        if run.live.shape.options.clock == "wall":
            clocks = np.full(len(keys), run.order.plan.wall, np.int64)
        else:
            clocks = np.full(len(keys), oldest_on_time(run.before), np.int64)
            np.maximum.at(clocks, codes, timestamps)
        self._clocks = clocks
        self._migrated = self._migrate()
        self._written: dict[str, list[bytes]] = {}
        self._aside = 0
        self._entries = MapEntries(run.state, run.live.shape.maps, keys, self._hashes)
        for i, state in self._migrated.items():
            self._entries.know(i, {cell: data for cell, (data, _) in state.migrated.items()})
        self._timers = TableTimers(run, keys, due)
        self.watermark = self.watermark_before = run.before
        self.watermark_after = run.now
        self.final = run.now == END

    @cached_property
    def _shown(self) -> list[Any]:
        """The decoded keys. Decoded on demand, as joins, for example, rarely need them."""
        return [decode_key(key) for key in self._keys]

    def keys(self) -> list[Any]:
        """The distinct keys, in the order of `read`."""
        return self._shown

    def inputs(self) -> Sequence[Input]:
        return self._inputs

    def pass_on(self, rows: Any, *, to: str | None = None) -> None:
        if not self.apart or len(self._inputs) < 2:
            return super().pass_on(rows, to=to)
        chosen = np.asarray(rows)
        if chosen.dtype == np.bool_:
            chosen = np.flatnonzero(chosen)
        for given in self._inputs:
            mine = (chosen >= given.first) & (chosen < given.first + len(given.rows))
            if mine.any():
                taken = given.rows.take(chosen[mine] - given.first)
                taken.origins = None
                self._emit(taken, to, given.key_index[chosen[mine] - given.first], None)

    def changes(self) -> Iterator[tuple[int, str, Any, Any]]:
        """(key's index, field or entry, before, after) of each change so far."""
        for field in self._fields:
            for i, data in enumerate(self._written.get(field.name, ())):
                was, now = self._value(i, field, int(self._clocks[i])), field.codec.decode(data)
                if was != now:
                    yield i, field.name, was, now
        for name, i, entry, was, now in self._entries.shown_changes():
            yield i, f"{name}[{entry!r}]", was, now

    def key_column(self, codes: Any) -> pa.Array:
        """The keys of the rows."""
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), self._key_array())

    def _key_array(self) -> pa.Array:
        """The distinct keys; keys of several parts are structs of `part_0`, `part_1`, ..."""
        shown = self._shown
        try:
            if shown[0] and all(isinstance(k, tuple) and len(k) == len(shown[0]) for k in shown):
                parts = [pa.array(part) for part in zip(*shown, strict=True)]
                return pa.StructArray.from_arrays(parts, [f"part_{i}" for i in range(len(parts))])
            return pa.array(shown)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise UserCodeError(
                f"computation {self._node.name!r}: its keys do not fit one Arrow column ({error}); "
                "use process_record"
            ) from None

    def _migrate(self) -> dict[int, KeyState]:
        """Migrates keys that another version of the class has written."""
        found: dict[int, KeyState] = {}
        for i, stored in enumerate(self._stored):
            if self._version > 1 and not stored.version:
                stored.version = stored.entries_version(self._keys[i])
            if stored.version not in (0, self._version):
                stored.clock = int(self._clocks[i])
                found[i] = key_state.load(self._live, self._keys[i], stored)
        return found

    def read(self) -> pa.Table:
        # As in the table: if values are not read, keys of mixed types need not fit one column.
        columns: dict[str, Any] = {"key": self._key_array()} if self._shows_keys else {}
        clocks = self._clocks.tolist()
        for field in self._fields:
            written = self._written.get(field.name)
            if written is not None:  # by an earlier hook of this epoch
                cells = [field.codec.decode(data) for data in written]
            else:
                cells = [self._value(i, field, clock) for i, clock in enumerate(clocks)]
            columns[field.name] = pa.array(cells, _ARROW.get(field.codec.type))
        return pa.table(columns)

    def _value(self, i: int, field: Field, clock: int) -> Any:
        if i in self._migrated:
            return vars(self._migrated[i].object)[field.name]
        cell = self._stored[i].fields.get(field.name)
        if cell is None or (field.ttl_us is not None and cell[1] <= clock):
            return field.fresh()
        try:
            return field.codec.decode(cell[0])
        except msgspec.DecodeError as error:
            raise key_state.unfit(self._live, self._keys[i], field, error) from None

    def write(self, columns: pa.Table | dict[str, Any] | None = None, **more: Any) -> None:
        given: dict[str, Any] = dict(more)
        if isinstance(columns, pa.Table):
            given.update({n: columns.column(n) for n in columns.schema.names if n != "key"})
        elif columns is not None:
            given.update(columns)
        fields = {field.name: field for field in self._fields}
        for name, values in given.items():
            field = fields.get(name)
            if field is None:
                raise ValueError(
                    f"{self._node.name!r} has no field {name!r}; it has {', '.join(fields)}"
                )
            cells = _as_list(values)
            if len(cells) != len(self._keys):
                raise ValueError(
                    f"write({name}=): {len(cells)} values for {len(self._keys)} keys; "
                    "give one per row of ctx.read()"
                )
            encode = field.codec.encode
            try:
                self._written[name] = [encode(cell) for cell in cells]
            except (TypeError, ValueError) as error:
                raise TypeError(f"write({name}=): {error}") from None

    # Maps and timers ------------------------------------------------------

    def entries(self, name: str, key_index: Any = None) -> pa.Table:
        return self._entries.read(name, None if key_index is None else _as_list(key_index))

    def put_entries(self, name: str, key_index: Any, entry: Any, value: Any) -> None:
        self._entries.put(name, _as_list(key_index), _as_list(entry), _as_list(value))

    def timers(self, tag: Any = "", clock: str = "event") -> pa.Array:
        return self._timers.times(tag, clock)

    def set_timers(
        self, key_index: Any, at: Any, *, tag: Any = "", clock: str = "event", hold: Any = None
    ) -> None:
        self._timers.set(
            _as_list(key_index), _as_list(at), tag, clock, None if hold is None else _as_list(hold)
        )

    def cancel_timers(self, key_index: Any, *, tag: Any = "") -> None:
        self._timers.cancel(_as_list(key_index), tag)

    def take_due(self) -> pa.Table | None:
        """Removes the timers that are due now; returns them as the table of `process_timers`."""
        self.watermark = self._run.now
        due = self._timers.take_due()
        if not due:
            return None
        ats, indexes, tags, clocks = zip(*due, strict=True)
        self._newest = max(ats)
        codes = np.array(indexes, np.int32)
        columns = {"key": self.key_column(codes)} if self._shows_keys else {}
        columns.update(key_index=pa.array(codes), tag=pa.array(tags))
        columns.update(timestamp=pa.array(ats, pa.int64()), clock=pa.array(clocks))
        return pa.table(columns)

    def set_aside(
        self,
        error: Exception,
        key_index: int,
        value: Any,
        timestamp: int,
        stream: str | None = None,
    ) -> None:
        node, key = self._node, self._shown[key_index]
        if not dead_letters.takes_letter(node.errors, error):
            what = f"{shown(value, 300)} at {timestamp}" + (f" of {stream!r}" if stream else "")
            raise UserCodeError(describe(node, key, what, error)) from error
        emitter = self._emitter
        letter = dead_letters.letter_of(emitter, node, key, stream, value, timestamp, error)
        origin = keyed_origin(node.name, self._keys[key_index])
        self._aside += 1
        calls = f"{self.hook}:" if self.hook else ""
        identity = f"{emitter.label}:{self.epoch}:{calls}{self._aside}".encode()
        dead_letters.send(emitter, node.errors, letter, timestamp, origin, identity)

    def _emit(
        self, rows: Rows, to: str | None, key_index: Any, causes: Any, ties: str = "order"
    ) -> None:
        schema = self._node.schemas.get(self._stream(to))
        if schema is not None and key_index is not None and isinstance(self._node.errors, To):
            rows, key_index = self._fitting(rows, schema, _as_list(key_index))
        super()._emit(rows, to, key_index, causes, ties)

    def _fitting(self, rows: Rows, schema: Schema, owners: list[int]) -> tuple[Rows, list[int]]:
        """The rows that fit the stream's schema, cast. Others become dead letters of their keys.

        The content of a window is committed, so a result that does not fit must not stop the
        pipeline again at every start.
        """
        fitted, reasons = fit(rows, schema)
        if not reasons:
            return fitted, owners
        for i, reason in sorted(reasons.items()):
            one = rows.take(np.array([i]))
            value, time = one.values()[0], int(one.timestamps[0])
            self.set_aside(InvalidRecord(reason), owners[i], value, time)
        kept = np.delete(np.arange(len(rows)), list(reasons))
        return fitted.take(kept), [owners[i] for i in kept.tolist()]

    # The end --------------------------------------------------------------

    def cells(self) -> list[Cell]:
        """The cells to write."""
        hashes, clocks = self._hashes.tolist(), self._clocks.tolist()
        keys, version = self._keys, self._version
        found = entry_cells_of_keys(self._entries.changes(), hashes, keys, clocks, version)
        # What a hook changed of a migrated map counts, and not what the migration made of it.
        changed = {cell[1:5] for cell in found} if self._migrated else set()
        for i, state in self._migrated.items():
            for field in self._fields:
                if field.name in self._written:
                    data = self._written[field.name][i]
                    setattr(state.object, field.name, field.codec.decode(data))
                    if field.ttl_us is not None:
                        state.expires[field.name] = clocks[i] + field.ttl_us
            key_state.note_writes(self._live, state, clocks[i])
            again = key_state.changes(self._live, self._keys[i], state, clocks[i])
            found.extend(cell for cell in again if cell[1:5] not in changed)
        for field in self._fields:
            written = self._written.get(field.name)
            if written is None:
                continue
            for i, data in enumerate(written):
                if i in self._migrated:
                    continue
                cell = self._stored[i].fields.get(field.name)
                stored = None if cell is None else cell[0]
                # With a TTL, writing the same value is a change too: it renews the TTL.
                if is_written(field, stored, data, renewed=True):
                    ttl = field.ttl_us
                    expires = END if ttl is None else min(clocks[i] + ttl, END)
                    found.append(
                        field_cell(hashes[i], keys[i], field, data, clocks[i], expires, version)
                    )
        return found

    def _origins(self, count: int, key_index: Any, causes: Any) -> pa.Array:
        if key_index is None and count == len(self._keys):
            key_index = range(count)
        if key_index is None or len(key_index) != count:
            return super()._origins(count, key_index, causes)
        keys = [self._keys[i] for i in _as_list(key_index)]
        return pa.array([keyed_origin(self._node.name, key) for key in keys], pa.binary())


_ARROW = {
    int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_(), bytes: pa.binary(),
}  # fmt: skip


def _as_list(values: Any) -> list[Any]:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return python_list(values)
    if isinstance(values, np.ndarray):
        return values.tolist()
    return list(values)
