"""Records by form: rows without a schema as Arrow tables of explicit types.

The form of a record is the kind of each cell in the columns that a step reads. Records of one form
make one table. Types are never inferred from several records, so the result for a record does not
depend on the other records of its epoch. Columnar rows have one form, with their declared types.

Results are put back into the order of the records. They are columns if every column has one simple
kind and no nulls, so that columns and packed values mean the same to the next step. Otherwise they
are values, one for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from headrace.errors import InvalidRecord
from headrace.model.values.arrow import one_array, python_list, zipped
from headrace.model.values.rows import Rows
from headrace.model.values.shown import shown
from headrace.operators.columns.groups import Ints, group

if TYPE_CHECKING:
    from headrace.model.context import TableContext

T = TypeVar("T")
Cells: TypeAlias = Any
"""A column: an Arrow array, or a list of Python values."""

COUNTED = "no columns"
"""The name of the only column in a table of records without columns."""
VALUE = "value"
"""The column of a value that is not a dict."""
TIMES = ("timestamp", "record_timestamp")
"""The columns of the records' times, if the values have no such columns."""

_NO_TYPE = (pa.ArrowException, TypeError, ValueError, OverflowError)


class Absent:
    """Stands for a cell of a missing column, if missing is distinguished from null."""


_ABSENT = Absent()

_SIMPLE: dict[type, pa.DataType] = {
    type(None): pa.null(), bool: pa.bool_(), float: pa.float64(), str: pa.string(),
    bytes: pa.binary(),
}  # fmt: skip


def type_of(cell: Any, wide: pa.DataType | None = None) -> pa.DataType:
    """The Arrow type of one cell alone. `wide` is the type for integers of more than 64 bits."""
    kind = type(cell)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind is int:
        if -(2**63) <= cell < 2**63:
            return pa.int64()
        if wide is not None and abs(cell) < 10**38:
            return wide
        raise InvalidRecord(f"an integer of {cell.bit_length()} bits is too wide for it")
    try:
        found = pa.infer_type([cell])
        pa.array([cell], found)
    except _NO_TYPE as error:
        raise InvalidRecord(f"{shown(cell, 80)} fits no Arrow type: {error}") from None
    return found


class Kinds:
    """The kinds of a column's cells: `types[codes[i]]`, or all `types[0]`. None is absent."""

    __slots__ = ("bad", "cells", "codes", "types")

    def __init__(self, cells: list[Any], wide: pa.DataType | None = None) -> None:
        self.cells = cells
        self.codes: Ints | None = None
        self.types: list[pa.DataType | None] = [pa.null()]
        self.bad: dict[int, InvalidRecord] = {}
        """Cells that have no type."""
        found = set(map(type, cells))
        only = found.pop() if len(found) == 1 else None
        if only in _SIMPLE:
            self.types = [_SIMPLE[only]]
        elif only is int and min(cells) >= -(2**63) and max(cells) < 2**63:
            self.types = [pa.int64()]
        elif cells:
            self._look(wide)

    def _look(self, wide: pa.DataType | None) -> None:
        index: dict[Any, int] = {}
        codes = np.zeros(len(self.cells), np.int64)
        for i, cell in enumerate(self.cells):
            kind: Any = type(cell)
            if kind is Absent:
                kind = None
            elif kind not in _SIMPLE:
                try:
                    kind = type_of(cell, wide)
                except InvalidRecord as error:
                    self.bad[i] = error
                    continue
            codes[i] = index.setdefault(kind, len(index))
        self.types = [_SIMPLE.get(kind, kind) for kind in index] or [pa.null()]
        self.codes = codes if len(index) > 1 else None

    def array(self, rows: Ints) -> pa.Array | None:
        """The cells of rows of one form; None if they are absent."""
        kind = self.types[0 if self.codes is None else int(self.codes[rows[0]])]
        if kind is None:
            return None
        every = len(rows) == len(self.cells)
        return pa.array(self.cells if every else picked(self.cells, rows), kind)

    def whole(self) -> pa.Array:
        """All cells as one array. Only valid if `is_whole`."""
        return pa.array(self.cells, self.types[0])

    @property
    def is_whole(self) -> bool:
        """Whether one column can hold all cells unchanged: one simple kind, and no nulls."""
        return self.codes is None and not self.bad and self.types[0] in _COLUMNS


_COLUMNS = (pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.binary())


class InputRecords:
    """The input of a step, which gives the columns that the step asks for."""

    def __init__(
        self, rows: Rows, *, wide: pa.DataType | None = None, any_case: bool = False
    ) -> None:
        """`wide`: the type of integers of more than 64 bits. `any_case`: names of columns are
        case-insensitive, as in SQL."""
        self.rows = rows
        self.columns = rows.columns
        """The value columns; None if rows are packed."""
        self._wide = wide
        self._any_case = any_case

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def given(self) -> list[Any]:
        """The values."""
        return self.rows.values()

    @cached_property
    def values(self) -> list[dict[str, Any]]:
        """The values as mappings of columns. A value that is not a dict is the column `value`."""
        given = self.given
        if set(map(type, given)) <= {dict}:
            return given
        return [value if type(value) is dict else {VALUE: value} for value in given]

    def cells(self, name: str, absent: Any = None) -> list[Any]:
        """The cells of a column of packed rows."""
        found = [value.get(name, _ABSENT) for value in self.values]
        times = self.rows.timestamps
        for i, cell in enumerate(found) if _ABSENT in found else ():
            if cell is _ABSENT:
                have = same_column(name, self.values[i]) if self._any_case else None
                if have is not None:
                    found[i] = self.values[i][have]
                else:
                    found[i] = int(times[i]) if name in TIMES else absent
        return found

    def kinds(self, name: str) -> Kinds:
        """The cells of a column of packed rows, with their kinds."""
        return Kinds(self.cells(name), self._wide)

    def column(self, name: str) -> pa.Array:
        """A column of columnar rows; nulls if there is no column of that name."""
        columns: Any = self.columns
        have = self._have(name)
        if have is not None:
            return columns.column(have)
        return pa.array(self.rows.timestamps) if name in TIMES else pa.nulls(len(self))

    def _have(self, name: str) -> str | None:
        names: list[str] = self.columns.schema.names  # type: ignore[union-attr]
        if name in names:
            return name
        return same_column(name, names) if self._any_case else None

    def forms(self, names: Sequence[str], told: Sequence[str] = ()) -> Forms:
        """The records by the kinds of these columns. In `told` columns absent differs from null."""
        kinds = {name: self.kinds(name) for name in names}
        kinds |= {name: Kinds(self.cells(name, _ABSENT), self._wide) for name in told}
        return Forms(kinds)

    def table(self, names: Sequence[str], rows: Ints) -> pa.Table:
        """These columns of columnar rows, as far as they exist."""
        found = {n: self.column(n) for n in names if n in TIMES or self._have(n) is not None}
        made = pa.table(found) if found else counted(len(self))
        return made if len(rows) == len(self) else made.take(pa.array(rows))

    def tables(
        self,
        names: Sequence[str],
        rows: Ints,
        bad: dict[int, Exception],
        told: Sequence[str] = (),
    ) -> Iterator[tuple[Ints, pa.Table]]:
        """A table for each form among these rows. Rows that have no form go into `bad`."""
        if self.columns is not None:
            if len(rows):
                yield rows, self.table((*names, *told), rows)
            return
        forms = self.forms(names, told)
        if forms.bad:
            bad |= {i: forms.bad[i] for i in rows.tolist() if i in forms.bad}
        for alike in forms.groups(rows):
            yield alike, forms.table(alike)


class Forms:
    """Packed records by form."""

    def __init__(self, kinds: Mapping[str, Kinds]) -> None:
        self._kinds = kinds
        self.bad: dict[int, Exception] = {}
        for name, column in kinds.items():
            for i, error in column.bad.items():
                self.bad.setdefault(i, InvalidRecord(f"column {name!r}: {error}"))
        several = [column.codes for column in kinds.values() if column.codes is not None]
        self.codes: Ints | None = group(several).of if several else None

    def groups(self, rows: Ints) -> list[Ints]:
        """These rows grouped by form; each group keeps its order."""
        if self.bad:
            rows = rows[~np.isin(rows, list(self.bad))]
        if self.codes is None or not len(rows):
            return [rows] if len(rows) else []
        order = rows[np.argsort(self.codes[rows], kind="stable")]
        return list(np.split(order, np.flatnonzero(np.diff(self.codes[order])) + 1))

    def table(self, rows: Ints) -> pa.Table:
        """The table of rows of one form."""
        arrays = {name: column.array(rows) for name, column in self._kinds.items()}
        found = {name: array for name, array in arrays.items() if array is not None}
        return pa.table(found) if found else counted(len(rows))


def same_column(name: str, columns: Iterable[str]) -> str | None:
    """The column of that name, compared without case."""
    lower = name.lower()
    return next((c for c in columns if type(c) is str and c.lower() == lower), None)


def counted(rows: int) -> pa.Table:
    """A table with this many rows and a column that is never read."""
    return pa.table({COUNTED: pa.nulls(rows)})


def picked(cells: list[Any], rows: Ints) -> list[Any]:
    """The cells at these positions."""
    return [cells[i] for i in rows.tolist()]


def judged(
    table: pa.Table,
    rows: Ints,
    work: Callable[[pa.Table], T],
    catch: type[Exception] | tuple[type[Exception], ...],
    bad: dict[int, Exception],
    *,
    probe: bool = True,
) -> list[tuple[Ints, T]]:
    """The result of `work` for a table of these rows. Rows for which it fails go into `bad`.

    Each row is judged alone: if `work` fails for all rows, it is tried with each half. If it fails
    even for a table without rows (`probe`), it does not accept their kinds, so no row can succeed.
    """
    try:
        return [(rows, work(table))]
    except catch as error:
        own = error
    if probe:  # also for one row: its error must be the same alone and among other rows
        try:
            work(table.slice(0, 0))
        except catch as error:
            bad.update((i, error) for i in rows.tolist())
            return []
    if len(rows) == 1:
        bad[int(rows[0])] = own
        return []
    found, half = [], len(rows) // 2
    for at, end in ((0, half), (half, len(rows))):
        # Not a slice: DuckDB refuses structs with an offset into their buffer.
        part = table.take(pa.array(np.arange(at, end)))
        found += judged(part, rows[at:end], work, catch, bad, probe=False)
    return found


def set_aside(ctx: TableContext, records: InputRecords, bad: Mapping[int, Exception]) -> None:
    """Reports the records that failed to the error policy, in the order of the records."""
    for i in sorted(bad):
        ctx.set_aside(bad[i], i, records.given[i], int(records.rows.timestamps[i]))


def canonical(array: pa.Array) -> Cells:
    """Computed cells as a column if they are of one simple kind without nulls, else a list."""
    array = one_array(array)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return canonical(array.dictionary_decode())
    if not array.null_count:
        if pa.types.is_integer(kind) and kind != pa.uint64():
            return array.cast(pa.int64())
        if pa.types.is_floating(kind):
            return array.cast(pa.float64())
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return array.cast(pa.string())
        if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return array.cast(pa.binary())
        if kind in _COLUMNS:
            return array
    cells = python_list(array)
    if pa.types.is_decimal(kind) and kind.precision == 38 and kind.scale == 0:
        # DuckDB returns 128-bit integers in this type.
        return [int(cell) if isinstance(cell, Decimal) else cell for cell in cells]
    return cells


def united(parts: Sequence[tuple[Ints, Cells]]) -> Cells:
    """The cells of several groups of rows, in the order of the rows."""
    if len(parts) == 1:
        return parts[0][1]
    order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
    arrays = [cells for _, cells in parts if isinstance(cells, pa.Array)]
    if len(arrays) == len(parts) and len({array.type for array in arrays}) == 1:
        return pa.concat_arrays(arrays).take(pa.array(order))
    cells: list[Any] = []
    for _, part in parts:
        cells += part if isinstance(part, list) else python_list(part)
    return picked(cells, order)


def produce(ctx: TableContext, columns: Mapping[str, Cells | Kinds], times: Ints, at: Ints) -> None:
    """Sends rows, as columns if possible, else as values. `at` are the records they come from."""
    if not len(at):
        return
    whole = all(c.is_whole if isinstance(c, Kinds) else isinstance(c, pa.Array)
                for c in columns.values())  # fmt: skip
    # Names in dicts may be other than text; names of columns may not.
    if whole and columns and all(type(name) is str for name in columns):
        arrays = {n: c.whole() if isinstance(c, Kinds) else c for n, c in columns.items()}
        ctx.produce_table(pa.table(arrays), timestamp=times, causes=at)
        return
    lists = [listed(cells) for cells in columns.values()]
    ctx.produce_values(list(zipped(list(columns), lists)), timestamp=times, causes=at)


def listed(cells: Cells | Kinds) -> list[Any]:
    """Cells as a list of Python values."""
    if isinstance(cells, Kinds):
        return cells.cells
    return cells if isinstance(cells, list) else python_list(cells)
