"""Rows as Arrow tables that a Delta or an Iceberg table can hold.

Such tables have no unsigned integers, no durations and no null columns, and not all have times of
day. Types that have a wider neighbour become it (uint64 becomes decimal(20, 0)); the others are
refused. A value goes into a column only if it stays what it is; microseconds since 1970 become
timestamps. A name inside a struct that the column lacks is refused: Arrow alone would drop it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.errors import SinkError
from headrace.model.values.kinds import kind_of
from headrace.model.values.rows import Rows
from headrace.sinks.columns import INSTANT, already_there, as_batch, as_dicts, column_names

WIDE = pa.decimal128(38, 0)
"""The type of integers beyond 64 bits; they may have 38 digits."""

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)

Cells = Any
"""The cells of a column: an Arrow array, or a list of Python values."""


def schema_for(schema: pa.Schema) -> pa.Schema:
    """A schema in types that such tables have."""
    fields = [field.with_type(type_for(field.type, field.name)) for field in schema]
    return pa.schema(fields)


def type_for(kind: pa.DataType, name: str) -> pa.DataType:
    """The type that a column has for an Arrow type; SinkError if there is none."""
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_dictionary(kind):
        return type_for(kind.value_type, name)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us") if kind.tz is None else INSTANT
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if any(is_list(kind) for is_list in _LISTS):
        return pa.list_(type_for(kind.value_type, name))
    if pa.types.is_map(kind):
        return pa.map_(type_for(kind.key_type, name), type_for(kind.item_type, name))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(type_for(f.type, f"{name}.{f.name}")) for f in kind])
    is_wide = pa.types.is_decimal(kind) and kind.precision > 38
    unknown = (pa.types.is_time, pa.types.is_duration, pa.types.is_null, pa.types.is_union)
    if is_wide or any(is_unknown(kind) for is_unknown in unknown):
        raise SinkError(
            f"column {name!r} is of type {kind}, which such tables do not have: convert it, or "
            "name another type in schema="
        )
    return kind


def cells_of(rows: Rows, timestamp: str | None) -> dict[str, Cells]:
    """The columns of some rows: Arrow arrays, or lists of Python values."""
    found: dict[str, Cells] = {}
    if rows.columns is not None:
        found = dict(zip(rows.columns.schema.names, rows.columns.columns, strict=True))
    else:
        dicts = as_dicts(rows)
        found = {name: [row.get(name) for row in dicts] for name in column_names(dicts)}
    if timestamp is not None:
        if timestamp in found:
            raise already_there(timestamp)
        found[timestamp] = pa.array(rows.timestamps, pa.int64()).cast(INSTANT)
    return found


def inferred(parts: Sequence[dict[str, Cells]], times: Collection[str] = ()) -> pa.Schema:
    """The schema of a new table with these columns; a column of nothing but None is left out.

    Integers in the columns `times` are microseconds since 1970.
    """
    fields: dict[str, pa.DataType] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        kinds = [_kind_of(name, part[name]) for part in parts if name in part]
        known = [kind for kind in kinds if not pa.types.is_null(kind)]
        if known:
            fields[name] = _common(name, known)
            if name in times and pa.types.is_int64(fields[name]):
                fields[name] = INSTANT
    return pa.schema(list(fields.items()))


def _kind_of(name: str, cells: Cells) -> pa.DataType:
    if isinstance(cells, pa.Array):
        if pa.types.is_null(cells.type):
            return cells.type
        return type_for(cells.type, name)
    known = [value for value in cells if value is not None]
    if not known:
        return pa.null()
    if all(type(value) is int for value in known):
        return pa.int64() if all(-(2**63) <= value < 2**63 for value in known) else WIDE
    rows = Rows.of([{name: value} for value in known], [0] * len(known))
    return type_for(as_batch(rows).schema.field(0).type, name)


def _common(name: str, kinds: list[pa.DataType]) -> pa.DataType:
    if all(kind in (pa.int64(), WIDE) for kind in kinds):
        return WIDE if WIDE in kinds else pa.int64()
    try:
        schemas = [pa.schema([(name, kind)]) for kind in kinds]
        unified = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        shown = " and ".join(sorted({str(kind) for kind in kinds}))
        raise SinkError(
            f"column {name!r} has no common type: {shown}. Give the sink a schema="
        ) from None
    return unified.field(0).type


def as_table(parts: Sequence[dict[str, Cells]], schema: pa.Schema) -> pa.Table:
    """All rows in this schema, whose names are those of the rows at least."""
    batches = []
    first = 0
    for part in parts:
        length = len(next(iter(part.values())))
        arrays = []
        for field in schema:
            cells = part.get(field.name)
            if cells is None:
                arrays.append(pa.nulls(length, field.type))
            else:
                arrays.append(fitted(field.name, cells, field.type, first))
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        first += length
    return pa.Table.from_batches(batches, schema)


def fitted(name: str, cells: Cells, kind: pa.DataType, first: int = 0) -> pa.Array:
    """Cells as a column of a type. The error names the column and the row, counted from `first`."""
    if isinstance(cells, pa.Array):
        return _cast(name, cells, kind)
    for row, value in enumerate(cells):
        if value is not None and (why := misfit(value, kind)):
            raise _refused(name, first + row, value, kind, why)
    try:
        return pa.array(cells, kind)
    except _REFUSALS as error:
        for row, value in enumerate(cells):
            try:
                pa.array([value], kind)
            except _REFUSALS as found:
                raise _refused(name, first + row, value, kind, str(found)) from None
        raise SinkError(f"column {name!r} does not fit {kind}: {error}") from None


def _cast(name: str, cells: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if cells.type == kind:
        return cells
    if pa.types.is_nested(kind) and not pa.types.is_null(cells.type):
        return fitted(name, cells.to_pylist(), kind)
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    try:
        if is_text and type_for(cells.type, name) != kind:
            raise TypeError("it is of another kind")
        return cells.cast(kind)
    except _REFUSALS as error:
        raise SinkError(
            f"column {name!r} is of type {cells.type} and does not fit {kind}, the type of the "
            f"table: {error}"
        ) from None


def misfit(value: Any, kind: pa.DataType) -> str | None:
    """Why a value that is not None is of another kind than a column, or holds what it lacks."""
    for accepts, allowed in _ALLOWED:
        if accepts(kind):
            is_bool = isinstance(value, bool)
            fits = isinstance(value, allowed) and (not is_bool or bool in allowed)
            return None if fits else f"it is {kind_of(value)}"
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            return f"it is {kind_of(value)}"
        types = {field.name: field.type for field in kind}
        for name, inner in value.items():
            if name not in types:
                return f"the column has no {name!r} inside"
            if inner is not None and (why := misfit(inner, types[name])):
                return f"{name}: {why}"
    elif any(is_list(kind) for is_list in _LISTS):
        if not isinstance(value, list | tuple):
            return f"it is {kind_of(value)}"
        for inner in value:
            if inner is not None and (why := misfit(inner, kind.value_type)):
                return why
    return None


_ALLOWED: list[tuple[Any, tuple[type, ...]]] = [
    (pa.types.is_boolean, (bool,)),
    (pa.types.is_integer, (int,)),
    (pa.types.is_floating, (int, float)),
    (pa.types.is_decimal, (int, Decimal)),
    (pa.types.is_string, (str,)),
    (pa.types.is_binary, (bytes,)),
    (pa.types.is_timestamp, (int, datetime)),
    (pa.types.is_date, (date,)),
]


def _refused(name: str, row: int, value: Any, kind: pa.DataType, why: str) -> SinkError:
    return SinkError(
        f"column {name!r}, row {row + 1} of the epoch: {value!r:.80} does not fit {kind}, the type "
        f"of the table: {why}"
    )
