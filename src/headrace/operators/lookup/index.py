"""Finds rows of a lookup table by some of its columns: for whole columns, or cell by cell.

Numbers are equal by value. Text, bytes, truth values and times are compared only with their own
kind. A cell of another kind is an error, not a cell without a match: probably a column was not
parsed. Null matches nothing.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPipeline, InvalidRecord
from headrace.model.values.arrow import one_array, python_list
from headrace.model.values.codec import decode_value
from headrace.model.values.shown import shown
from headrace.operators.columns.groups import Ints

_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "a truth value"), (int, "a number"), (float, "a number"), (Decimal, "a number"),
    (str, "text"), (bytes, "bytes"),
)  # fmt: skip


def kind_of(given: pa.DataType) -> str | None:
    """The kind of a column's cells, as a word; None if the column cannot be used in a look-up."""
    types = pa.types
    if types.is_boolean(given):
        return "a truth value"
    if types.is_integer(given) or types.is_floating(given) or types.is_decimal(given):
        return "a number"
    if types.is_string(given) or types.is_large_string(given):
        return "text"
    if types.is_binary(given) or types.is_large_binary(given):
        return "bytes"
    if types.is_null(given):
        return "nothing"
    return "a time" if types.is_temporal(given) else None


def _kind_of_cell(cell: Any) -> str:
    for kind, words in _KINDS:
        if isinstance(cell, kind):
            return words
    return "a time" if hasattr(cell, "isoformat") else type(cell).__name__


class LookupIndex:
    """Finds the rows of a table by some of its columns."""

    def __init__(self, table: pa.Table, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._table = table
        self._kinds = [kind_of(table.column(name).type) for name in columns]
        for name, kind in zip(columns, self._kinds, strict=True):
            if kind is None:
                raise InvalidPipeline(
                    f"a lookup table cannot be looked up by {name!r}, a column of "
                    f"{table.column(name).type}"
                )
        found = [lookup_form(one_array(table.column(name))) for name in columns]
        self._values = [pc.unique(column).drop_null() for column in found]
        if math.prod(len(values) for values in self._values) >= 2**62:
            raise InvalidPipeline(
                f"a lookup table cannot be looked up by {', '.join(columns)} together: they have "
                "too many different values; make one column of them"
            )
        codes = self._codes([lookup_form(table.column(name)) for name in columns])
        rows = np.flatnonzero(codes >= 0)
        order = rows[np.argsort(codes[rows], kind="stable")]
        self._rows = order
        self._keys, self._starts, self._counts = np.unique(
            codes[order], return_index=True, return_counts=True
        )
        self._by_cells: dict[tuple[Any, ...], list[int]] | None = None
        self._cells: dict[str, list[Any]] = {}

    # Columns --------------------------------------------------------------

    def find(self, columns: list[pa.Array]) -> tuple[Ints, Ints] | None:
        """(index of the row that looks up, row of the table) of each match, in order.

        None if the columns do not have the same types as the table's.
        """
        columns = [lookup_form(column) for column in columns]
        if any(c.type != v.type for c, v in zip(columns, self._values, strict=True)):
            return None
        codes = self._codes(columns)
        at = np.searchsorted(self._keys, codes)
        at[at == len(self._keys)] = 0
        hit = (codes >= 0) & (self._keys[at] == codes) if len(self._keys) else codes < -1
        asking = np.flatnonzero(hit)
        starts, counts = self._starts[at[asking]], self._counts[at[asking]]
        before = np.cumsum(counts) - counts
        offsets = np.arange(int(counts.sum())) - np.repeat(before - starts, counts)
        return np.repeat(asking, counts), self._rows[offsets]

    def _codes(self, columns: list[Any]) -> Ints:
        """One number per row for all its cells; -1 if a cell is null or unknown."""
        codes = np.zeros(len(columns[0]) if columns else 0, np.int64)
        for column, values in zip(columns, self._values, strict=True):
            found = pc.index_in(column, value_set=values, skip_nulls=True)
            numbers = pc.fill_null(found, -1)
            numbers = one_array(numbers).to_numpy(zero_copy_only=False).astype(np.int64)
            known = (codes >= 0) & (numbers >= 0)
            codes = np.where(known, codes * max(1, len(values)) + numbers, -1)
        return codes

    # Cells ----------------------------------------------------------------

    def rows_of(self, cells: list[tuple[str, Any]], where: str) -> list[int]:
        """The rows that one record matches, by (its column, cell), in order."""
        if self._by_cells is None:
            self._by_cells = self._index_cells()
        wanted = []
        for (name, cell), kind, theirs in zip(cells, self._kinds, self.columns, strict=True):
            if cell is not None and kind not in (_kind_of_cell(cell), "nothing"):
                raise InvalidRecord(
                    f"{where}: column {name!r} is {_kind_of_cell(cell)} ({shown(cell, 60)}), the "
                    f"lookup table's column {theirs!r} is {kind}: make them alike before"
                )
            # If the lookup table has no values in the column, no cell matches.
            wanted.append(None if kind == "nothing" else _canonical(cell))
        return [] if None in wanted else self._by_cells.get(tuple(wanted), [])

    def cells(self, name: str) -> list[Any]:
        """A column of the table as Python objects, created once."""
        if name not in self._cells:
            cells = python_list(one_array(self._table.column(name)))
            if is_packed(self._table.schema.field(name)):
                cells = [None if cell is None else decode_value(cell) for cell in cells]
            self._cells[name] = cells
        return self._cells[name]

    def _index_cells(self) -> dict[tuple[Any, ...], list[int]]:
        lists = [self.cells(name) for name in self.columns]
        found: dict[tuple[Any, ...], list[int]] = {}
        for row, cells in enumerate(zip(*lists, strict=True)):
            if None not in cells:
                found.setdefault(tuple(map(_canonical, cells)), []).append(row)
        return found


PACKED = {b"headrace": b"packed"}
"""Metadata of a field whose cells are MessagePack values, because they fit no Arrow type."""


def is_packed(field: pa.Field) -> bool:
    """Whether the cells of a column are packed values."""
    return (field.metadata or {}).items() >= PACKED.items()


def _canonical(cell: Any) -> Any:
    """A form in which cells that match in a look-up are equal and have equal hashes."""
    return "not a number" if isinstance(cell, float | Decimal) and cell != cell else cell


def lookup_form(column: Any) -> Any:
    """A column without dictionary, and with the usual types for text, bytes and numbers."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_float64(kind) or pa.types.is_float32(kind):
        # -0.0 is 0.0 by value, but not for Arrow's hashes.
        return pc.add(column.cast(pa.float64()), 0.0)
    return column.cast(pa.int64()) if pa.types.is_integer(kind) and kind.bit_width < 64 else column
