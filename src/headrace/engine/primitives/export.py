"""Exports the state of a computation as Parquet: one row per key, one column per field and map.

    <place>/part-00000.parquet ...
    <place>/_headrace.json           written last: epoch, computation, rows, files

Readers of Parquet skip names with an underscore; an export without that file was interrupted. The
scan runs twice, first to find the type of each column. Memory holds a few parts of the state, of
`BYTES_AT_ONCE` or of one key if that is larger, and one compressed file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.engine.primitives.columns import (
    ABSENT,
    FIELD,
    KEY,
    MIXED,
    NOTHING,
    NULLABLE,
    ColumnKind,
    array_of,
    both,
    declared_kind,
    field_of,
    is_json,
    key_column,
    kind_of,
    kind_of_map,
)
from headrace.engine.primitives.epoch_state import BYTES_AT_ONCE, EpochState, State
from headrace.engine.upkeep.pins import HeldPin
from headrace.errors import InvalidPipeline
from headrace.store.location import checkpoint_store
from headrace.store.store import Store

ROWS_AT_ONCE = 10_000
"""In one batch, which ends after `BYTES_AT_ONCE` too."""
ROWS_PER_FILE, BYTES_PER_FILE = 200_000, 64_000_000
"""About how large a file becomes, before it is compressed."""
DONE = "_headrace.json"

_NOTHING = ColumnKind(NOTHING)


class Exported(msgspec.Struct, frozen=True):
    """What was exported."""

    pipeline: str
    computation: str
    epoch: int
    rows: int
    columns: dict[str, str]
    """Column -> its type; `json` where values of several kinds are JSON."""
    files: tuple[str, ...]
    location: str


class StateTable:
    """The state of a computation as a table, with the types of its columns."""

    def __init__(self, state: EpochState, computation: str, pin: HeldPin | None = None) -> None:
        self._state, self._computation, self._pin = state, computation, pin
        self.schema = self._columns()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some at a time."""
        rows: list[tuple[Any, State]] = []
        total = 0
        for key, state, size in self._rows():
            rows.append((key, state))
            total += size
            if len(rows) >= ROWS_AT_ONCE or total >= BYTES_AT_ONCE:
                batch, rows, total = self._batch(rows), [], 0
                yield batch
                del batch
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[tuple[Any, State]]) -> pa.RecordBatch:
        key, *fields = self.schema
        arrays = [array_of(key, [each for each, _ in rows])]
        arrays += [array_of(f, [state.get(f.name, ABSENT) for _, state in rows]) for f in fields]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _rows(self) -> Iterator[tuple[Any, State, int]]:
        for number, row in enumerate(self._state.sized_scan(self._computation)):
            if self._pin is not None and number % ROWS_AT_ONCE == 0:
                self._pin.keep()
            yield row

    def _columns(self) -> pa.Schema:
        kinds: dict[str, ColumnKind] = {}
        texts = declared_fields(self._state, self._computation)
        declared = {name: declared_kind(text) for name, text in texts.items()}
        maps = {name for name, text in texts.items() if ".Map" in text.partition("[")[0]}
        keys, rows = _NOTHING, 0
        present: Counter[str] = Counter()
        nones: set[str] = set()
        for key, state, _ in self._rows():
            keys, rows = both(keys, kind_of(key)), rows + 1
            for name, value in state.items():
                present[name] += 1
                if value is None:
                    nones.add(name)
                is_map = name in maps and isinstance(value, dict)
                found = kind_of_map(value) if is_map else kind_of(value)
                kinds[name] = both(kinds.get(name, _NOTHING), found)
        for name, kind in declared.items():
            with_hint = both(kinds.get(name, _NOTHING), kind)
            if with_hint.name != MIXED:  # values count more than what is declared
                kinds[name] = with_hint
        for name in nones:
            if present[name] < rows:  # one null would be both None and a field that is not there
                kinds[name] = ColumnKind(MIXED)
        return pa.schema(
            [field_of(key_column(kinds), keys, KEY)]
            + [
                field_of(name, kinds[name], NULLABLE if name in nones else FIELD)
                for name in sorted(kinds, key=_order(declared))
            ]
        )


def declared_fields(state: EpochState, computation: str) -> dict[str, str]:
    """The fields of a computation with their types, as the code in force declares them."""
    contract = state.ledger.code.contract
    found = contract.computations.get(computation) if contract is not None else None
    return {} if found is None else dict(found.fields)


def export(
    state: EpochState,
    computation: str,
    place: str | os.PathLike[str] | Store,
    pipeline: str = "",
    pin: HeldPin | None = None,
) -> Exported:
    """Writes the state of a computation as Parquet files into an empty place."""
    to = checkpoint_store(place)
    if to.list(""):
        raise InvalidPipeline(
            f"{to.where()} is not empty: export into a place of its own, or delete what is there"
        )
    table = StateTable(state, computation, pin)
    to.make_directory("")
    files, rows = _Files(to, table.schema), 0
    for batch in table.batches():
        rows += batch.num_rows
        files.add(batch)
        del batch
    files.close()
    columns = {f.name: "json" if is_json(f) else str(f.type) for f in table.schema}
    found = Exported(
        pipeline, computation, state.epoch, rows, columns, tuple(files.names), to.where()
    )
    to.write(DONE, msgspec.json.encode(found))
    return found


def as_table(state: EpochState, computation: str) -> pa.Table:
    """The state of a computation as one Arrow table, in memory."""
    table = StateTable(state, computation)
    return pa.Table.from_batches(table.batches(), schema=table.schema)


class _Files:
    """The Parquet files of an export. Batches become a group of rows together, and groups a file;
    a group is compressed at once."""

    def __init__(self, to: Store, schema: pa.Schema) -> None:
        self._to, self._schema = to, schema
        self.names: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self._out = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._out, self._schema, compression="zstd")
        self._group: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Writes a batch, or keeps it for the next group."""
        self._group.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROWS_PER_FILE or self._bytes >= BYTES_PER_FILE:
            self._end()
            self._begin()
        elif sum(each.nbytes for each in self._group) >= BYTES_AT_ONCE:
            self._compress()

    def close(self) -> None:
        """Writes what is left; there is at least one file."""
        if self._rows or not self.names:
            self._end()
        else:
            self._writer.close()

    def _compress(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._group, schema=self._schema))
        self._group = []

    def _end(self) -> None:
        if self._group:
            self._compress()
        self._writer.close()
        name = f"part-{len(self.names):05d}.parquet"
        self._to.write(name, self._out.getvalue().to_pybytes())
        self.names.append(name)


def _order(declared: dict[str, ColumnKind]) -> Any:
    """Declared fields in their order, then others by name."""
    places = {name: number for number, name in enumerate(declared)}
    return lambda name: (places.get(name, len(places)), name)
