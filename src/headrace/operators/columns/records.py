"""The records that an operator gets: their keys and times, and the columns that it reads.

Records are columnar or packed, and mean the same in both forms. Only the columns that an operator
asks for are created, each typed or as cells; a whole record stays packed. A record that is not a
dict has one column, `value`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.model.values.arrow import dicts, one_array, python_list, stored_form
from headrace.model.values.codec import decode_value, packed_exactly
from headrace.model.values.kinds import kind_of, micros_of
from headrace.model.values.rows import Rows
from headrace.model.values.shown import shown
from headrace.operators.columns import exact_sum
from headrace.operators.columns.cells import column_of, of_arrow, typed_array
from headrace.operators.columns.groups import Ints

VALUE = "value"
"""The column of records that are not dicts."""

_DICTS = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
"""The first bytes of a dict in MessagePack."""

Refuse = Callable[[int, Exception], None]
"""Called with the position of a record that cannot be accepted, and the reason."""

Numbers = list[tuple[Any, int, Ints]]
"""(numbers in numpy, their kind as in `Sum`, the positions of their records)."""

FLOAT, DECIMAL = 1, 2
"""Kinds of sums."""

_DIGITS_MAX = 10_000
"""A decimal beyond 10 to this power would need too much memory in a sum."""


class Refused(Exception):
    """Some records cannot be accepted: the reason for each, by position."""

    def __init__(self, errors: dict[int, Exception]) -> None:
        super().__init__(f"{len(errors)} records")
        self.errors = errors


class Records:
    """Rows, each with the position of its key among the keys."""

    __slots__ = ("_columns", "_values", "key", "positions", "rows")

    def __init__(self, rows: Rows, key: Any, positions: Ints | None = None) -> None:
        self.rows = rows
        self.key: Ints = np.asarray(key, np.int64)
        self.positions = np.arange(len(rows)) if positions is None else positions
        """The position of each record among all records that arrived."""
        self._values: list[Any] | None = None
        self._columns: dict[str, pa.Array] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def times(self) -> Ints:
        """The timestamps of the records."""
        return self.rows.timestamps

    def without(self, refused: dict[int, Exception]) -> Records:
        """The records except those at these positions."""
        kept = np.delete(np.arange(len(self)), list(refused))
        return Records(self.rows.take(kept), self.key[kept], self.positions[kept])

    def column(self, name: str) -> pa.Array:
        """A column, typed or as cells; null if a record does not have it."""
        found = self._columns.get(name)
        if found is None:
            if self.rows.packed is not None:
                found = column_of(self.raw(name))
            else:
                column = self.rows.column(name)
                found = pa.nulls(len(self)) if column is None else of_arrow(column)
            self._columns[name] = found
        return found

    def present(self, name: str) -> Any:
        """A mask of the records that have a value in the column."""
        if self.rows.packed is not None:
            cells = self.raw(name)
            return np.fromiter((cell is not None for cell in cells), np.bool_, len(cells))
        column = self.rows.column(name)
        if column is None:
            return np.zeros(len(self), np.bool_)
        return np.asarray(one_array(column).is_valid())

    def raw(self, name: str) -> list[Any]:
        """A column as unchanged Python values."""
        if self.rows.packed is None:
            column = self.rows.column(name)
            return [None] * len(self) if column is None else python_list(one_array(column))
        values = self._decoded()
        if set(map(type, values)) <= {dict}:
            return [value.get(name) for value in values]
        return [_cell(value, name) for value in values]

    def dicts(self, chosen: Ints) -> list[dict[str, Any]]:
        """Some of the records as dicts."""
        if self.rows.packed is None:
            columns: Any = self.rows.take(chosen).columns
            return dicts(columns)
        values = self._decoded()
        return [as_dict(values[i]) for i in chosen.tolist()]

    def _decoded(self) -> list[Any]:
        if self._values is None:
            cells: Any = self.rows.packed
            self._values = [decode_value(cell) for cell in cells.to_pylist()]
        return self._values

    def packed(self, chosen: Ints) -> list[bytes]:
        """Some of the records as encoded dicts."""
        if self.rows.packed is None:
            return [packed_exactly(value) for value in self.dicts(chosen)]
        cells = self.rows.packed.take(pa.array(chosen)).to_pylist()
        return [
            cell if cell[0] in _DICTS else packed_exactly(as_dict(decode_value(cell)))
            for cell in cells
        ]

    # Numbers ------------------------------------------------------------------

    def numbers(self, name: str, what: str) -> Numbers:
        """The numbers of a column, by kind. Refuses records with another value in it."""
        if self.rows.packed is not None:
            return self._sorted_out(self.raw(name), name, what)
        column = self.rows.column(name)
        if column is None:
            return []
        array = one_array(column)
        kind = array.type
        if pa.types.is_dictionary(kind):
            array, kind = array.dictionary_decode(), kind.value_type
        if not (pa.types.is_decimal(kind) or pa.types.is_boolean(kind)):
            array = stored_form(array)
        return self._of_array(array, name, what)

    def _of_array(self, array: pa.Array, name: str, what: str) -> Numbers:
        kind, rows = array.type, np.arange(len(array))
        if pa.types.is_null(kind):
            return []
        if array.null_count:
            rows = np.flatnonzero(array.is_valid().to_numpy(False))
            array = array.take(pa.array(rows))
        if not len(rows):
            return []
        if pa.types.is_decimal(kind):
            return [(exact_sum.unscaled(array), DECIMAL + kind.scale, rows)]
        if pa.types.is_boolean(kind):
            return [(array.cast(pa.int64()).to_numpy(), 0, rows)]
        if pa.types.is_floating(kind):
            return [(array.to_numpy(), FLOAT, rows)]
        if pa.types.is_integer(kind):
            return [(array.to_numpy(), 0, rows)]
        cells = zip(rows.tolist(), python_list(array), strict=True)
        raise Refused({row: _no_number(cell, name, what) for row, cell in cells})

    def _sorted_out(self, cells: list[Any], name: str, what: str) -> Numbers:
        kinds = set(map(type, cells)) - {type(None)}
        if kinds <= {bool} or kinds <= {int} or kinds <= {float}:
            array = typed_array(cells, kinds)
            if array is not None:
                return self._of_array(array, name, what)
        bad: dict[int, Exception] = {}
        found: dict[int | str, tuple[list[Any], list[int]]] = {}
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            try:
                number, kind = _taken(cell, name, what)
            except (TypeError, ValueError, OverflowError) as error:
                bad[row] = error
                continue
            numbers, rows = found.setdefault(kind, ([], []))
            numbers.append(number)
            rows.append(row)
        if bad:
            raise Refused(bad)
        pieces: Numbers = []
        for kind, (numbers, rows) in found.items():
            array = np.array(numbers, np.int64 if kind == _SMALL else object)
            if kind == FLOAT:
                array = array.astype(np.float64)
            pieces.append((array, 0 if isinstance(kind, str) else kind, np.array(rows, np.int64)))
        return pieces


_SMALL, _BIG = "64 bits", "more"
_TIMES = (datetime, date, time, timedelta)


def _taken(cell: Any, name: str, what: str) -> tuple[Any, int | str]:
    """A number, and the group of numbers with which numpy can add it."""
    kind = type(cell)
    if kind is float:
        return cell, FLOAT
    if kind in _TIMES:
        cell = micros_of(cell)
    if kind is Decimal:
        return _unscaled(cell, name)
    if not isinstance(cell, int):
        raise _no_number(cell, name, what)
    return int(cell), _SMALL if -(2**63) <= cell < 2**63 else _BIG


def _unscaled(cell: Decimal, name: str) -> tuple[Any, int]:
    if not cell.is_finite():
        return float(cell), FLOAT
    if abs(int(cell.as_tuple().exponent)) > _DIGITS_MAX:
        raise ValueError(f"column {name!r} holds a decimal that is too large or small: {cell}")
    number, scale = exact_sum.whole(cell)
    return number, DECIMAL + scale


def _no_number(cell: Any, name: str, what: str) -> TypeError:
    return TypeError(
        f"column {name!r} holds {kind_of(cell)} ({shown(cell, 80)}), and {what} takes numbers: "
        "convert it with map or select before, or leave such records out with filter"
    )


def as_floats(numbers: Numbers) -> tuple[Any, Ints]:
    """Numbers of all kinds as floats; a number that is too large is infinite."""
    values, rows = [np.zeros(0)], [np.zeros(0, np.int64)]
    for given, kind, mine in numbers:
        if given.dtype != object and kind < DECIMAL:
            floats = given.astype(np.float64)
        else:
            unit = 10 ** max(0, kind - DECIMAL)
            floats = np.array(
                [exact_sum.ratio((int(v), 0), unit) for v in given.tolist()], np.float64
            )
        values.append(floats)
        rows.append(mine)
    return np.concatenate(values), np.concatenate(rows)


def as_dict(value: Any) -> dict[str, Any]:
    """A record's value by its columns."""
    return value if isinstance(value, dict) else {VALUE: value}


def _cell(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name)
    return value if name == VALUE else None
