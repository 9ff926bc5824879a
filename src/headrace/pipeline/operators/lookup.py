"""Look-up in a side input: a keyless step, column by column, in the task that makes its input.

Rows keep their order; several matches follow each other in the order of the side
input. A null never matches, as in SQL.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPipeline, InvalidRecord
from headrace.model.computation import Computation
from headrace.pipeline.columns import check_column
from headrace.pipeline.operators.side_input import SideInput, side_input

if TYPE_CHECKING:
    from headrace.model.context import TableContext
    from headrace.pipeline.builder import PipelineBuilder

On = str | tuple[str, ...] | Mapping[str, str]
_Indices = np.ndarray[Any, np.dtype[np.int64]]

_indexes: dict[tuple[str, tuple[str, ...]], SideIndex] = {}
"""By content and columns: built once per process."""


class SideIndex:
    """Finds the rows of a table by some of its columns."""

    def __init__(self, table: pa.Table, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._values = [table.column(name).combine_chunks() for name in columns]
        self._values = [pc.unique(_plain(column)).drop_null() for column in self._values]
        if math.prod(len(values) for values in self._values) >= 2**62:
            raise InvalidPipeline(
                f"a side input cannot be looked up by {', '.join(columns)} together: they have too "
                "many different values; make one column of them"
            )
        codes = self._codes([_plain(table.column(name)) for name in columns])
        rows = np.flatnonzero(codes >= 0)
        order = rows[np.argsort(codes[rows], kind="stable")]
        self._rows = order
        self._keys, self._starts, self._counts = np.unique(
            codes[order], return_index=True, return_counts=True
        )

    def find(self, columns: list[Any]) -> tuple[_Indices, _Indices]:
        """(index of the row that looks up, row of the table) of each match, in order."""
        codes = self._codes(columns)
        at = np.searchsorted(self._keys, codes)
        at[at == len(self._keys)] = 0
        hit = (codes >= 0) & (self._keys[at] == codes) if len(self._keys) else codes < -1
        asking = np.flatnonzero(hit)
        starts, counts = self._starts[at[asking]], self._counts[at[asking]]
        before = np.cumsum(counts) - counts
        offsets = np.arange(int(counts.sum())) - np.repeat(before - starts, counts)
        return np.repeat(asking, counts), self._rows[offsets]

    def _codes(self, columns: list[Any]) -> _Indices:
        """One number per row for its cells together; -1 where one is null or unknown."""
        codes = np.zeros(len(columns[0]) if columns else 0, np.int64)
        for column, values in zip(columns, self._values, strict=True):
            found = pc.index_in(column, value_set=values)
            numbers = pc.fill_null(found, -1)
            numbers = _flat(numbers).to_numpy(zero_copy_only=False).astype(np.int64)
            known = (codes >= 0) & (numbers >= 0)
            codes = np.where(known, codes * max(1, len(values)) + numbers, -1)
        return codes

    def types(self) -> list[pa.DataType]:
        """The types of the columns that are looked up by."""
        return [values.type for values in self._values]


def _index(side: SideInput, columns: tuple[str, ...]) -> SideIndex:
    place = (side.digest, columns)
    if place not in _indexes:
        _indexes[place] = SideIndex(side.table, columns)
    return _indexes[place]


class Lookup(Computation):
    """Adds the columns of a side input's matching row."""

    def __init__(self, side: SideInput, on: Mapping[str, str], how: str, where: str) -> None:
        self.side = side
        self.content = side.digest  # a fingerprint sees text: another content, another pipeline
        self.on = tuple(on.items())
        self.how = how
        self.where = where
        self.added = tuple(n for n in side.table.column_names if n not in on.values())

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All rows of a task."""
        values = [n for n in table.column_names if n not in own_columns(table)]
        clash = [n for n in self.added if n in values]
        if clash:
            raise clashing(self.where, clash)
        index = _index(self.side, tuple(column for _, column in self.on))
        wanted = zip(self.on, index.types(), strict=True)
        asking, rows = index.find([self._column(table, n, kind) for (n, _), kind in wanted])
        found: Any = pa.array(rows)
        if self.how == "left":
            alone = np.setdiff1d(np.arange(table.num_rows), asking)
            order = np.argsort(np.concatenate([asking, alone]), kind="stable")
            asking = np.concatenate([asking, alone])[order]
            missing = np.concatenate([np.zeros(len(rows), bool), np.ones(len(alone), bool)])[order]
            rows = np.concatenate([rows, np.zeros(len(alone), np.int64)])[order]
            found = pa.array(rows, mask=missing)
        times = record_times(table)[asking]
        made = table.select(values).take(pa.array(asking))
        for name in self.added:
            made = made.append_column(name, self.side.table.column(name).take(found))
        ctx.produce_table(made, timestamp=times, causes=asking)

    def _column(self, table: pa.Table, name: str, kind: pa.DataType) -> Any:
        if name not in table.column_names:
            # Whether one of these records has it depends on the cut: without it there is no match.
            return pa.nulls(table.num_rows, kind)
        column = _plain(table.column(name))
        try:
            return column if column.type == kind else column.cast(kind)
        except pa.ArrowException as error:
            raise InvalidRecord(
                f"{self.where}: column {name!r} is {column.type}, the side input's is {kind}, and "
                f"the one cannot become the other: {error}"
            ) from None


def lookup(
    builder: PipelineBuilder,
    stream: str,
    table: Any,
    *,
    on: On,
    how: str = "left",
    columns: tuple[str, ...] | None = None,
    name: str | None = None,
    **options: Any,
) -> tuple[str, tuple[str, ...] | None]:
    """Looks every record up in a side input; gives the new stream's name and known columns.

    `on`: a column of both, a tuple of such, or a mapping of stream column to table column.
    """
    name = name or f"{stream}.lookup"
    where = f"look-up {name!r}"
    if how not in ("inner", "left"):
        raise InvalidPipeline(f'{where}: how= is "inner" or "left", not {how!r}')
    pairs = {on: on} if isinstance(on, str) else dict(on) if isinstance(on, Mapping) else None
    pairs = {column: column for column in on} if pairs is None else pairs
    if not pairs:
        raise InvalidPipeline(f"{where}: on= names at least one column")
    side = side_input(table, key=tuple(pairs.values()), where=where)
    have = tuple(side.table.column_names)
    for mine, theirs in pairs.items():
        check_column(mine, columns, where=f"{where}, on=")
        check_column(theirs, have, where=f"{where}, on=, the side input")
    added = [n for n in have if n not in pairs.values()]
    clash = [n for n in added if columns is not None and n in columns]
    if clash:
        raise clashing(where, clash)
    name = builder._add(name, Lookup(side, pairs, how, where), {stream: None}, name, **options)
    return name, None if columns is None else (*columns, *added)


def clashing(where: str, names: list[str]) -> InvalidPipeline:
    """The error for a column that the stream and the side input both have."""
    return InvalidPipeline(
        f"{where}: the stream and the side input both have a column {names[0]!r}: rename or drop "
        "it in the side input"
    )


def own_columns(table: pa.Table) -> tuple[str, ...]:
    """Columns that are not of the values but were put beside them."""
    if "record_timestamp" in table.column_names:
        return ("record_timestamp",)
    return ("timestamp",)


def record_times(table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The times of a table's records."""
    return table.column(own_columns(table)[0]).to_numpy()


def _plain(column: Any) -> Any:
    """A column without dictionary, and with the usual types for text and bytes."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column.cast(pa.int64()) if pa.types.is_integer(kind) and kind.bit_width < 64 else column


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
