"""`process_table`: a slot's records of the epoch as one Arrow table, state as columns."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.causal.services import HookServices
from headrace.errors import HeadraceError, UserCodeError
from headrace.model.context import TableContext
from headrace.model.keys import decode_key, hash_key
from headrace.model.rows import Rows, one_batch, python_list
from headrace.model.time import BEGINNING, END
from headrace.pipeline.graph import Node
from headrace.plan.parcel import Parcel
from headrace.state.segment import FIELD, Cell
from headrace.state.view import Stored
from headrace.worker.arrivals import Arrival
from headrace.worker.emitter import Emitter, keyed_origin
from headrace.worker.keyless import describe, keep_on_time
from headrace.worker.runtime import Live

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
    for _, stream, rows in inputs:
        rows = keep_on_time(emitter, live.node, rows, before)
        if len(rows):
            context = BareTableContext(emitter, live.node, rows.timestamps)
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
    try:
        obj.process_table(table, context)
    except HeadraceError:
        raise
    except Exception as error:
        what = f"process_table over {table.num_rows:,} records"
        raise UserCodeError(describe(live.node, None, what, error)) from error


def _table(
    node: Node, rows: Rows, arrivals: list[Arrival], keys: pa.Array | None, codes: Any
) -> pa.Table:
    """The value columns, then key, key_index, timestamp and, with several inputs, stream."""
    if rows.columns is not None:
        table = pa.Table.from_batches([rows.columns])
    else:
        values = rows.values()
        if values and all(isinstance(value, dict) for value in values):
            table = pa.Table.from_pylist(values)
        else:
            table = pa.table({"value": values})
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
    """`ctx` of keyless tables: services and productions only."""

    def __init__(self, emitter: Emitter, node: Node, timestamps: Any) -> None:
        plan = emitter.task.plan
        self._emitter = emitter
        self._node = node
        self._newest = int(timestamps.max()) if len(timestamps) else BEGINNING
        self._services = HookServices(plan.wall, plan.seed, node.name)
        self._services.begin(emitter.label.encode(), 0)
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
            times = table.column(timestamp).to_numpy().astype(np.int64)
        elif timestamp is None:
            times = np.full(count, self._newest, np.int64)
        else:
            times = np.broadcast_to(np.asarray(timestamp, np.int64), (count,)).copy()
        rows = Rows(times, columns=one_batch(table))
        stream = self._stream(to)
        if stream in self._emitter.runtime.topology.needs_origin:
            rows.origins = self._origins(count)
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


class KeyedTableContext(BareTableContext):
    """`ctx` of keyed tables: state by position of the distinct keys."""

    def __init__(self, run: KeyedRun, keys: list[bytes], codes: Any, timestamps: Any) -> None:
        super().__init__(run.emitter, run.node, timestamps)
        self._fields = run.live.shape.plain
        self._version = run.live.shape.options.version
        self._keys = keys
        self._shown = [decode_key(key) for key in keys]
        self._hashes = np.fromiter(map(hash_key, keys), np.uint64, len(keys))
        self._stored: list[Stored] = run.slot.view.fetch(keys, self._hashes, maps=False)
        clocks = np.full(len(keys), run.before, np.int64)
        np.maximum.at(clocks, codes, timestamps)
        self._clocks = clocks
        self._written: dict[str, list[bytes]] = {}
        self.watermark = run.before
        self.final = run.now == END

    def key_column(self, codes: Any) -> pa.Array:
        """The keys of the rows."""
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(self._shown))

    def read(self) -> pa.Table:
        columns: dict[str, Any] = {"key": pa.array(self._shown)}
        for field in self._fields:
            decode, cells = field.codec.decode, []
            for stored, clock in zip(self._stored, self._clocks.tolist(), strict=True):
                cell = stored.fields.get(field.name)
                live = cell is not None and (field.ttl_us is None or cell[1] > clock)
                cells.append(decode(cell[0]) if live and cell else field.fresh())
            kind = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
            columns[field.name] = pa.array(cells, kind.get(field.codec.type))
        return pa.table(columns)

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
        for field in self._fields:
            written = self._written.get(field.name)
            if written is None:
                continue
            for i, data in enumerate(written):
                cell = self._stored[i].fields.get(field.name)
                gone = data == field.initial_data
                if (gone and cell is None) or (cell is not None and cell[0] == data):
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


def _as_list(values: Any) -> list[Any]:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return python_list(values)
    if isinstance(values, np.ndarray):
        return values.tolist()
    return list(values)
