"""The order of rows in a merge: by cell, and of each cell the newest version first.

Mostly all rows are fields, and no two keys share a hash. Then numbers are sorted, in runs that are
in order already, which takes a fraction of the time of sorting by keys and names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.state.segment import FIELD

_CELL = ("hash", "key", "kind", "field", "entry")


def order_of(table: pa.Table) -> tuple[Any, Any]:
    """The rows in order; and in that order, whether a row is the first of its cell.

    The rows of each segment are in the order of the segment, those of newer segments come first,
    and a column `age` says which segment a row is of.
    """
    return _of_fields(table) or _of_cells(table)


def _of_fields(table: pa.Table) -> tuple[Any, Any] | None:
    """None if some rows are no fields, or two keys share a hash."""
    if not table.num_rows or (table.column("kind").to_numpy() != FIELD).any():
        return None
    hashes = table.column("hash").to_numpy()
    order = hashes.argsort(kind="stable")
    first = _changes(hashes[order])
    names = table.column("field").combine_chunks().dictionary_encode()
    if len(names.dictionary) > 1:
        rank = np.empty(len(names.dictionary), np.int64)
        rank[pc.sort_indices(names.dictionary).to_numpy()] = np.arange(len(rank))
        group = np.empty(len(order), np.int64)
        group[order] = np.cumsum(first)
        cells = group * len(rank) + rank[names.indices.to_numpy()]
        order = cells.argsort(kind="stable")
        first = _changes(cells[order])
    keys = table.column("key").combine_chunks().take(pa.array(order))
    same_key = pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False)
    if (~same_key & ~_changes(hashes[order])[1:]).any():
        return None
    return order, first


def _of_cells(table: pa.Table) -> tuple[Any, Any]:
    keys = [(name, "ascending") for name in (*_CELL, "age")]
    order = pc.sort_indices(table, sort_keys=keys)
    table = table.select(_CELL).take(order).combine_chunks()
    n = table.num_rows
    same = np.ones(max(n - 1, 0), np.bool_)
    for name in _CELL:
        column = table.column(name)
        same &= pc.equal(column.slice(1), column.slice(0, max(n - 1, 0))).to_numpy()
    return order.to_numpy(), np.concatenate((np.ones(min(n, 1), np.bool_), ~same))


def _changes(values: Any) -> Any:
    """Whether a value, of which there is at least one, differs from the one before it."""
    return np.concatenate(([True], values[1:] != values[:-1]))
