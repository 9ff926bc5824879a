"""Groups of rows in numpy: group numbers, sorted rows, lists per group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Ints = np.ndarray[Any, np.dtype[np.int64]]


class Groups:
    """`of[i]` is the group of row i; groups are numbered from 0."""

    __slots__ = ("count", "of")

    def __init__(self, of: Ints, count: int) -> None:
        self.of, self.count = of, count

    def one_row(self) -> Ints:
        """For each group, the position of its last row."""
        found = np.zeros(self.count, np.int64)
        found[self.of] = np.arange(len(self.of))
        return found

    def take(self, rows: Ints) -> Groups:
        """The same groups for some of the rows."""
        return Groups(self.of[rows], self.count)

    def sums(self, values: Any) -> Ints:
        """Sums of small integers per group."""
        if len(values) and int(values.max()) * len(values) < 2**53 and int(values.min()) >= 0:
            return np.bincount(self.of, weights=values, minlength=self.count).astype(np.int64)
        found = np.zeros(self.count, np.int64)
        np.add.at(found, self.of, values)
        return found

    def newest(self, times: Ints) -> Ints:
        """The largest number of each group."""
        found = np.full(self.count, np.iinfo(np.int64).min, np.int64)
        np.maximum.at(found, self.of, times)
        return found


def group(columns: Sequence[Ints]) -> Groups:
    """Groups of rows that are equal in all columns, numbered in the order of their values."""
    size = len(columns[0])
    if not size:
        return Groups(np.zeros(0, np.int64), 0)
    code, reach = np.zeros(size, np.int64), 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        span = high - low + 1
        if reach * span >= 2**62:
            code = np.unique(code, return_inverse=True)[1].astype(np.int64)
            reach = int(code.max()) + 1
        if reach * span >= 2**62:
            column = np.unique(column, return_inverse=True)[1].astype(np.int64)
            low, span = 0, int(column.max()) + 1
        code = code * span + (column - low)
        reach *= span
    if reach <= 4 * size + 1024:
        present = np.zeros(reach, np.bool_)
        present[code] = True
        numbers = np.cumsum(present) - 1
        return Groups(numbers[code], int(numbers[-1]) + 1)
    values, of = np.unique(code, return_inverse=True)
    return Groups(of.astype(np.int64), len(values))


def sorted_rows(groups: Groups, *columns: Any) -> Ints:
    """Positions of the rows sorted by group, then by these columns (Arrow or numpy, not nested)."""
    columns = tuple(_in_numpy(column) for column in columns)
    if all(isinstance(column, np.ndarray) for column in columns):
        return np.lexsort((*reversed(columns), groups.of))
    table = pa.table({"g": groups.of, **{f"c{i}": c for i, c in enumerate(columns)}})
    keys = [(name, "ascending") for name in table.schema.names]
    return pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.int64)


def _in_numpy(column: Any) -> Any:
    """Numbers in numpy. Floats get the order over kinds: for Arrow 0.0 and -0.0 are equal."""
    if not isinstance(column, pa.Array) or column.null_count:
        return column
    if pa.types.is_float64(column.type):
        return float_order(column.to_numpy())
    return column.to_numpy() if pa.types.is_int64(column.type) else column


def float_order(values: Any) -> Ints:
    """Floats as integers in the same order: -0.0 before 0.0, and one NaN last."""
    return _flipped(np.where(np.isnan(values), np.nan, values).view(np.int64))


def from_float_order(numbers: Ints) -> Any:
    """The floats from the integers of `float_order`."""
    return _flipped(numbers).view(np.float64)


def _flipped(bits: Ints) -> Ints:
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)


def runs(sorted_of: Ints) -> Ints:
    """The position at which each run of equal numbers begins."""
    if not len(sorted_of):
        return np.zeros(0, np.int64)
    return np.concatenate(([0], np.flatnonzero(np.diff(sorted_of)) + 1))


def lists(groups_of: Ints, count: int, values: pa.Array) -> pa.Array:
    """A list per group of values that are sorted by group."""
    lengths = np.bincount(groups_of, minlength=count)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def flattened(parts: pa.Array, groups: Groups) -> tuple[pa.Array, Groups]:
    """The elements of a column of lists, with the groups of their rows."""
    lengths = parts.value_lengths().to_numpy(False).astype(np.int64)
    return parts.flatten(), Groups(np.repeat(groups.of, lengths), groups.count)


def spread(count: int, at: Ints, values: pa.Array) -> pa.Array:
    """A column of `count` rows with `values` at these positions and null elsewhere."""
    if len(at) == count and count and bool((at == np.arange(count)).all()):
        return values
    where = np.full(count, -1, np.int64)
    where[at] = np.arange(len(at))
    return values.take(pa.array(where, mask=where < 0))
