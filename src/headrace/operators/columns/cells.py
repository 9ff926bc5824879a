"""Columns inside operators: typed if all values are of one simple kind, otherwise cells.

The type of a *typed* column is int64, float64, string, binary or bool. *Cells* are the bytes with
which `model.values.kinds` orders values of all kinds; they are sorted, compared and joined like
text.

Invariant: both forms give the same results, so other values in the column cannot change a result.
No column is ever cast or inferred: if two columns have different types, both become cells.

Cells have an Arrow type that no typed column has.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from msgspec.msgpack import Ext

from headrace.model.values.arrow import one_array, python_list, stored_form
from headrace.model.values.kinds import from_ordered, micros_of, ordered
from headrace.operators.columns import exact_sum

CELLS = pa.large_binary()
TYPES: dict[type, pa.DataType] = {
    int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary(), bool: pa.bool_(),
}  # fmt: skip
_TYPED = frozenset(TYPES.values())
_TIMES = (datetime, date, time, timedelta)
_NOTHING = type(None)

Form = Literal["int", "float", "bytes", "value", "ints", "values"]
"""What a part of an accumulator is: a number, bytes, a value of any kind, or a list of them."""

_FIXED: dict[Form, pa.DataType] = {
    "int": pa.int64(), "float": pa.float64(), "bytes": pa.binary(), "ints": pa.list_(pa.int64()),
}  # fmt: skip


def column_of(values: list[Any]) -> pa.Array:
    """Values as a column; times become microseconds, decimals floats."""
    kinds = set(map(type, values))
    kinds.discard(_NOTHING)
    if not kinds <= _SIMPLE:
        values = [simple(value) for value in values]
        kinds = set(map(type, values)) - {_NOTHING}
    found = typed_array(values, kinds)
    if found is not None:
        return found
    return pa.array([None if value is None else ordered(value) for value in values], CELLS)


def typed_array(values: list[Any], kinds: set[type]) -> pa.Array | None:
    """Values of these kinds as a typed column, if there is a type for them."""
    if not kinds:
        return pa.nulls(len(values))
    kind = TYPES.get(next(iter(kinds))) if len(kinds) == 1 else None
    if kind is None:
        return None
    try:
        return pa.array(values, kind)
    except (OverflowError, pa.ArrowInvalid):
        return None  # integers of more than 64 bits


def simple(value: Any) -> Any:
    """A value in the form for aggregates: a time as microseconds, a decimal as a float."""
    if isinstance(value, _TIMES):
        return micros_of(value)
    if isinstance(value, Decimal):
        return math.nan if value.is_nan() else float(value)
    return value


_SIMPLE = frozenset({int, float, str, bytes, bool, list, dict})


def of_arrow(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """An Arrow column of any type, as a typed column or as cells."""
    if pa.types.is_decimal(column.type):
        return _floats(one_array(column))
    array = stored_form(column)
    if array.type in _TYPED or pa.types.is_null(array.type):
        return array
    return column_of(python_list(array))


def _floats(decimals: pa.Array) -> pa.Array:
    """The nearest float of each decimal, as in Python. Arrow's cast is sometimes inexact."""
    rows = np.flatnonzero(decimals.is_valid().to_numpy(False))
    scale = decimals.type.scale
    numbers = exact_sum.unscaled(decimals.take(pa.array(rows)))
    found = np.zeros(len(decimals))
    if numbers.dtype == object or scale not in _EXACT_TENS or (np.abs(numbers) > 2**53).any():
        found[rows] = [exact_sum.ratio((int(n), 0), 10**scale) for n in numbers.tolist()]
    else:
        found[rows] = numbers / 10.0**scale
    mask = np.ones(len(found), np.bool_)
    mask[rows] = False
    return pa.array(found, mask=mask)


_EXACT_TENS = range(23)
"""Exponents of powers of ten that a float holds exactly: dividing by them rounds once."""


def is_cells(column: pa.Array) -> bool:
    """Whether a column, or a column of lists, contains cells."""
    kind = column.type
    return bool((kind.value_type if pa.types.is_list(kind) else kind) == CELLS)


def as_cells(column: pa.Array) -> pa.Array:
    """The same values as cells."""
    if column.type == CELLS:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), CELLS)
    cells = [None if value is None else ordered(value) for value in python_list(column)]
    return pa.array(cells, CELLS)


def values_in(column: pa.Array) -> list[Any]:
    """The values of a column, or the lists of a column of lists."""
    if not is_cells(column):
        return python_list(column)
    if column.type == CELLS:
        return [None if cell is None else from_ordered(cell) for cell in column.to_pylist()]
    lists = column.to_pylist()
    return [None if cells is None else list(map(from_ordered, cells)) for cells in lists]


_CELL = 100
"""The extension type of a cell in stored accumulators."""


def to_stored(column: pa.Array) -> list[Any]:
    """A part of accumulators in stored form: values of typed columns, and cells unchanged."""
    if not is_cells(column):
        return python_list(column)
    if column.type == CELLS:
        return [None if cell is None else Ext(_CELL, cell) for cell in column.to_pylist()]
    return [[Ext(_CELL, cell) for cell in cells] for cells in column.to_pylist()]


def joined(first: pa.Array, second: pa.Array) -> pa.Array:
    """Two columns, concatenated."""
    if first.type.equals(second.type):
        return pa.concat_arrays([first, second])
    if pa.types.is_list(first.type) and pa.types.is_list(second.type):
        lengths = [one.value_lengths().to_numpy(False) for one in (first, second)]
        items = joined(first.flatten(), second.flatten())
        return lists_by(np.concatenate(lengths), items)
    if pa.types.is_null(second.type):
        return pa.concat_arrays([first, pa.nulls(len(second), first.type)])
    if pa.types.is_null(first.type):
        return pa.concat_arrays([pa.nulls(len(first), second.type), second])
    return pa.concat_arrays([as_cells(first), as_cells(second)])


def all_joined(columns: Sequence[pa.Array]) -> pa.Array:
    """Several columns, concatenated."""
    kinds = {column.type for column in columns}
    return pa.concat_arrays(columns) if len(kinds) == 1 else functools.reduce(joined, columns)


def lists_by(lengths: Any, items: pa.Array) -> pa.Array:
    """A column of consecutive lists of these lengths."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def of_stored(form: Form, parts: Sequence[Any]) -> pa.Array:
    """A column from the results of one or several calls of `to_stored`."""
    if form == "value":
        return _of_stored(list(parts))
    if form == "values":
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        return lists_by(lengths, _of_stored([value for items in parts for value in items]))
    return pa.array(parts, _FIXED[form])


def _of_stored(values: list[Any]) -> pa.Array:
    if Ext not in set(map(type, values)):
        return column_of(values)
    return pa.array([None if value is None else _cell(value) for value in values], CELLS)


def _cell(value: Any) -> bytes:
    return bytes(value.data) if type(value) is Ext else ordered(value)
