"""The columns of records in the order of their keys, as Python objects.

They are taken out of Arrow a stretch of keys at a time, so that they are still in the
processor's cache when the hooks of their key run, and never all in memory.
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
"""About how many cells of a column are taken at once, in whole keys."""

Cells: TypeAlias = "list[Any] | pa.Array"
"""A column of one key's records: in Python objects, but for those that a hook could change."""


class SortedCells:
    """Times, and columns of values, in an order in which every key's records lie together."""

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
            # Often one of them is the time: its numbers need not be made twice.
            if _is_time(column, timestamps):
                self._which.append(0)
            else:
                self._which.append(len(self._columns))
                self._columns.append(column.take(chosen))
        self._ends = ends
        self._start = self._end = 0
        self._taken: list[Cells] = []

    def between(self, start: int, end: int) -> list[Any]:
        """The cells of one key's records: the times, and those of each column."""
        if not self._start <= start <= end <= self._end:
            self._take(start, end)
        first, last = start - self._start, end - self._start
        found = [cells[first:last] for cells in self._taken]
        return [found[which] for which in self._which]

    def _take(self, start: int, end: int) -> None:
        """Takes the next keys; or all, once, where keys are not read in their order."""
        if start == self._end:
            whole = bisect_right(self._ends, start + CELLS_AHEAD)
            stop = max(end, self._ends[whole - 1] if whole else 0)
        else:
            start, stop = 0, len(self._columns[0])
        self._start, self._end = start, stop
        self._taken = []  # frees the last ones first, whose memory the next ones take
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
    """Whether no hook can change the objects that such cells become."""
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
