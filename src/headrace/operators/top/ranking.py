"""How `top` compares rows: by one column or by several, each the largest or the smallest first.

Inside a task, rows are compared by numbers that have the order of the values. Between tasks and
epochs they are compared by scores: bytes that sort like the values, of any kind.

A cell of the order over kinds is a prefix of another one only where a text goes on behind a zero,
and then the next byte is 255. So a byte between 0 and 255 behind every cell keeps the order, also
where a cell is inverted because the smallest comes first; and cells can be put one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.values.kinds import ordered
from headrace.operators.columns.cells import as_cells
from headrace.operators.columns.groups import Groups, Ints, float_order, sorted_rows
from headrace.operators.columns.records import Records

SMALLEST_FIRST = "-"
_INVERTED = bytes(255 - i for i in range(256))
_NULL = ordered(None)
_BEHIND = b"\x80"


def name_in(given: str) -> str:
    """The name of a column that may have a minus before it."""
    return given.removeprefix(SMALLEST_FIRST)


class RankedBy:
    """Some rows of a task, by the columns that decide their ranks. A null is the smallest value."""

    def __init__(self, order: tuple[str, ...], records: Records, rows: Ints) -> None:
        self._inverted = [given.startswith(SMALLEST_FIRST) for given in order]
        taken = pa.array(rows)
        self._columns = [records.column(name_in(given)).take(taken) for given in order]
        self._codes = [
            ~codes if inverted else codes
            for codes, inverted in zip(map(_codes, self._columns), self._inverted, strict=True)
        ]

    def largest_first(self, groups: Groups) -> Ints:
        """The positions of the rows, by group and by rank; the groups in falling order."""
        return sorted_rows(groups, *self._codes)[::-1]

    def equal(self, rows: Ints, others: Ints) -> Any:
        """A mask of the rows that have the same values as the others, one by one."""
        same = np.ones(len(rows), np.bool_)
        for codes in self._codes:
            same &= codes[rows] == codes[others]
        return same

    def scores(self, rows: Ints) -> list[bytes]:
        """The bytes by which these rows are compared with rows of other tasks."""
        taken, lists = pa.array(rows), []
        for column, inverted in zip(self._columns, self._inverted, strict=True):
            found = as_cells(column.take(taken)).to_pylist()
            cells = [_NULL if cell is None else cell for cell in found]
            lists.append([cell.translate(_INVERTED) for cell in cells] if inverted else cells)
        if not any(self._inverted) and len(lists) == 1:
            return lists[0]  # as they were always stored
        return [_BEHIND.join(parts) + _BEHIND for parts in zip(*lists, strict=True)]


def _codes(values: pa.Array) -> Ints:
    """Numbers in the order of the values, equal for equal values."""
    if pa.types.is_int64(values.type) and not values.null_count:
        return np.asarray(values.to_numpy(), np.int64)
    if pa.types.is_float64(values.type) and not values.null_count:
        return float_order(values.to_numpy())
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.int64)
    if pa.types.is_float64(values.type):
        values = as_cells(values)  # Arrow takes -0.0 and 0.0 for one value
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
    codes = ranks.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(values.is_valid().to_numpy(False), codes, 0)
