"""Converts Arrow arrays and tables: to one chunk, to Python objects, to types of state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa


def dicts(columns: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows of Arrow columns as dicts."""
    names = columns.schema.names
    lists = lists_of(columns)
    return list(zipped(names, lists)) if names else [{} for _ in range(columns.num_rows)]


def lists_of(columns: pa.RecordBatch | pa.Table) -> list[list[Any]]:
    """The cells of each column as Python objects."""
    return [python_list(columns.column(i)) for i in range(columns.num_columns)]


def zipped(names: Sequence[str], lists: Sequence[list[Any]]) -> Iterator[dict[str, Any]]:
    """Columns as dicts, created one by one. `dict(zip())` would take at least twice the time."""
    match len(names):
        case 0:
            return iter(())
        case 1:
            (a,), (va,) = names, lists
            return ({a: x} for x in va)
        case 2:
            (a, b), (va, vb) = names, lists
            return ({a: x, b: y} for x, y in zip(va, vb, strict=True))
        case 3:
            (a, b, c), (va, vb, vc) = names, lists
            return ({a: x, b: y, c: z} for x, y, z in zip(va, vb, vc, strict=True))
        case 4:
            (a, b, c, d), (va, vb, vc, vd) = names, lists
            return ({a: w, b: x, c: y, d: z} for w, x, y, z in zip(va, vb, vc, vd, strict=True))
    starts = range(0, len(lists[0]), _AT_ONCE)
    return chain.from_iterable(_wide(names, [v[i : i + _AT_ONCE] for v in lists]) for i in starts)


_AT_ONCE = 64
"""This many wide rows are created at once: column by column, but within the processor's cache."""


def _wide(names: Sequence[str], lists: Sequence[list[Any]]) -> list[dict[str, Any]]:
    rows = list(zipped(names[:4], lists[:4]))
    for name, cells in zip(names[4:], lists[4:], strict=True):
        for row, cell in zip(rows, cells, strict=True):
            row[name] = cell
    return rows


def python_list(column: pa.Array) -> list[Any]:
    """The cells of a column as Python objects, with a fast path for numbers without nulls."""
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return column.to_numpy(zero_copy_only=False).tolist()
    if pa.types.is_list(kind) and isinstance(column, pa.ListArray) and not column.null_count:
        inner = kind.value_type
        if not (pa.types.is_nested(inner) or pa.types.is_temporal(inner)):
            return _cut(python_list(column.flatten()), column.value_lengths())
    if pa.types.is_nested(kind):
        if (micros := in_microseconds(kind)) != kind:
            column = column.cast(micros, safe=False)
        return column.to_pylist(maps_as_pydicts="strict")
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return [_of_pandas(cell) for cell in column.to_pylist()]
    return column.to_pylist()


def _cut(items: list[Any], lengths: pa.Array) -> list[list[Any]]:
    """Consecutive lists of these lengths. Arrow would look up the type of every item."""
    ends = list(accumulate(lengths.to_numpy(zero_copy_only=False).tolist()))
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one record batch."""
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    arrays = [pa.concat_arrays([b.column(i) for b in batches]) for i in range(table.num_columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def _of_pandas(cell: Any) -> Any:
    """A pandas value for nanoseconds as the corresponding Python value."""
    if hasattr(cell, "to_pydatetime"):
        return cell.to_pydatetime()
    return cell.to_pytimedelta() if hasattr(cell, "to_pytimedelta") else cell


@lru_cache(maxsize=1000)
def in_microseconds(kind: pa.DataType) -> pa.DataType:
    """A type whose times, also those inside, have microseconds, as Python's have."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(in_microseconds(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(in_microseconds(kind.key_type), in_microseconds(kind.item_type))
    for is_list, make in _LISTS:
        if is_list(kind):
            inside = in_microseconds(kind.value_type)
            return kind if inside == kind.value_type else make(kind.value_field.with_type(inside))
    return kind


_LISTS = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_fixed_size_list, pa.list_),
)
"""Views of lists are left out: pyarrow casts them wrongly."""


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array


def stored_form(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array of a type that state can hold: times become microseconds, decimals floats."""
    array = one_array(column)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return stored_form(array.dictionary_decode())
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_date(kind):
        return array.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_time(kind):
        return array.cast(pa.time64("us"), safe=False).cast(pa.int64())
    if pa.types.is_duration(kind):
        return array.cast(pa.duration("us"), safe=False).cast(pa.int64())
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return array.cast(pa.float64(), safe=False)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return array.cast(pa.int64())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return array.cast(pa.binary())
    return array


def ipc_bytes(batch: pa.RecordBatch) -> bytes:
    """A record batch as an Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue().to_pybytes()


def ipc_batch(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """The record batch of an Arrow IPC stream."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()
