"""How two rows become one: the columns of both, a selection, or a function of both.

Key columns that both sides have under one name appear once. Any other name on
both sides is a clash: found when the pipeline is built where the columns are
known, else at the first pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.errors import InvalidPipeline, InvalidRecord, UserCodeError
from headrace.model.codec import decode_value, packed
from headrace.pipeline.columns import as_columns, check_column, did_you_mean
from headrace.pipeline.keying import KeyGiven
from headrace.pipeline.operators.grouping import Ints
from headrace.pipeline.operators.join_side import SideRows

if TYPE_CHECKING:
    from headrace.model.context import TableContext

Select = Mapping[str, str] | Callable[[Any, Any], Any]
Columns = Mapping[str, Any]


@dataclass(frozen=True)
class Side:
    """One input of a join: a stream, its key and, where they are known, its columns."""

    stream: str
    key: KeyGiven
    columns: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    """How the parts of the key are called where it is a function."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that make the key; none where it is a function."""
        if isinstance(self.key, str):
            return (self.key,)
        return self.key if isinstance(self.key, tuple) else ()


class Kept(msgspec.Struct, array_like=True):
    """A row that waits for partners, as the bytes that it would travel in."""

    row: bytes
    timestamp: int = 0
    matched: bool = False

    @staticmethod
    def of(row: Columns, timestamp: int, matched: bool = False) -> Kept:
        """A row to keep."""
        return Kept(packed(row), timestamp, matched)

    def columns(self) -> Columns:
        """The row again."""
        return decode_value(self.row)


class Pairing:
    """Makes the joined row of a left and a right one, either of which may be missing."""

    def __init__(
        self,
        left: Side,
        right: Side,
        *,
        select: Select | None,
        where: str,
        shared: tuple[str, ...] = (),
    ) -> None:
        """`shared`: further columns that both sides may have, being equal."""
        self.where = where
        self._keys = left.key_columns
        self._added = () if left.key_columns else left.names
        both = set(left.key_columns) & set(right.key_columns) if _alike(left, right) else set()
        self._shared = frozenset(both | set(shared))
        self._left_columns, self._right_columns = left.columns, right.columns
        self._function: Callable[[Any, Any], Any] | None = None
        self._chosen: tuple[tuple[str, str, str], ...] | None = None
        if callable(select):
            self._function = select
        elif select is not None:
            sides = {"left": left.columns, "right": right.columns}
            self._chosen = tuple(_choice(n, c, sides, where) for n, c in select.items())
        else:
            self._check(left.columns, right.columns)
        self._checked = left.columns is not None and right.columns is not None

    def columns(self) -> tuple[str, ...] | None:
        """The columns of joined rows, where they are known."""
        if self._chosen is not None:
            return tuple(name for name, _, _ in self._chosen)
        if self._function or self._left_columns is None or self._right_columns is None:
            return None
        return tuple(dict.fromkeys([*self._added, *self._left_columns, *self._right_columns]))

    def row(self, value: Any) -> Columns:
        """A record's value as the columns that are kept of it."""
        return as_columns(value, where=self.where)

    def __call__(self, left: Columns | None, right: Columns | None, key: Any) -> Any:
        """The joined row."""
        if self._function is not None:
            return self._function(left, right)
        if self._chosen is not None:
            return self._select({"left": left, "right": right})
        keys = _parts(self._added, key) if self._added else {}
        if left is not None and right is not None:
            if not self._checked:
                self._check(left, right)
            return {**keys, **left, **right}
        if left is not None:
            return {**keys, **left, **_nothing(self._right_columns, left)}
        alone = right or {}
        # As with USING in SQL, the key of a row without a left one is the right one's.
        keys = _parts(self._keys or self._added, key)
        return {**_nothing(self._left_columns, alone), **keys, **alone}

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
        """Sends the joined rows of these positions of both sides; a side may have none."""
        if not len(times):
            return
        side = 0 if at[0] is not None else 1
        key = sides[side].key[at[side]]
        try:
            columns = self._columnar(ctx, sides, at, key)
            values = [] if columns is not None else self._one_by_one(ctx, sides, at, key)
        except (InvalidPipeline, InvalidRecord) as error:
            raise UserCodeError(str(error)) from error  # seen only now, with these records
        if columns is not None:
            columns.update({name: pa.array(column) for name, column in (more or {}).items()})
            ctx.produce_table(columns, to=to, timestamp=times, key_index=key)
            return
        if more:
            names = list(more)
            rows = zip(*(column.tolist() for column in more.values()), strict=True)
            values = [
                {**value, **dict(zip(names, row, strict=True))}
                if isinstance(value, dict)
                else value
                for value, row in zip(values, rows, strict=True)
            ]
        ctx.produce_values(values, to=to, timestamp=times, key_index=key)

    def _columnar(
        self,
        ctx: TableContext,
        sides: tuple[SideRows, SideRows],
        at: tuple[Ints | None, Ints | None],
        key: Ints,
    ) -> dict[str, pa.Array] | None:
        """The joined columns; None where pairs are to be made one by one."""
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
        try:
            if left is not None:
                keys = _key_columns(self._added, ctx, key, {})
                if right is not None:
                    if not self._checked:
                        self._check(left, right)
                    return {**keys, **left, **right}
                return {**keys, **left, **_nulls(self._right_columns, sides[1], left, len(key))}
            alone = right or {}
            kinds = sides[0].names()
            keys = _key_columns(self._keys or self._added, ctx, key, kinds)
        except (pa.ArrowException, TypeError, OverflowError):
            return None  # keys of all kinds fit no column
        return {**_nulls(self._left_columns, sides[0], alone, len(key)), **keys, **alone}

    def _select_columns(
        self, sides: tuple[SideRows, SideRows], taken: list[pa.Array | None], count: int
    ) -> dict[str, pa.Array]:
        made: dict[str, pa.Array] = {}
        for name, side, column in self._chosen or ():
            i = 0 if side == "left" else 1
            columns, rows = sides[i].columns or {}, taken[i]
            if rows is None:
                made[name] = pa.nulls(count, sides[i].names().get(column, pa.null()))
            elif column in columns:
                made[name] = columns[column].take(rows)
            else:
                raise self._missing(side, column, columns)
        return made

    def _one_by_one(
        self,
        ctx: TableContext,
        sides: tuple[SideRows, SideRows],
        at: tuple[Ints | None, Ints | None],
        key: Ints,
    ) -> list[Any]:
        shown = ctx.keys()
        keys = [shown[i] for i in key.tolist()]
        lists: list[Any] = []
        for side, rows in zip(sides, at, strict=True):
            found = [] if rows is None else side.dicts()
            # A function may keep or change what it gets, so each pair has its own.
            lists.append([None] * len(key) if rows is None else [dict(found[i]) for i in rows])
        values = [self(*row) for row in zip(*lists, keys, strict=True)]
        missing = [i for i in (0, 1) if at[i] is None]
        if missing and self._function is None and self._chosen is None:
            names = sides[missing[0]].names()
            values = [{**value, **_nothing(tuple(names), value)} for value in values]
        return values

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

    def _check(self, left: Any, right: Any) -> None:
        if left is None or right is None:
            return
        clash = [name for name in left if name in right and name not in self._shared]
        if clash:
            names = ", ".join(repr(name) for name in clash)
            raise InvalidPipeline(
                f"{self.where}: both sides have a column {names}. Name the columns that you want: "
                f'select={{"left_{clash[0]}": "left.{clash[0]}", '
                f'"right_{clash[0]}": "right.{clash[0]}", ...}}'
            )


def _parts(names: tuple[str, ...], key: Any) -> dict[str, Any]:
    if len(names) == 1 and not isinstance(key, tuple):
        return {names[0]: key}
    return dict(zip(names, key, strict=False)) if isinstance(key, tuple) else {}


def _key_columns(
    names: tuple[str, ...], ctx: TableContext, key: Ints, kinds: Mapping[str, pa.DataType]
) -> dict[str, pa.Array]:
    """The parts of the keys at these positions."""
    if not names:
        return {}
    used, of = np.unique(key, return_inverse=True)
    shown = ctx.keys()
    rows = [_parts(names, shown[i]) for i in used.tolist()]
    columns = {}
    for name in rows[0]:
        column = pa.array([row[name] for row in rows])
        kind = kinds.get(name, pa.null())
        if not pa.types.is_null(kind) and kind != column.type:
            column = column.cast(kind)
        columns[name] = column.take(pa.array(of))
    return columns


def _nulls(
    names: tuple[str, ...] | None, side: SideRows, row: Mapping[str, Any], count: int
) -> dict[str, pa.Array]:
    """Nulls for the columns of a side that are known, by schema or from its rows."""
    kinds = side.names()
    known = dict.fromkeys([*(names or ()), *kinds])
    return {n: pa.nulls(count, kinds.get(n, pa.null())) for n in known if n not in row}


def _alike(left: Side, right: Side) -> bool:
    """Whether the same columns, in the same places, make both keys."""
    return left.key_columns == right.key_columns


def _nothing(columns: tuple[str, ...] | None, row: Columns) -> dict[str, None]:
    return {name: None for name in columns or () if name not in row}


def _choice(
    name: Any, given: Any, sides: Mapping[str, tuple[str, ...] | None], where: str
) -> tuple[str, str, str]:
    side, dot, column = given.partition(".") if isinstance(given, str) else ("", "", "")
    if not isinstance(name, str) or side not in sides or not dot or not column:
        raise InvalidPipeline(
            f"{where}: select= maps a new name to "
            f'"left.column" or "right.column"; {name!r}: {given!r} is not that'
        )
    check_column(column, sides[side], where=f"{where}, select= {name!r}, the {side} side")
    return name, side, column
