"""Exports the state of a computation as Parquet: one row per key, one column per field and map.

    <place>/part-00000.parquet ...
    <place>/_headrace.json           written last: epoch, computation, rows, files

Readers of Parquet skip names with an underscore; an export without that file was interrupted. The
scan runs twice, first to find the type of each column, so memory holds a part of the keys at most.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.engine.primitives.columns import (
    ColumnKind,
    array_of,
    both,
    declared_kind,
    field_of,
    kind_of,
    kind_of_map,
)
from headrace.engine.primitives.epoch_state import EpochState, State
from headrace.engine.upkeep.pins import HeldPin
from headrace.errors import InvalidPipeline
from headrace.store.location import checkpoint_store
from headrace.store.store import Store

ROWS_AT_ONCE = 10_000
ROWS_PER_FILE = 200_000
DONE = "_headrace.json"

_NOTHING = ColumnKind("nothing")


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
        key, *fields = self.schema
        remaining = self._rows()
        while rows := list(islice(remaining, ROWS_AT_ONCE)):
            arrays = [array_of(key, [_parts(each) for each, _ in rows])]
            arrays += [array_of(f, [state.get(f.name) for _, state in rows]) for f in fields]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _rows(self) -> Iterator[tuple[Any, State]]:
        for number, row in enumerate(self._state.scan(self._computation)):
            if self._pin is not None and number % ROWS_AT_ONCE == 0:
                self._pin.keep()
            yield row

    def _columns(self) -> pa.Schema:
        kinds: dict[str, ColumnKind] = {}
        declared, maps = self._declared()
        keys = _NOTHING
        for key, state in self._rows():
            keys = both(keys, _kind_of_key(key))
            for name, value in state.items():
                is_map = name in maps and isinstance(value, dict)
                found = kind_of_map(value) if is_map else kind_of(value)
                kinds[name] = both(kinds.get(name, _NOTHING), found)
        for name, kind in declared.items():
            with_hint = both(kinds.get(name, _NOTHING), kind)
            if with_hint.name != "mixed":  # values count more than what is declared
                kinds[name] = with_hint
        fields = [field_of(name, kinds[name]) for name in sorted(kinds, key=_order(declared))]
        called = "key"
        while called in kinds:
            called += "_"
        return pa.schema([field_of(called, keys), *fields])

    def _declared(self) -> tuple[dict[str, ColumnKind], set[str]]:
        """The declared kinds of fields, and which fields are maps, as the code in force says."""
        contract = self._state.ledger.code.contract
        found = contract.computations.get(self._computation) if contract is not None else None
        if found is None:
            return {}, set()
        maps = {name for name, text in found.fields.items() if ".Map" in text.partition("[")[0]}
        return {name: declared_kind(text) for name, text in found.fields.items()}, maps


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
    files: list[str] = []
    rows = 0
    some: list[pa.RecordBatch] = []
    for batch in table.batches():
        some.append(batch)
        rows += batch.num_rows
        if sum(each.num_rows for each in some) >= ROWS_PER_FILE:
            files.append(_write(to, len(files), table.schema, some))
            some = []
    if some or not files:
        files.append(_write(to, len(files), table.schema, some))
    columns = {f.name: "json" if f.metadata else str(f.type) for f in table.schema}
    found = Exported(pipeline, computation, state.epoch, rows, columns, tuple(files), to.where())
    to.write(DONE, msgspec.json.encode(found))
    return found


def as_table(state: EpochState, computation: str) -> pa.Table:
    """The state of a computation as one Arrow table, in memory."""
    table = StateTable(state, computation)
    return pa.Table.from_batches(table.batches(), schema=table.schema)


def _write(to: Store, number: int, schema: pa.Schema, batches: list[pa.RecordBatch]) -> str:
    name = f"part-{number:05d}.parquet"
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches(batches, schema=schema), out, compression="zstd")
    to.write(name, out.getvalue().to_pybytes())
    return name


def _kind_of_key(key: Any) -> ColumnKind:
    """The kind of a key; one of several parts is a struct."""
    return kind_of(_parts(key))


def _parts(key: Any) -> Any:
    """A key of several parts as a dict of them."""
    if not isinstance(key, tuple):
        return key
    return {f"part_{number}": _parts(part) for number, part in enumerate(key)}


def _order(declared: dict[str, ColumnKind]) -> Any:
    """Declared fields in their order, then others by name."""
    places = {name: number for number, name in enumerate(declared)}
    return lambda name: (places.get(name, len(places)), name)
