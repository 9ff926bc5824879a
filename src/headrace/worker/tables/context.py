"""The `ctx` of tables: services and productions, and the context of tables without keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from headrace.causal.lineage import keyless_origin, production_identity
from headrace.causal.services import Drawing
from headrace.errors import InvalidRecord, UserCodeError
from headrace.log import paths
from headrace.log.content import map_named, verify
from headrace.model.context import Input, TableContext
from headrace.model.values.arrow import one_batch
from headrace.model.values.rows import Rows
from headrace.model.values.schema_types import COLUMNS_NESTED_MAX, too_deep
from headrace.model.values.shown import shown
from headrace.model.values.time import BEGINNING, instant
from headrace.pipeline.graph.graph import Node
from headrace.worker import dead_letters
from headrace.worker.exchange.emitter import Emitter, fit, identify
from headrace.worker.tables.calls import TableCalls
from headrace.worker.watching.tracebacks import describe


class BareTableContext(Drawing, TableCalls, TableContext):
    """`ctx` of tables: services and productions only."""

    def __init__(self, emitter: Emitter, node: Node, rows: Rows, hook: int = 0) -> None:
        plan = emitter.order.plan
        timestamps = rows.timestamps
        self._emitter = emitter
        self._node = node
        self._input = rows
        self._newest = int(timestamps.max()) if len(timestamps) else BEGINNING
        self.key_bytes, self.hook = emitter.label.encode(), hook
        self.prepare_drawing(plan.wall, plan.seed, node.name)
        self.prepare_calls(emitter, node, hook)
        self._behind = BEGINNING
        self.watermark = self.watermark_before = self.watermark_after = 0
        self.final = plan.final
        self.epoch = plan.epoch

    @property
    def label(self) -> str:
        """The label of the unit of work that runs."""
        return self._emitter.label

    def count(self, metric: str, n: int = 1) -> None:
        self._emitter.count(f"{self._node.name}.{metric}", n)

    def checkpoint(self) -> None:
        self._emitter.asks = True

    def keys(self) -> Sequence[Any]:
        raise self._keyless("keys")

    def inputs(self) -> Sequence[Input]:
        raise self._keyless("inputs by key: each comes in a table of its own")

    def read(self) -> pa.Table:
        raise self._keyless("state")

    def write(self, columns: pa.Table | dict[str, Any] | None = None, **more: Any) -> None:
        raise self._keyless("state")

    def entries(self, name: str, key_index: Any = None) -> pa.Table:
        raise self._keyless("state")

    def put_entries(self, name: str, key_index: Any, entry: Any, value: Any) -> None:
        raise self._keyless("state")

    def timers(self, tag: Any = "", clock: str = "event") -> pa.Array:
        raise self._keyless("timers")

    def set_timers(
        self, key_index: Any, at: Any, *, tag: Any = "", clock: str = "event", hold: Any = None
    ) -> None:
        raise self._keyless("timers")

    def cancel_timers(self, key_index: Any, *, tag: Any = "") -> None:
        raise self._keyless("timers")

    def set_aside(
        self,
        error: Exception,
        key_index: int,
        value: Any,
        timestamp: int,
        stream: str | None = None,
    ) -> None:
        raise error

    def _keyless(self, what: str) -> ValueError:
        return ValueError(f"{self._node.name!r} has no key, so it has no {what}")

    def pass_on(self, rows: Any, *, to: str | None = None) -> None:
        chosen = np.asarray(rows)
        every = False
        if chosen.dtype == np.bool_:
            every = bool(chosen.all())
            chosen = np.flatnonzero(chosen)
        if not len(chosen):
            return
        given = self._input if every else self._input.take(chosen)
        passed = Rows(
            given.timestamps,
            columns=given.columns,
            packed=given.packed,
            time_column=given.time_column,
        )
        self._emit(passed, to, None, chosen)

    def produce_table(
        self,
        table: pa.Table | dict[str, Any],
        *,
        to: str | None = None,
        timestamp: Any = None,
        key_index: Any = None,
        causes: Any = None,
        ties: str = "order",
    ) -> None:
        if isinstance(table, dict):
            table = pa.table(table)
        if (deep := too_deep(table.schema)) is not None:
            raise TypeError(
                f"produce_table: column {deep!r} is nested more than {COLUMNS_NESTED_MAX} deep, "
                "which Arrow's files do not take"
            )
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
        self._emit(Rows(times, columns=one_batch(table)), to, key_index, causes, ties)

    def produce_values(
        self,
        values: Sequence[Any],
        *,
        to: str | None = None,
        timestamp: Any,
        key_index: Any = None,
        causes: Any = None,
        ties: str = "order",
    ) -> None:
        times = np.asarray(timestamp, np.int64)
        if len(values) != len(times):
            raise ValueError(f"produce_values: {len(values)} values, {len(times)} timestamps")
        if len(values):
            self._emit(Rows.of(values, times), to, key_index, causes, ties)

    def _emit(
        self, rows: Rows, to: str | None, key_index: Any, causes: Any, ties: str = "order"
    ) -> None:
        """`key_index` is the key of each row, `causes` the input row that caused it."""
        self._emitter.counters.behind += int((rows.timestamps < self._behind).sum())
        stream = self._stream(to)
        if stream in self._emitter.runtime.topology.needs_origin:
            rows.origins = self._origins(len(rows), key_index, causes)
            if ties == "content":
                rows.origins = _by_content(rows)
            if stream in self._emitter.runtime.topology.needs_identity:
                self._identify(stream, rows, causes)
        self._emitter.emit(stream, rows)

    def _stream(self, to: str | None) -> str:
        outputs = self._node.outputs
        if to is None and len(outputs) == 1:
            return next(iter(outputs.values()))
        if to is not None and (to in outputs or to in outputs.values()):
            return outputs.get(to, to)
        names = ", ".join(repr(p or s) for p, s in outputs.items()) or "none"
        raise ValueError(f"{self._node.name!r}: there is no output {to!r}; outputs are {names}")

    def _origins(self, count: int, key_index: Any, causes: Any) -> pa.Array:
        label = self._emitter.label.encode()
        return pa.array([label + i.to_bytes(8, "big") for i in range(count)], pa.binary())

    def _identify(self, stream: str, rows: Rows, causes: Any) -> None:
        identify(self._emitter, stream, rows)


class KeylessTableContext(BareTableContext):
    """`ctx` of keyless tables."""

    def __init__(self, emitter: Emitter, node: Node, index: int, rows: Rows, hook: int) -> None:
        super().__init__(emitter, node, rows, hook)
        self._index, self._tables = index, 0

    def _emit(
        self, rows: Rows, to: str | None, key_index: Any, causes: Any, ties: str = "order"
    ) -> None:
        """Emits rows. The policy handles records whose rows do not fit the stream's schema."""
        schema = self._emitter.runtime.topology.graph.schemas.get(self._stream(to))
        if schema is not None and causes is not None and len(rows):
            rows, reasons = fit(rows, schema)
            if reasons:
                at = np.asarray(causes)
                for i in sorted(reasons):
                    row = int(at[i])
                    (value,) = self._input.take(np.array([row])).values()
                    error = InvalidRecord(reasons[i])
                    self.set_aside(error, row, value, int(self._input.timestamps[row]))
                kept = np.delete(np.arange(len(rows)), list(reasons))
                rows, causes = rows.take(kept), at[kept]
        if len(rows):
            super()._emit(rows, to, key_index, causes, ties)

    def planned_table(self) -> tuple[str, pa.Buffer] | None:
        version = self._emitter.order.plan.tables.get(self._node.name)
        if version is None:
            return None
        data = map_named(self._emitter.runtime.store, version.file)
        verify(version.file, data)
        return paths.digest_in(version.file), data

    def inputs(self) -> Sequence[Input]:
        stream = self._node.inputs[self._index].stream
        return [Input(stream, 0, np.zeros(len(self._input), np.int32), self._input)]

    def set_aside(
        self,
        error: Exception,
        key_index: int,
        value: Any,
        timestamp: int,
        stream: str | None = None,
    ) -> None:
        node, emitter = self._node, self._emitter
        if not dead_letters.takes_letter(node.errors, error):
            what = f"record {shown(value, 200)}"
            kind = InvalidRecord if isinstance(error, InvalidRecord) else UserCodeError
            raise kind(describe(node, None, what, error)) from error
        stream = stream or node.inputs[self._index].stream
        letter = dead_letters.letter_of(emitter, node, None, stream, value, timestamp, error)
        origins, identities = emitter.origins(stream, self._input.take(np.array([key_index])))
        origin = origins[0] if origins else b""
        identity = identities[0] if identities else b""
        dead_letters.send(emitter, node.errors, letter, timestamp, origin, identity)

    def _causes(self, count: int, chosen: Any) -> tuple[list[bytes], list[bytes]] | None:
        """Origins and identities of the rows that caused `count` rows, if the causes are known."""
        given = self._input
        if given.origins is None or (chosen is None and len(given) != count):
            return None
        # One output row per input row: each output row comes from the input row at its position.
        causes = given if chosen is None else given.take(chosen)
        origins, identities = self._emitter.origins(self._node.inputs[self._index].stream, causes)
        return origins or [], identities

    def _origins(self, count: int, key_index: Any, causes: Any) -> pa.Array:
        known = self._causes(count, causes)
        if known is None:
            return super()._origins(count, key_index, causes)
        return pa.array([keyless_origin(c, self._index, 0) for c in known[0]], pa.binary())

    def _identify(self, stream: str, rows: Rows, causes: Any) -> None:
        known = self._causes(len(rows), causes)
        if known is None or len(known[1]) != len(rows):
            super()._identify(stream, rows, causes)
            return
        name, self._tables = self._node.lasting_name, self._tables + 1
        origins = self._origins(len(rows), None, causes).to_pylist()
        cells = [
            origin + production_identity(name, b"%d" % self._index, cause, self._tables)
            for origin, cause in zip(origins, known[1], strict=True)
        ]
        rows.origins = pa.array(cells, pa.binary())


def _by_content(rows: Rows) -> pa.Array:
    """Origins with a hash of each row's content, to distinguish rows of one key and time."""
    cells: Any = rows.as_packed().packed
    origins: Any = rows.origins
    pairs = zip(origins.to_pylist(), cells.to_pylist(), strict=True)
    return pa.array([o + xxhash.xxh3_128_digest(cell) for o, cell in pairs], pa.binary())


def _micros(column: pa.ChunkedArray, name: str) -> Any:
    """A column of timestamps as microseconds."""
    if column.null_count:
        raise ValueError(f"produce_table: column {name!r} has no timestamp in some rows")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    return column.to_numpy().astype(np.int64)
