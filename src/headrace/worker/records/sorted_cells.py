"""The columns of records, sorted by key, as Python objects.

Cells are converted from Arrow for a few keys at a time. So they are still in the processor's cache
when the hooks of their key run, and they are never all in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.model.values.arrow import python_list
from headrace.model.values.rows import Timestamps

CELLS_AHEAD = 1 << 14
"""About how many cells of a column are converted at once. Keys are not split."""

Cells: TypeAlias = "list[Any] | pa.Array"
"""A column of one key's records: Python objects, or an Arrow array if they would be mutable."""


class SortedCells:
    """Times and columns of values, in an order in which the records of each key are adjacent."""

    def __init__(
        self,
        timestamps: Timestamps,
        columns: Iterable[pa.Array],
        order: np.ndarray[Any, Any],
        ends: list[int],
    ) -> None:
        """`ends` says where each key's records end."""
        chosen = pa.array(order)
        self._columns = [pa.array(timestamps[order])]
        self._which = [0]
        for column in columns:
            # One of the columns is often the time: do not convert its numbers twice.
            if _is_time(column, timestamps):
                self._which.append(0)
            else:
                self._which.append(len(self._columns))
                self._columns.append(column.take(chosen))
        self._ends = ends
        self._start = self._end = 0
        self._taken: list[Cells] = []

    def between(self, start: int, end: int) -> list[Any]:
        """The cells of one key's records: the times, and the cells of each column."""
        if not self._start <= start <= end <= self._end:
            self._take(start, end)
        first, last = start - self._start, end - self._start
        found = [cells[first:last] for cells in self._taken]
        return [found[which] for which in self._which]

    def _take(self, start: int, end: int) -> None:
        """Converts the next keys; or all keys at once, if keys are not read in their order."""
        if start == self._end:
            whole = bisect_right(self._ends, start + CELLS_AHEAD)
            stop = max(end, self._ends[whole - 1] if whole else 0)
        else:
            start, stop = 0, len(self._columns[0])
        self._start, self._end = start, stop
        self._taken = []  # free the previous cells first, so that the next ones reuse their memory
        for column in self._columns:
            cells = column.slice(start, stop - start)
            self._taken.append(python_list(cells) if _is_fixed(cells.type) else cells)


def _is_time(column: pa.Array, timestamps: Timestamps) -> bool:
    return (
        column.type == pa.int64()
        and column.null_count == 0
        and np.array_equal(column.to_numpy(), timestamps)
    )


def _is_fixed(kind: pa.DataType) -> bool:
    """Whether cells of this type become immutable objects."""
    if pa.types.is_dictionary(kind):
        return _is_fixed(kind.value_type)
    return any(test(kind) for test in _FIXED)


_FIXED = (
    pa.types.is_primitive,
    pa.types.is_null,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_decimal,
)
