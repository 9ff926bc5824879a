"""`process_table`: a slot's records of the epoch as one Arrow table, state as columns."""

from __future__ import annotations

import random
import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.causal.lineage import production_identity
from headrace.causal.services import HookServices
from headrace.errors import HeadraceError, UserCodeError
from headrace.model.context import TableContext
from headrace.model.keys import decode_key, hash_key
from headrace.model.rows import Rows, one_batch, python_list
from headrace.model.state import Field
from headrace.model.time import BEGINNING, END, instant
from headrace.pipeline.graph import Node
from headrace.plan.parcel import Parcel
from headrace.state.segment import FIELD, Cell
from headrace.state.view import Stored
from headrace.worker import keystate
from headrace.worker.arrivals import Arrival
from headrace.worker.combining import value_table
from headrace.worker.emitter import Emitter, identify, keyed_origin, keyless_origin
from headrace.worker.keyless import check_parameters, describe, keep_on_time
from headrace.worker.keystate import KeyState
from headrace.worker.runtime import Live
from headrace.worker.watchdog import Watch, watching

if TYPE_CHECKING:
    from headrace.worker.keyed import KeyedRun

_OWN = ("key", "key_index", "timestamp", "stream")


def run_keyed_table(run: KeyedRun, arrivals: list[Arrival]) -> None:
    """Runs `process_table` over everything that arrived, if anything did."""
    if not any(len(a.parcel.rows) for a in arrivals):
        return
    merged = Parcel.merge([a.parcel for a in arrivals])
    keys, codes = _used(merged)
    context = KeyedTableContext(run, keys, codes, merged.rows.timestamps)
    table = _table(run.node, merged.rows, arrivals, context.key_column(codes), codes)
    _call(run.live, table, context)
    run.cells.extend(context.cells())
    run.emitter.counters.hooks += 1


def run_keyless_table(
    emitter: Emitter, live: Live, inputs: list[tuple[int, str, Rows]], before: int
) -> None:
    """The same without keys, in the task that made the rows."""
    for index, stream, rows in inputs:
        rows = keep_on_time(emitter, live.node, rows, before)
        if len(rows):
            hook = emitter.keyless_hooks.get(live.node.name, 0)
            emitter.keyless_hooks[live.node.name] = hook + 1
            context = KeylessTableContext(emitter, live.node, index, rows, hook)
            context.watermark = before
            arrival = Arrival(0, stream, Parcel([], np.zeros(0, np.int32), rows))
            _call(live, _table(live.node, rows, [arrival], None, None), context)
            emitter.counters.hooks += 1


def _used(parcel: Parcel) -> tuple[list[bytes], np.ndarray[Any, Any]]:
    """Keys that have records, and codes into them."""
    present = np.zeros(len(parcel.keys), np.bool_)
    present[parcel.codes] = True
    if present.all():
        return parcel.keys, parcel.codes
    keys = [parcel.keys[i] for i in np.flatnonzero(present).tolist()]
    return keys, (np.cumsum(present) - 1)[parcel.codes].astype(np.int32)


def _call(live: Live, table: pa.Table, context: Any) -> None:
    obj = live.object_class.__new__(live.object_class)
    watch = Watch(live.node, hook="process_table")
    try:
        with watching(watch):
            watch.begin()
            obj.process_table(table, context)
            check_parameters(live, obj)
    except HeadraceError:
        raise
    except Exception as error:
        what = f"process_table over {table.num_rows:,} records"
        raise UserCodeError(describe(live.node, None, what, error)) from error


def _table(
    node: Node, rows: Rows, arrivals: list[Arrival], keys: pa.Array | None, codes: Any
) -> pa.Table:
    """The value columns, then key, key_index, timestamp and, with several inputs, stream."""
    table = value_table(node, rows)
    extra: dict[str, Any] = {"timestamp": pa.array(rows.timestamps)}
    if keys is not None:
        extra = {"key": keys, "key_index": pa.array(codes, pa.int32()), **extra}
    if len(node.inputs) > 1:
        names = np.repeat([a.stream for a in arrivals], [len(a.parcel.rows) for a in arrivals])
        extra["stream"] = pa.array(names.tolist(), pa.string())
    for name, column in extra.items():
        # A value column of the same name wins: it is what the user's key extractor saw.
        if name not in table.schema.names:
            table = table.append_column(name, column)
        elif name == "key_index":
            raise UserCodeError(f"computation {node.name!r}: the records have a column 'key_index'")
    return table


class BareTableContext(TableContext):
    """`ctx` of tables: services and productions only."""

    def __init__(self, emitter: Emitter, node: Node, timestamps: Any, hook: int = 0) -> None:
        plan = emitter.task.plan
        self._emitter = emitter
        self._node = node
        self._newest = int(timestamps.max()) if len(timestamps) else BEGINNING
        self._services = HookServices(plan.wall, plan.seed, node.name)
        self._services.begin(emitter.label.encode(), hook)
        self._behind = BEGINNING
        self.watermark = 0
        self.final = plan.final

    def now(self) -> int:
        return self._services.now()

    @property
    def random(self) -> random.Random:
        return self._services.random

    def uuid(self) -> uuid.UUID:
        return self._services.uuid()

    def count(self, metric: str, n: int = 1) -> None:
        self._emitter.count(f"{self._node.name}.{metric}", n)

    def read(self) -> pa.Table:
        raise ValueError(f"{self._node.name!r} has no key, so it has no state")

    def write(self, columns: pa.Table | dict[str, Any] | None = None, **more: Any) -> None:
        raise ValueError(f"{self._node.name!r} has no key, so it has no state")

    def produce_table(
        self, table: pa.Table | dict[str, Any], *, to: str | None = None, timestamp: Any = None
    ) -> None:
        if isinstance(table, dict):
            table = pa.table(table)
        count = table.num_rows
        if timestamp is None and "timestamp" in table.schema.names:
            timestamp = "timestamp"
        if isinstance(timestamp, str):
            times = _micros(table.column(timestamp), timestamp)
        elif timestamp is None:
            times = np.full(count, self._newest, np.int64)
        elif isinstance(timestamp, int | datetime):
            times = np.full(count, instant(timestamp, what="produce_table: timestamp="), np.int64)
        else:
            times = np.broadcast_to(np.asarray(timestamp, np.int64), (count,)).copy()
        self._emitter.counters.behind += int((times < self._behind).sum())
        rows = Rows(times, columns=one_batch(table))
        stream = self._stream(to)
        if stream in self._emitter.runtime.topology.needs_origin:
            rows.origins = self._origins(count)
            if stream in self._emitter.runtime.topology.needs_identity:
                self._identify(stream, rows)
        self._emitter.emit(stream, rows)

    def _stream(self, to: str | None) -> str:
        outputs = self._node.outputs
        if to is None and len(outputs) == 1:
            return next(iter(outputs.values()))
        if to is not None and (to in outputs or to in outputs.values()):
            return outputs.get(to, to)
        names = ", ".join(repr(p or s) for p, s in outputs.items()) or "none"
        raise ValueError(f"{self._node.name!r}: there is no output {to!r}; outputs are {names}")

    def _origins(self, count: int) -> pa.Array:
        label = self._emitter.label.encode()
        return pa.array([label + i.to_bytes(8, "big") for i in range(count)], pa.binary())

    def _identify(self, stream: str, rows: Rows) -> None:
        identify(self._emitter, stream, rows)


class KeylessTableContext(BareTableContext):
    """`ctx` of keyless tables."""

    def __init__(self, emitter: Emitter, node: Node, index: int, rows: Rows, hook: int) -> None:
        super().__init__(emitter, node, rows.timestamps, hook)
        self._index, self._input, self._tables = index, rows, 0

    def _origins(self, count: int) -> pa.Array:
        if self._input.origins is not None and len(self._input) == count:
            # A row for each row: each comes from the one in its place.
            causes, _ = self._emitter.origins(self._node.inputs[self._index].stream, self._input)
            origins = [keyless_origin(c, self._index, 0) for c in causes or ()]
            return pa.array(origins, pa.binary())
        return super()._origins(count)

    def _identify(self, stream: str, rows: Rows) -> None:
        _, causes = self._emitter.origins(self._node.inputs[self._index].stream, self._input)
        if len(causes) != len(rows):
            super()._identify(stream, rows)
            return
        name, self._tables = self._node.name, self._tables + 1
        origins = self._origins(len(rows)).to_pylist()
        cells = [
            origin + production_identity(name, b"%d" % self._index, cause, self._tables)
            for origin, cause in zip(origins, causes, strict=True)
        ]
        rows.origins = pa.array(cells, pa.binary())


class KeyedTableContext(BareTableContext):
    """`ctx` of keyed tables: state by position of the distinct keys."""

    def __init__(self, run: KeyedRun, keys: list[bytes], codes: Any, timestamps: Any) -> None:
        super().__init__(run.emitter, run.node, timestamps)
        self._behind = run.task.outs.get(run.node.name, BEGINNING)
        self._live = run.live
        self._fields = run.live.shape.plain
        self._version = run.live.shape.options.version
        self._keys = keys
        self._shown = [decode_key(key) for key in keys]
        self._hashes = np.fromiter(map(hash_key, keys), np.uint64, len(keys))
        self._stored: list[Stored] = run.slot.view.fetch(keys, self._hashes, maps=False)
        self._migrated = self._migrate()
        if run.live.shape.options.clock == "wall":
            clocks = np.full(len(keys), run.task.plan.wall, np.int64)
        else:
            clocks = np.full(len(keys), run.before, np.int64)
            np.maximum.at(clocks, codes, timestamps)
        self._clocks = clocks
        self._written: dict[str, list[bytes]] = {}
        self.watermark = run.before
        self.final = run.now == END

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
        """Keys that another version of the class has written, as this one sees them."""
        return {
            i: keystate.load(self._live, self._keys[i], stored)
            for i, stored in enumerate(self._stored)
            if stored.version not in (0, self._version)
        }

    def read(self) -> pa.Table:
        columns: dict[str, Any] = {"key": self._key_array()}
        clocks = self._clocks.tolist()
        for field in self._fields:
            cells = [self._value(i, field, clock) for i, clock in enumerate(clocks)]
            kind = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
            columns[field.name] = pa.array(cells, kind.get(field.codec.type))
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
            raise keystate.unfit(self._live, self._keys[i], field, error) from None

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

    def cells(self) -> list[Cell]:
        """What is to be written."""
        found: list[Cell] = []
        hashes, clocks = self._hashes.tolist(), self._clocks.tolist()
        for i, state in self._migrated.items():
            for field in self._fields:
                if field.name in self._written:
                    data = self._written[field.name][i]
                    setattr(state.object, field.name, field.codec.decode(data))
            keystate.note_writes(self._live, state, clocks[i])
            found.extend(keystate.changes(self._live, self._keys[i], state, clocks[i]))
        for field in self._fields:
            written = self._written.get(field.name)
            if written is None:
                continue
            for i, data in enumerate(written):
                if i in self._migrated:
                    continue
                cell = self._stored[i].fields.get(field.name)
                gone = data == field.initial_data
                if gone and cell is None:
                    continue
                # With a TTL also the same value is a write: it lives from now on.
                if cell is not None and cell[0] == data and field.ttl_us is None:
                    continue
                expires = END if field.ttl_us is None else clocks[i] + field.ttl_us
                found.append(
                    Cell(
                        hashes[i],
                        self._keys[i],
                        FIELD,
                        field.name,
                        b"",
                        b"" if gone else data,
                        clocks[i],
                        expires,
                        self._version,
                        gone,
                    )
                )
        return found

    def _origins(self, count: int) -> pa.Array:
        if count == len(self._keys):
            origins = [keyed_origin(self._node.name, key) for key in self._keys]
            return pa.array(origins, pa.binary())
        return super()._origins(count)


def _micros(column: pa.ChunkedArray, name: str) -> Any:
    """A column of timestamps as microseconds."""
    if column.null_count:
        raise ValueError(f"produce_table: column {name!r} has no timestamp in some rows")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    return column.to_numpy().astype(np.int64)


def _as_list(values: Any) -> list[Any]:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return python_list(values)
    if isinstance(values, np.ndarray):
        return values.tolist()
    return list(values)
