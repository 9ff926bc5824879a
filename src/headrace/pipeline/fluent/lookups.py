"""Puts look-ups into a graph: `lookup` wires a computation behind a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.model.values.column_names import check_column
from headrace.model.values.time import Duration
from headrace.operators.lookup.lookup import Lookup, clashing, index_of
from headrace.operators.lookup.table import lookup_table
from headrace.operators.lookup.versions import Refresh
from headrace.pipeline.fluent.catalog import Catalog

On = str | tuple[str, ...] | Mapping[str, str]


def lookup(
    catalog: Catalog,
    stream: str,
    table: Any,
    *,
    on: On,
    how: str = "left",
    columns: tuple[str, ...] | None = None,
    name: str | None = None,
    refresh: Duration | None = None,
    **options: Any,
) -> tuple[str, tuple[str, ...] | None]:
    """Looks every record up in a lookup table; returns the new stream's name and known columns.

    `on`: a column of both, a tuple of such columns, or a mapping of stream column to table column.
    """
    name = name or f"{stream}.lookup"
    where = f"look-up {name!r}"
    if how not in ("inner", "left"):
        raise InvalidPipeline(f'{where}: how= is "inner" or "left", not {how!r}')
    pairs = {on: on} if isinstance(on, str) else dict(on) if isinstance(on, Mapping) else None
    pairs = {column: column for column in on} if pairs is None else pairs
    if not pairs:
        raise InvalidPipeline(f"{where}: on= names at least one column")
    if refresh is None:
        again, side = None, lookup_table(table, key=tuple(pairs.values()), where=where)
    else:
        again = Refresh(table, refresh, key=tuple(pairs.values()), where=where)
        side = again.read()
    have = tuple(side.table.column_names)
    for mine, theirs in pairs.items():
        check_column(mine, columns, where=f"{where}, on=")
        check_column(theirs, have, where=f"{where}, on=, the lookup table")
    added = [n for n in have if n not in pairs.values()]
    clash = [n for n in added if columns is not None and n in columns]
    if clash:
        raise InvalidPipeline(clashing(where, clash))
    index_of(side, tuple(pairs.values()))  # fails here if a column cannot be used for look-ups
    name = catalog.add_step(
        name, Lookup(side, pairs, how, where, again), {stream: None}, name, **options
    )
    if columns is None or (again is not None and again.columns_of(side) is None):
        return name, None
    return name, (*columns, *added)
