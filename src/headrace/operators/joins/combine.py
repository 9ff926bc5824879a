"""Combines two rows into one: the columns of both, a selection, or a function of both.

Key columns that both sides have under one name appear once. Any other name on both sides is a
clash. If the columns are known, it is found when the pipeline is built; otherwise it is an error of
each pair that has it.

A row without a partner has nulls for the columns of the other side that are known when the pipeline
is built (from a schema, a `select` step or `select=`). It has no nulls for other columns, because
the columns of the rows so far depend on how the input is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.errors import InvalidPipeline, InvalidRecord
from headrace.model.key_spec import KeyGiven
from headrace.model.values.arrow import dicts
from headrace.model.values.codec import packed, packed_exactly
from headrace.model.values.column_names import as_columns
from headrace.model.values.names import did_you_mean
from headrace.operators.columns.groups import Ints
from headrace.operators.joins.columns import (
    are_own_windows,
    copy_row,
    is_key,
    is_unequal,
    key_columns,
    key_parts,
    missing_columns,
    nulls,
    other_key,
    other_window,
    parse_choice,
)
from headrace.operators.joins.rows import SideRows

if TYPE_CHECKING:
    from headrace.model.context import Input, TableContext

Select = Mapping[str, str] | Callable[[Any, Any], Any]
Columns = Mapping[str, Any]


@dataclass(frozen=True)
class Side:
    """One input of a join: a stream, its key and, if they are known, its columns."""

    stream: str
    key: KeyGiven
    columns: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    """The names of the key's parts, if the key is a function."""
    kinds: Mapping[str, pa.DataType] = field(default_factory=dict)
    """The types of columns, if a schema gives them."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key; none if it is a function."""
        if isinstance(self.key, str):
            return (self.key,)
        return self.key if isinstance(self.key, tuple) else ()


class Pairing:
    """Combines a left and a right row, of which one may be missing, into the joined row."""

    def __init__(
        self,
        left: Side,
        right: Side,
        *,
        select: Select | None,
        where: str,
        shared: tuple[str, ...] = (),
    ) -> None:
        """`shared`: further columns that both sides may have, with equal values."""
        self.where = where
        self._one_column = isinstance(left.key, str) or isinstance(right.key, str)
        self._keys = left.key_columns
        self._added = () if left.key_columns else left.names
        pairs = zip(left.key_columns, right.key_columns, strict=False)
        self._shared = frozenset({a for a, b in pairs if a == b} | set(shared))
        self._left_columns, self._right_columns = left.columns, right.columns
        self._kinds = (left.kinds, right.kinds)
        self._function: Callable[[Any, Any], Any] | None = None
        self._chosen: tuple[tuple[str, str, str], ...] | None = None
        if callable(select):
            self._function = select
        elif select is not None:
            given: Any = select
            if not isinstance(given, Mapping) or not given:
                raise InvalidPipeline(
                    f'{where}: select= is a mapping such as {{"price": "left.price"}} or a '
                    f"function of both rows, not {given!r:.80}"
                )
            for name in shared:
                if name in select and select[name] not in (f"left.{name}", f"right.{name}"):
                    raise InvalidPipeline(
                        f"{where}: joined rows have a column {name!r}, of their window; call "
                        f"{select[name]!r} something else in select="
                    )
            sides = {"left": left.columns, "right": right.columns}
            self._chosen = tuple(parse_choice(n, c, sides, where) for n, c in select.items())
        elif left.columns is not None and right.columns is not None:
            clash = self._clash(left.columns, right.columns)
            if clash is not None:
                raise InvalidPipeline(clash)
        self._checked = left.columns is not None and right.columns is not None

    def unequal(self, ctx: TableContext) -> Any:
        """A mask of the keys that equal no key, not even themselves (see `is_unequal`)."""
        if self._one_column:
            return None
        mask = np.fromiter(map(is_unequal, ctx.keys()), np.bool_)
        return mask if mask.any() else None

    @property
    def calls_users(self) -> bool:
        """Whether a user function creates the rows."""
        return self._function is not None

    def new_rows(
        self, ctx: TableContext, left_stream: str, outer: tuple[bool, bool]
    ) -> list[SideRows]:
        """An epoch's rows of both sides, without rows that cannot match: these are sent at once."""
        new = [SideRows.empty(), SideRows.empty()]
        for given in ctx.inputs():
            new[0 if given.stream == left_stream else 1] = self.side_rows(ctx, given)
        unequal = self.unequal(ctx)
        if unequal is None:
            return new
        alone = [side.take(unequal[side.key]) for side in new]
        for i in (0, 1):
            if outer[i]:
                self.produce_alone(ctx, (alone[0], alone[1]), i)
        return [side.take(~unequal[side.key]) for side in new]

    def side_rows(self, ctx: TableContext, given: Input) -> SideRows:
        """The rows of one input. Records without columns go by the error policy."""
        rows, keys = given.rows, given.key_index
        if rows.columns is not None:
            return SideRows.of(keys, rows, self.row)
        objects, bad = [], []
        for i, value in enumerate(rows.values()):
            try:
                objects.append(self.row(value))
            except InvalidRecord as error:
                bad.append(i)
                ctx.set_aside(error, int(keys[i]), value, int(rows.timestamps[i]), given.stream)
        times = rows.timestamps
        if bad:
            keys, times = np.delete(keys, bad), np.delete(times, bad)
        return SideRows.of_objects(keys, times, objects)

    def columns(self) -> tuple[str, ...] | None:
        """The columns of joined rows, if they are known."""
        if self._chosen is not None:
            return tuple(name for name, _, _ in self._chosen)
        if self._function or self._left_columns is None or self._right_columns is None:
            return None
        return tuple(dict.fromkeys([*self._added, *self._left_columns, *self._right_columns]))

    def row(self, value: Any) -> Columns:
        """The columns of a record's value that are kept."""
        return as_columns(value, where=self.where)

    def __call__(self, left: Columns | None, right: Columns | None, key: Any) -> Any:
        """The joined row."""
        if self._function is not None:
            return self._function(left, right)
        if self._chosen is not None:
            return self._select({"left": left, "right": right})
        keys = key_parts(self._added, key) if self._added else {}
        if not is_key(keys, left or {}, right or {}):
            raise other_key(keys, self.where)
        if left is not None and right is not None:
            if not self._checked and (clash := self._clash(left, right)) is not None:
                raise InvalidRecord(clash)
            return {**keys, **left, **right}
        if left is not None:
            return {**keys, **left, **missing_columns(self._right_columns, left)}
        alone = right or {}
        # As with USING in SQL: without a left row, the key comes from the right row.
        keys = key_parts(self._keys or self._added, key)
        return {**missing_columns(self._left_columns, alone), **keys, **alone}

    # In columns -----------------------------------------------------------

    def produce(
        self,
        ctx: TableContext,
        sides: tuple[SideRows, SideRows],
        at: tuple[Ints | None, Ints | None],
        times: Ints,
        *,
        to: str | None = None,
        more: Mapping[str, Ints] | None = None,
    ) -> None:
        """Sends the joined rows of these positions of both sides. A position may be missing."""
        if not len(times):
            return
        side = 0 if at[0] is not None else 1
        key = sides[side].key[at[side]]
        windows = more or {}
        columns = self._columnar(ctx, sides, at, key)
        if columns is None or not are_own_windows(columns, windows):
            values, made = self._one_by_one(ctx, sides, at, key, times, windows)
            times, key = times[made], key[made]
            ctx.produce_values(values, to=to, timestamp=times, key_index=key, ties="content")
            return
        columns.update({name: pa.array(column) for name, column in windows.items()})
        declared = all(s.declared for s, rows in zip(sides, at, strict=True) if rows is not None)
        if _can_stand(columns, declared):
            ctx.produce_table(columns, to=to, timestamp=times, key_index=key, ties="content")
        else:
            rows = dicts(pa.table(columns))
            ctx.produce_values(rows, to=to, timestamp=times, key_index=key, ties="content")

    def produce_alone(
        self,
        ctx: TableContext,
        sides: tuple[SideRows, SideRows],
        side: int,
        rows: Ints | None = None,
    ) -> None:
        """Sends rows of a side, or some of them, without a partner."""
        rows = np.arange(len(sides[side])) if rows is None else rows
        at = (rows, None) if side == 0 else (None, rows)
        self.produce(ctx, sides, at, sides[side].time[rows])

    def _columnar(
        self,
        ctx: TableContext,
        sides: tuple[SideRows, SideRows],
        at: tuple[Ints | None, Ints | None],
        key: Ints,
    ) -> dict[str, pa.Array] | None:
        """The joined columns; None if pairs must be combined one by one."""
        if self._function is not None:
            return None
        for i in (0, 1):
            if at[i] is not None and sides[i].columns is None:
                return None
        taken: list[pa.Array | None] = [None if rows is None else pa.array(rows) for rows in at]
        if self._chosen is not None:
            return self._select_columns(sides, taken, len(key))
        both = [
            None if rows is None else {n: a.take(rows) for n, a in (side.columns or {}).items()}
            for side, rows in zip(sides, taken, strict=True)
        ]
        left, right = both
        keys = key_columns(self._added, ctx, key)
        if keys is None or not is_key(keys, left or {}, right or {}):
            return None
        if left is not None:
            if right is not None:
                if not self._checked and self._clash(left, right) is not None:
                    return None  # each pair fails, and goes by the error policy
                return {**keys, **left, **right}
            known = nulls(self._right_columns, self._kinds[1], left, len(key))
            return {**keys, **left, **known}
        alone = right or {}
        keys = key_columns(self._keys or self._added, ctx, key)
        if keys is None:
            return None
        known = nulls(self._left_columns, self._kinds[0], alone, len(key))
        return {**known, **keys, **alone}

    def _select_columns(
        self, sides: tuple[SideRows, SideRows], taken: list[pa.Array | None], count: int
    ) -> dict[str, pa.Array] | None:
        made: dict[str, pa.Array] = {}
        for name, side, column in self._chosen or ():
            i = 0 if side == "left" else 1
            columns, rows = sides[i].columns or {}, taken[i]
            if rows is None:
                made[name] = pa.nulls(count, self._kinds[i].get(column, pa.null()))
            elif column in columns:
                made[name] = columns[column].take(rows)
            else:
                return None  # each row of this side fails, and goes by the error policy
        return made

    def _one_by_one(
        self,
        ctx: TableContext,
        sides: tuple[SideRows, SideRows],
        at: tuple[Ints | None, Ints | None],
        key: Ints,
        times: Ints,
        more: Mapping[str, Ints],
    ) -> tuple[list[Any], Ints]:
        """Encoded values and their positions. A pair that fails becomes a dead letter only."""
        shown, none = ctx.keys(), [None] * len(key)
        found = [[] if rows is None else side.dicts() for side, rows in zip(sides, at, strict=True)]
        lists = [
            none if rows is None else [rows_of[i] for i in rows.tolist()]
            for rows_of, rows in zip(found, at, strict=True)
        ]
        added = [dict(zip(more, cells, strict=True)) for cells in zip(*more.values(), strict=True)]
        values, made = [], []
        for i, (left, right, owner) in enumerate(zip(*lists, key.tolist(), strict=True)):
            try:
                value = self(copy_row(left), copy_row(right), shown[owner])
                if added and isinstance(value, dict):
                    cells = {name: int(cell) for name, cell in added[i].items()}
                    if any(value.get(name) not in (None, cells[name]) for name in cells):
                        raise other_window(self.where)
                    value.update(cells)
                values.append(msgspec.Raw(self.packed(value)))
            except Exception as error:
                ctx.set_aside(error, owner, {"left": left, "right": right}, int(times[i]))
            else:
                made.append(i)
        return values, np.array(made, np.int64)

    def packed(self, value: Any) -> bytes:
        """A joined row as bytes. Values keep their types exactly."""
        pack = packed_exactly if self._function is None else packed
        return pack(value, what="the joined value")

    def _missing(self, side: str, column: str, row: Mapping[str, Any]) -> InvalidRecord:
        return InvalidRecord(
            f"{self.where}: select= names {side}.{column}, which a {side} record does not "
            f"have{did_you_mean(column, row)}; it has: {', '.join(row)}"
        )

    def _select(self, sides: Mapping[str, Columns | None]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, side, column in self._chosen or ():
            row = sides[side]
            if row is None:
                made[name] = None
            elif column in row:
                made[name] = row[column]
            else:
                raise self._missing(side, column, row)
        return made

    def _clash(self, left: Iterable[str], right: Container[str]) -> str | None:
        """The message for two rows of these columns that cannot be combined; None if they can."""
        clash = [name for name in left if name in right and name not in self._shared]
        if not clash:
            return None
        names = ", ".join(repr(name) for name in clash)
        return (
            f"{self.where}: both sides have a column {names}. Name the columns that you want: "
            f'select={{"left_{clash[0]}": "left.{clash[0]}", '
            f'"right_{clash[0]}": "right.{clash[0]}", ...}}'
        )


def _can_stand(columns: Mapping[str, pa.Array], declared: bool) -> bool:
    """Whether rows can be sent as columns: a null without a type must be sent as a value."""
    if declared:
        return not any(pa.types.is_null(column.type) for column in columns.values())
    return not any(column.null_count for column in columns.values())
