"""Columns of joined rows: parts of keys, nulls for a missing side, and `select=`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPipeline, InvalidRecord
from headrace.model.values.column_names import check_column
from headrace.operators.columns.forms import Kinds
from headrace.operators.columns.groups import Ints

if TYPE_CHECKING:
    from headrace.model.context import TableContext

_WHOLE = (int, float, str, bytes, bool, type(None))


def copy_row(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A copy of a row for one pair, because a user function may keep or change it."""
    if row is None:
        return None
    return {n: v if type(v) in _WHOLE else copy.deepcopy(v) for n, v in row.items()}


def are_own_windows(columns: Mapping[str, pa.Array], windows: Mapping[str, Ints]) -> bool:
    """Whether the window columns of rows, if there are any, name the window of the join."""
    return all(
        columns[name].type == pa.int64()
        and pc.all(pc.equal(columns[name], pa.array(window)), min_count=0).as_py()
        for name, window in windows.items()
        if name in columns
    )


def other_window(where: str) -> InvalidRecord:
    """The error for a row that names another window."""
    return InvalidRecord(
        f"{where}: joined rows have columns window_start and window_end of their window, but the "
        "records have such columns of another window: rename those in select=, or join by "
        "window=same_window()"
    )


def is_unequal(key: Any) -> bool:
    """Whether a part of a key is missing: such a key equals no key, as NULL in SQL."""
    return type(key) is tuple and None in key


def key_parts(names: tuple[str, ...], key: Any) -> dict[str, Any]:
    if isinstance(key, tuple) and len(key) == len(names):
        return dict(zip(names, key, strict=True))
    if len(names) != 1:
        return {}
    # As in rows of windows: a function returned a key of several parts under one name.
    several = isinstance(key, tuple)
    return {names[0]: {f"part_{i}": part for i, part in enumerate(key)} if several else key}


def key_columns(names: tuple[str, ...], ctx: TableContext, key: Ints) -> dict[str, pa.Array] | None:
    """The parts of the keys at these positions; None if they do not fit columns unchanged."""
    if not names:
        return {}
    used, of = np.unique(key, return_inverse=True)
    shown = ctx.keys()
    rows = [key_parts(names, shown[i]) for i in used.tolist()]
    if any(len(row) != len(rows[0]) for row in rows):
        return None
    found = {name: Kinds([row[name] for row in rows]) for name in rows[0]}
    if not all(column.is_whole for column in found.values()):
        return None
    return {name: column.whole().take(pa.array(of)) for name, column in found.items()}


def is_key(keys: Mapping[str, Any], *rows: Mapping[str, Any]) -> bool:
    """Whether a row's value under the name of the key, if there is one, equals the key."""
    for name, part in keys.items():
        for row in rows:
            if name not in row:
                continue
            if isinstance(part, pa.Array):
                same = row[name].to_pylist() == part.to_pylist()
            else:
                same = type(row[name]) is type(part) and row[name] == part
            if not same:
                return False
    return True


def other_key(names: Iterable[str], where: str) -> InvalidRecord:
    """The error for a row whose value under the name of the key differs from the key."""
    shown = ", ".join(map(repr, names))
    return InvalidRecord(
        f"{where}: its key is a function and comes out as the column {shown}, but the "
        "records have a column of that name with something else in it: name the key "
        "otherwise, key_by(name=function), or say select="
    )


def nulls(
    names: tuple[str, ...] | None,
    kinds: Mapping[str, pa.DataType],
    row: Mapping[str, Any],
    count: int,
) -> dict[str, pa.Array]:
    """Nulls for the known columns of a side. A schema gives them types."""
    return {n: pa.nulls(count, kinds.get(n, pa.null())) for n in names or () if n not in row}


def missing_columns(columns: tuple[str, ...] | None, row: Mapping[str, Any]) -> dict[str, None]:
    return {name: None for name in columns or () if name not in row}


def parse_choice(
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
