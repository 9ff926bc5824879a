"""The table that a Postgres sink writes to: where it is, its columns, and how it is created."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import SinkError
from headrace.model.texts import Unfit
from headrace.sinks.columns import column_names
from headrace.sinks.tables.cells import TableColumn, converter
from headrace.sinks.tables.column_types import some_value, type_for, type_of_arrow

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Identifier

_COLUMNS = """
    SELECT a.attname, base.typname, base.modifier, format_type(a.atttypid, a.atttypmod),
           a.attnotnull,
           a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '' OR t.typdefault IS NOT NULL
    FROM pg_attribute a
    JOIN pg_type t ON t.oid = a.atttypid
    CROSS JOIN LATERAL (
        WITH RECURSIVE domain AS (
            SELECT t.typname, t.typbasetype, t.typtypmod, a.atttypmod AS modifier
            UNION ALL
            SELECT b.typname, b.typbasetype, b.typtypmod, domain.typtypmod
            FROM domain JOIN pg_type b ON b.oid = domain.typbasetype
        )
        SELECT typname, modifier FROM domain WHERE typbasetype = 0
    ) AS base
    WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
_UNIQUE = """
    SELECT array_agg(a.attname::text)
    FROM pg_index i, unnest(i.indkey[0:i.indnkeyatts - 1]) AS k(attnum)
    JOIN pg_attribute a ON a.attnum = k.attnum
    WHERE i.indrelid = to_regclass(%s) AND a.attrelid = i.indrelid
      AND i.indisunique AND i.indimmediate AND i.indisvalid
      AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indexrelid
"""
_FILLED = """
    SELECT EXISTS (
        SELECT FROM pg_trigger
        WHERE tgrelid = to_regclass(%s) AND tgenabled <> 'D' AND tgtype & 7 = 7
    )
"""
"""Whether a trigger may change each row before it is inserted (1: a row, 2: before, 4: insert)."""


class Relation:
    """A table by its name."""

    def __init__(self, given: str, key: Sequence[str], *, create: bool) -> None:
        self.given = given
        first, dot, second = given.partition(".")
        self.schema, self.name = (first, second) if dot else ("", first)
        self._key = tuple(key)
        """The columns of an upsert's key."""
        self._may_create = create

    def resolve(self, cursor: psycopg.Cursor[Any]) -> None:
        """Finds the schema of a name without one: as the server would."""
        if self.schema:
            return
        cursor.execute(
            "SELECT coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)), current_schema())",
            [_quoted(self.name)],
        )
        found = cursor.fetchone()
        if found is None or found[0] is None:
            raise SinkError(f"table {self.given}: there is no schema for it; write schema.table")
        self.schema = found[0]

    def identifier(self) -> Identifier:
        """Its name in statements."""
        from psycopg import sql

        return sql.Identifier(self.schema, self.name)

    def columns(self, cursor: psycopg.Cursor[Any]) -> list[TableColumn] | None:
        """Its columns; None if there is no such table."""
        cursor.execute(_COLUMNS, [self._quoted()])
        return [TableColumn(*row) for row in cursor.fetchall()] or None

    def check(self, cursor: psycopg.Cursor[Any], schema: pa.Schema | None) -> None:
        """Refuses a table that cannot take rows of this schema."""
        columns = self.columns(cursor)
        if columns is None:
            if not self._may_create:
                raise SinkError(
                    f"there is no table {self.given}: create it, or leave out create=False"
                )
            return
        known = {column.name for column in columns}
        for name in (*(() if schema is None else schema.names), *self._key):
            if name not in known:
                raise SinkError(
                    f"table {self.given} has no column {name!r}, which rows will have. Add it: "
                    f"ALTER TABLE {self.given} ADD COLUMN ..."
                )
        if schema is not None:
            cursor.execute(_FILLED, [self._quoted()])
            self._check_types(columns, schema, is_filled=cursor.fetchone() == (True,))
        if self._key:
            cursor.execute(_UNIQUE, [self._quoted()])
            if not any(set(row[0]) == set(self._key) for row in cursor.fetchall()):
                listed = ", ".join(self._key)
                raise SinkError(
                    f"table {self.given} has no unique index on exactly ({listed}) that is not "
                    "deferrable, which an upsert needs: "
                    f"CREATE UNIQUE INDEX ON {self.given} ({listed})"
                )

    def _check_types(
        self, columns: Sequence[TableColumn], schema: pa.Schema, *, is_filled: bool
    ) -> None:
        for column in columns:
            if column.name not in schema.names:
                if column.required and not column.has_default and not is_filled:
                    raise SinkError(
                        f"table {self.given}: column {column.name!r} is NOT NULL and has no "
                        "default, and schema= does not name it: name it there, or change the table"
                    )
                continue
            kind = schema.field(column.name).type
            try:
                if (value := some_value(kind)) is not None:
                    converter(column.kind, column.modifier)(value)
            except Unfit:
                raise SinkError(
                    f"table {self.given}: column {column.name!r} is {column.shown}, but schema= "
                    f"says {kind}: change schema=, or the column's type"
                ) from None

    def create(
        self,
        cursor: psycopg.Cursor[Any],
        rows: list[dict[str, Any]],
        schema: pa.Schema | None,
        times: Sequence[str],
    ) -> None:
        """Creates the table, from a schema, or from the rows that it is to hold."""
        from psycopg import sql

        if not self._may_create:
            raise SinkError(f"there is no table {self.given}: create it and start again")
        declared = self._declared(schema) if schema is not None else self._inferred(rows, times)
        if not declared:
            raise SinkError(
                f"table {self.given} is missing, and the rows of its first epoch have no columns: "
                "give the sink a schema=, or create the table; then start again"
            )
        parts = [sql.Identifier(name) + sql.SQL(f" {kind}") for name, kind in declared.items()]
        if self._key:
            names = sql.SQL(", ").join(sql.Identifier(name) for name in self._key)
            parts.append(sql.SQL("PRIMARY KEY (") + names + sql.SQL(")"))
        cursor.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
                self.identifier(), sql.SQL(", ").join(parts)
            )
        )

    def _declared(self, schema: pa.Schema) -> dict[str, str]:
        found = {}
        for field in schema:
            kind = type_of_arrow(field.type)
            if kind is None:
                raise SinkError(
                    f"table {self.given}: column {field.name!r} is {field.type}, for which "
                    "Postgres has no type: create the table yourself"
                )
            found[field.name] = kind if field.nullable else f"{kind} NOT NULL"
        return found

    def _inferred(self, rows: list[dict[str, Any]], times: Sequence[str]) -> dict[str, str]:
        found = {}
        for name in column_names(rows):
            kind = type_for(row.get(name) for row in rows)
            if kind is None:
                raise SinkError(
                    f"table {self.given} is missing, and column {name!r} is None in every row of "
                    "its first epoch: give the sink a schema=, or create the table; then start "
                    "again"
                )
            found[name] = "timestamptz" if kind == "bigint" and name in times else kind
        return found

    def _quoted(self) -> str:
        return f"{_quoted(self.schema)}.{_quoted(self.name)}"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
