"""Rows that operators send: as a table if every column has one type, otherwise as values.

Both forms mean the same to later steps. So a row does not depend on the rows of other keys that
are sent with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.model.values.arrow import python_list, zipped
from headrace.operators.columns.cells import is_cells, lists_by, typed_array, values_in
from headrace.operators.columns.groups import Ints

if TYPE_CHECKING:
    from headrace.model.context import TableContext

Column: TypeAlias = "pa.Array | list[Any]"


def send(ctx: TableContext, columns: dict[str, Column], **options: Any) -> None:
    """Sends one row per position of the columns. `options` are those of `ctx.produce_table`.

    In a column, a null or an empty list would get the type of other rows, so such rows are sent as
    values.
    """
    arrays = {name: shown(column) for name, column in columns.items()}
    if all(array is not None and _is_typed_alone(array) for array in arrays.values()):
        ctx.produce_table(arrays, **options)
        return
    lists = [
        python_list(array) if array is not None else in_python(column)
        for array, column in zip(arrays.values(), columns.values(), strict=True)
    ]
    ctx.produce_values(list(zipped(list(columns), lists)), **options)


def _is_typed_alone(array: pa.Array) -> bool:
    """Whether each cell alone would have the same type."""
    if array.null_count:
        return False
    if pa.types.is_struct(array.type):
        return all(map(_is_typed_alone, array.flatten()))
    if pa.types.is_list(array.type):
        lengths = array.value_lengths().to_numpy(False)
        return bool((lengths > 0).all()) and _is_typed_alone(array.flatten())
    return True


def send_dicts(ctx: TableContext, values: Sequence[dict[str, Any]], **options: Any) -> None:
    """Sends one row per dict, each with its own names."""
    names = list(values[0]) if values else []
    if names and all(list(value) == names for value in values) and _all_text(names):
        send(ctx, {name: [value[name] for value in values] for name in names}, **options)
    else:
        ctx.produce_values(values, **options)


def _all_text(names: list[Any]) -> bool:
    return all(type(name) is str for name in names)


def shown(column: Column) -> pa.Array | None:
    """A column in the form for a table; None if it has no such form."""
    if isinstance(column, pa.Array):
        if not is_cells(column):
            return column
        column = values_in(column)
    kinds = set(map(type, column)) - {type(None)}
    if kinds != {list}:
        return typed_array(column, kinds)
    items = [item for cells in column if cells is not None for item in cells]
    inner = typed_array(items, set(map(type, items)) - {type(None)})
    if inner is None or any(cells is None for cells in column):
        return None
    return lists_by(np.fromiter(map(len, column), np.int64, len(column)), inner)


def in_python(column: Column) -> list[Any]:
    """A column as Python values."""
    return values_in(column) if isinstance(column, pa.Array) else column


def behind(above: Column, below: Column) -> Column:
    """Two columns, concatenated."""
    if isinstance(above, pa.Array) and isinstance(below, pa.Array):
        if pa.types.is_null(above.type):
            above = pa.nulls(len(above), below.type)
        elif pa.types.is_null(below.type):
            below = pa.nulls(len(below), above.type)
        if above.type == below.type:
            return pa.concat_arrays([above, below])
    return [*in_python(above), *in_python(below)]


def key_columns(names: Sequence[str], keys: Sequence[Any], rows: Ints) -> dict[str, Column]:
    """The columns of the key: its parts, or one column in which a tuple is a struct."""
    if len(names) == 1:
        return {names[0]: _taken(keys, rows)}
    return parts_of(names, keys, rows)


def parts_of(names: Sequence[str], keys: Sequence[Any], rows: Ints) -> dict[str, Column]:
    """A column for each part of keys that are tuples."""
    return {name: _taken([key[i] for key in keys], rows) for i, name in enumerate(names)}


def _taken(keys: Sequence[Any], rows: Ints) -> Column:
    if len(rows) < len(keys):  # decode only the keys that are needed
        used, rows = np.unique(rows, return_inverse=True)
        keys = [keys[i] for i in used.tolist()]
    array = _key_array(keys)
    if array is not None:
        return array.take(pa.array(rows))
    cells = [_in_a_column(key) for key in keys]
    return [cells[i] for i in rows.tolist()]


def _key_array(keys: Sequence[Any]) -> pa.Array | None:
    kinds = set(map(type, keys)) - {type(None)}
    if kinds != {tuple}:
        return typed_array(list(keys), kinds)
    sizes = {len(key) if key is not None else -1 for key in keys}
    size = sizes.pop()
    if sizes or size < 1:
        return None
    parts = [_key_array([key[i] for key in keys]) for i in range(size)]
    if any(part is None for part in parts):
        return None
    return pa.StructArray.from_arrays(parts, [f"part_{i}" for i in range(size)])


def _in_a_column(key: Any) -> Any:
    """A key in the form for a row: a tuple becomes a struct of `part_0`, `part_1`, ..."""
    if isinstance(key, tuple):
        return {f"part_{i}": _in_a_column(part) for i, part in enumerate(key)}
    return key
