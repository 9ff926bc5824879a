"""Rows as Arrow tables that a Delta or an Iceberg table can hold.

Such tables have no unsigned integers, no durations and no null columns, and not all have times of
day. Types that have a wider neighbour become it (uint64 becomes decimal(20, 0)), and UUIDs become
text; the others are refused. Which values fit a column, `sinks/fitting` says; microseconds since
1970 become timestamps.

None, an empty list and an empty dict show no type. Where rows show none, a new table has no column
and a struct no such name; there they read as None, until a value shows a type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import SinkError
from headrace.model.values.rows import Rows
from headrace.sinks.columns import INSTANT, already_there, as_batch, as_dicts, column_names
from headrace.sinks.fitting.arrays import Cells, column, is_bare, is_list

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
    if isinstance(kind, pa.UuidType):
        return pa.string()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if is_list(kind):
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


def fields_inside(fields: Iterable[pa.Field]) -> Iterator[tuple[str, list[pa.Field]]]:
    """The fields that stand beside each other: of the table, and of each struct inside.

    Each time with the names that lead there."""
    todo = [("", list(fields))]
    while todo:
        place, beside = todo.pop()
        yield place, beside
        for field in beside:
            kinds = [field.type]
            while kinds:
                kind = kinds.pop()
                if pa.types.is_struct(kind):
                    todo.append((f"{place}{field.name}.", list(kind)))
                elif is_list(kind):
                    kinds.append(kind.value_type)
                elif pa.types.is_map(kind):
                    kinds += [kind.key_type, kind.item_type]


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
    """The schema of a new table with these columns; what shows no type is left out.

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


def grown(name: str, parts: Sequence[Cells], kind: pa.DataType) -> pa.DataType:
    """The type of a column, with the names that these cells have inside and it lacks."""
    if not pa.types.is_nested(kind):
        return kind
    cells: list[Any] = []
    for part in parts:
        cells += part.to_pylist() if isinstance(part, pa.Array) else part
    if pa.types.is_struct(kind):
        dicts = [cell for cell in cells if isinstance(cell, dict)]
        fields = []
        for field in kind:
            inside = [one.get(field.name) for one in dicts]
            fields.append(field.with_type(grown(f"{name}.{field.name}", [inside], field.type)))
        for new in column_names(dicts):
            found = _kind_of(f"{name}.{new}", [one.get(new) for one in dicts])
            if kind.get_field_index(new) < 0 and not pa.types.is_null(found):
                fields.append(pa.field(new, found))
        return pa.struct(fields)
    if is_list(kind):
        items = [item for cell in cells if isinstance(cell, list | tuple) for item in cell]
        return pa.list_(kind.value_field.with_type(grown(name, [items], kind.value_type)))
    return kind


def shows_nothing(cells: Cells) -> bool:
    """Whether no cell shows what type the column has."""
    if isinstance(cells, pa.Array):
        return cells.null_count == len(cells) or _shown(cells.type) is None
    return all(map(is_bare, cells))


def _shown(kind: pa.DataType) -> pa.DataType | None:
    """A type without the parts of it that are null; None if nothing is left."""
    if pa.types.is_null(kind):
        return None
    if is_list(kind):
        inner = _shown(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        found = [(field, _shown(field.type)) for field in kind]
        fields = [field.with_type(inner) for field, inner in found if inner is not None]
        return pa.struct(fields) if fields else None
    if pa.types.is_map(kind):
        inner = _shown(kind.item_type)
        return None if inner is None else pa.map_(kind.key_type, inner)
    return kind


def _kind_of(name: str, cells: Cells) -> pa.DataType:
    """The type of these cells; null if they show none."""
    if shows_nothing(cells):
        return pa.null()
    if isinstance(cells, pa.Array):
        found = cells.type
    else:
        known = [value for value in cells if value is not None]
        if all(type(value) is int for value in known):
            return pa.int64() if all(-(2**63) <= value < 2**63 for value in known) else WIDE
        rows = Rows.of([{name: value} for value in known], [0] * len(known))
        found = as_batch(rows).schema.field(0).type
    shown = _shown(found)
    return pa.null() if shown is None else type_for(shown, name)


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
            arrays.append(column(field, part.get(field.name), length, first=first))
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        first += length
    return pa.Table.from_batches(batches, schema)
