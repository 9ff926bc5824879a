"""Copies rows into a table of Postgres, or into the temporary one of an upsert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import SinkError
from headrace.model.texts import Unfit
from headrace.sinks.tables.cells import TableColumn, converter
from headrace.sinks.tables.server import line_in_copy

if TYPE_CHECKING:
    import psycopg

ORDER, GROUP = "headrace_row", "headrace_group"
"""Columns of the temporary table besides those of the rows."""


class Group(NamedTuple):
    """Rows that write the same columns, and their places in the epoch."""

    columns: list[TableColumn]
    rows: list[tuple[int, dict[str, Any]]]


def groups(rows: list[dict[str, Any]], columns: list[TableColumn]) -> list[Group]:
    """Rows by the columns with a default that they have: usually all in one group."""
    optional = [column.name for column in columns if column.has_default]
    found: dict[tuple[str, ...], list[tuple[int, dict[str, Any]]]] = {}
    for number, row in enumerate(rows):
        found.setdefault(tuple(n for n in optional if n in row), []).append((number, row))
    return [
        Group([c for c in columns if not c.has_default or c.name in there], group)
        for there, group in found.items()
    ]


def copy_in(
    cursor: psycopg.Cursor[Any],
    target: Any,
    columns: list[TableColumn],
    group: Group,
    table: str,
    number: int | None = None,
) -> None:
    """Copies rows into a table; into the temporary one with their order and the group's number."""
    import psycopg
    from psycopg import sql

    convert = [(column, converter(column.kind, column.modifier)) for column in columns]
    names = [column.name for column in columns]
    if number is not None:
        names += [ORDER, GROUP]
    listed = sql.SQL(", ").join(sql.Identifier(name) for name in names)
    try:
        with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(target, listed)) as copy:
            for place, row in group.rows:
                cells: list[str | None] = []
                for column, as_text in convert:
                    value = row.get(column.name)
                    try:
                        cells.append(None if value is None else as_text(value))
                    except Unfit as error:
                        raise _misfit(table, column, place, value, str(error)) from None
                if number is not None:
                    cells += [str(place), str(number)]
                copy.write_row(cells)
    except (
        psycopg.DataError,
        psycopg.IntegrityError,
        psycopg.errors.ProgramLimitExceeded,
    ) as error:
        found = line_in_copy(error)
        if found is None or found[0] >= len(group.rows):
            raise
        place, row = group.rows[found[0]]
        said = error.diag.message_primary or type(error).__name__
        named = next((column for column in columns if column.name == found[1]), None)
        if named is None:
            raise SinkError(f"table {table}, row {place + 1} of the epoch: {said}") from None
        raise _misfit(table, named, place, row.get(named.name), said) from None


def _misfit(table: str, column: TableColumn, place: int, value: Any, why: str) -> SinkError:
    return SinkError(
        f"table {table}, column {column.name!r}, row {place + 1} of the epoch: {value!r:.80} does "
        f"not fit {column.shown}: {why}. The epoch is committed: change the column's type (if "
        "there is no table yet, create it) and start again, and it is delivered. A schema= refuses "
        "such rows before the commit"
    )
