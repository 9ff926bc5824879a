"""`sinks.postgres`: a table of a Postgres database; an epoch's rows and its number, or neither.

1. One transaction raises the mark of this sink (`marks`), if the epoch is newer and this driver is
   the newest, and writes the rows.
2. If the answer to the commit is lost, the next try finds the mark, and changes nothing.

`append` copies rows into the table. `upsert` copies them into a temporary table and inserts from
there: the last row of each key in the epoch counts, in the order of rows.

A row writes every column of the table, None where the row lacks it. A column that has a default
and is not in the row is left to the database.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPipeline, SinkError
from headrace.failpoints import reach
from headrace.model.sink import Delivery, Opening, Sink
from headrace.model.values.rows import Rows
from headrace.sinks.columns import (
    INSTANT,
    TIMES,
    as_batch,
    as_dicts,
    check_schema,
    checked_times,
    column_names,
    refuse_nanoseconds,
)
from headrace.sinks.fitting.leaves import leaves
from headrace.sinks.rows_file import dump, load_parts
from headrace.sinks.tables.cells import NAME_BYTES_MAX, TableColumn
from headrace.sinks.tables.copying import GROUP, ORDER, copy_in, groups
from headrace.sinks.tables.marks import TableMark, take_lock
from headrace.sinks.tables.relation import Relation
from headrace.sinks.tables.server import Database, instance_of, require_client

if TYPE_CHECKING:
    import psycopg


def postgres(
    dsn: str,
    table: str,
    *,
    mode: str = "append",
    key: str | Sequence[str] = (),
    schema: pa.Schema | None = None,
    timestamp: str | None = None,
    times: str | Sequence[str] = TIMES,
    create: bool = True,
    shared: bool = False,
) -> Postgres:
    """Writes to a table of a Postgres database, each epoch in one transaction, exactly once.

    `dsn` is `postgresql://user@host/database`, or libpq's `host=... dbname=...`. A password is best
    left to PGPASSWORD or ~/.pgpass; one in the name is never shown, nor sent to executors.
    `table` is `orders` or `shop.orders`. `mode="upsert"` replaces the row with the same `key`, a
    column or several, which a unique index must have.

    A missing table is created (`create`) from `schema`, or from the rows of the first epoch that
    has any. With a `schema`, rows that do not fit are refused before their epoch is committed.
    `timestamp` names a column for the record's own timestamp. Integers in a column of times are
    microseconds since 1970; new columns that `times` names, and hold integers, are such columns.
    A table belongs to one checkpoint, unless every sink on it says `shared`.

    Needs `headrace[postgres]`.
    """
    return Postgres(
        dsn,
        table,
        mode=mode,
        key=(key,) if isinstance(key, str) else tuple(key),
        schema=schema,
        timestamp=timestamp,
        times=checked_times(times, what="sinks.postgres"),
        create=create,
        shared=shared,
    )


class Postgres(Sink):
    """The sink behind `postgres`."""

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        mode: str,
        key: tuple[str, ...],
        schema: pa.Schema | None,
        timestamp: str | None,
        times: tuple[str, ...],
        create: bool,
        shared: bool,
    ) -> None:
        require_client()
        check_schema(schema, what="sinks.postgres")
        _check_options(table, mode, key, schema, timestamp)
        self.mode = mode
        self.key = key
        self.schema = schema
        self.timestamp = timestamp
        self.times = times if timestamp is None else (*times, timestamp)
        self.shared = shared
        self._server = Database(dsn)
        self._relation = Relation(table, key if mode == "upsert" else (), create=create)
        self._marks: TableMark | None = None
        self._instance = ""
        """Which database it is, the same by whatever address it is reached."""
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_marks": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "_lock": threading.Lock()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Postgres:
        return self

    def __copy__(self) -> Postgres:
        return self

    def __repr__(self) -> str:
        return f"<sinks.postgres: table {self._relation.given} at {self._server.shown}>"

    def identity(self) -> str:
        return f"postgres:{self._server.shown}/{self._relation.given}"

    def target(self) -> str:
        return f"table {self._opened().sink} of {self._instance}"

    def encode(self, rows: Rows) -> bytes:
        if len(rows):
            refuse_nanoseconds(rows, "Postgres")
            if (schema := self._schema()) is not None:
                _refuse_nul(as_batch(rows, timestamp=self.timestamp, schema=schema))
            found = as_dicts(rows, self.timestamp)
            _refuse_names(column_names(found), self._relation.given)
            _refuse_lacking_keys(found, self.key, self._relation.given)
        return dump(rows)

    def open(self, opening: Opening) -> None:
        with self._lock:
            self._marks = None
            user = f"{opening.checkpoint}/{self._relation.given}"
            self._server.begin(user, opening.generation)
            with self._server.transaction(f"open table {self._relation.given}") as cursor:
                self._instance = instance_of(cursor)
                self._relation.resolve(cursor)
                marks = TableMark(self._relation.schema, self._relation.name, opening)
                marks.register(cursor, opening, shared=self.shared)
                self._relation.check(cursor, self._schema())
            self._marks = marks

    def high_water(self) -> int:
        with self._lock, self._server.transaction("say its last epoch") as cursor:
            return self._opened().high_water(cursor)

    def verify(self, epoch: int, commit: str) -> None:
        with self._lock, self._server.transaction("say its last epoch") as cursor:
            self._opened().verify(cursor, epoch, commit)

    def deliver(self, delivery: Delivery) -> None:
        marks = self._opened()
        if delivery.checkpoint != marks.checkpoint:
            raise SinkError(
                f"table {marks.sink} is open for the checkpoint {marks.checkpoint}, not for "
                f"{delivery.checkpoint}"
            )
        rows: list[dict[str, Any]] = []
        for part in load_parts(delivery.parts):
            rows += as_dicts(part, self.timestamp)
        reach("before-claim")
        doing = f"take epoch {delivery.epoch} into table {marks.sink}"
        with self._lock, self._server.transaction(doing) as cursor:
            if not delivery.weak and not marks.advance(cursor, delivery):
                return
            reach("after-claim")
            if rows:
                self._write(cursor, rows)
        reach("after-publish")

    def close(self) -> None:
        with self._lock:
            self._server.close()

    def _opened(self) -> TableMark:
        if self._marks is None:
            raise SinkError("the sink was not opened: open() comes first")
        return self._marks

    def _schema(self) -> pa.Schema | None:
        return None if self.schema is None else _with(self.schema, self.timestamp)

    def _write(self, cursor: psycopg.Cursor[Any], rows: list[dict[str, Any]]) -> None:
        relation = self._relation
        columns = relation.columns(cursor)
        if columns is None:
            take_lock(cursor)
            relation.create(cursor, rows, self._schema(), self.times)
            columns = relation.columns(cursor) or []
        _refuse_unknown(rows, columns, relation.given)
        if self.mode == "append":
            for group in groups(rows, columns):
                target = relation.identifier()
                copy_in(cursor, target, group.columns, group, relation.given)
            return
        self._upsert(cursor, rows, columns)

    def _upsert(
        self, cursor: psycopg.Cursor[Any], rows: list[dict[str, Any]], columns: list[TableColumn]
    ) -> None:
        from psycopg import sql

        found = groups(rows, columns)
        used = [c for c in columns if any(c in group.columns for group in found)]
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in used)
        given, key = self._relation.identifier(), self._identifiers(self.key)
        cursor.execute("DROP TABLE IF EXISTS pg_temp.headrace_rows")
        cursor.execute(
            sql.SQL(
                "CREATE TEMP TABLE headrace_rows ON COMMIT DROP AS "
                "SELECT 0::bigint AS {}, 0 AS {}, {} FROM {} WITH NO DATA"
            ).format(sql.Identifier(ORDER), sql.Identifier(GROUP), names, given)
        )
        temporary = sql.Identifier("pg_temp", "headrace_rows")
        for number, group in enumerate(found):
            copy_in(cursor, temporary, group.columns, group, self._relation.given, number)
        for number, group in enumerate(found):
            cursor.execute(
                sql.SQL(
                    "WITH latest AS (SELECT DISTINCT ON ({key}) * FROM {rows} "
                    "ORDER BY {key}, {order} DESC) "
                    "INSERT INTO {table} ({names}) SELECT {names} FROM latest "
                    "WHERE {group} = {number} ON CONFLICT ({key}) DO "
                ).format(
                    key=key, rows=temporary, order=sql.Identifier(ORDER), table=given,
                    names=self._identifiers([c.name for c in group.columns]),
                    group=sql.Identifier(GROUP), number=sql.Literal(number),
                ) + self._update(group.columns)
            )  # fmt: skip

    def _update(self, columns: Sequence[TableColumn]) -> Any:
        from psycopg import sql

        others = [column.name for column in columns if column.name not in self.key]
        if not others:
            return sql.SQL("NOTHING")
        sets = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others]
        return sql.SQL("UPDATE SET ") + sql.SQL(", ").join(sets)

    def _identifiers(self, names: Sequence[str]) -> Any:
        from psycopg import sql

        return sql.SQL(", ").join(sql.Identifier(name) for name in names)


def _refuse_unknown(rows: list[dict[str, Any]], columns: list[TableColumn], table: str) -> None:
    known = {column.name for column in columns}
    for name in column_names(rows):
        if name not in known:
            raise SinkError(
                f"table {table} has no column {name!r}, which rows have. It has "
                f"{', '.join(sorted(known))}. Add it (ALTER TABLE {table} ADD COLUMN ...) and "
                "start again, or leave it out of the rows"
            )


def _refuse_nul(batch: pa.RecordBatch) -> None:
    for name, cells in zip(batch.schema.names, batch.columns, strict=True):
        if any(map(_has_nul, leaves(cells))):
            raise SinkError(
                f"column {name!r} has text with the character NUL, which Postgres cannot store: "
                "take it out of the rows"
            )


def _has_nul(cells: pa.Array) -> bool:
    if pa.types.is_string_view(cells.type):
        cells = cells.cast(pa.large_string())
    if not pa.types.is_string(cells.type) and not pa.types.is_large_string(cells.type):
        return False
    return bool(pc.any(pc.match_substring(cells, "\0")).as_py())


def _refuse_names(names: Sequence[str], table: str) -> None:
    for name in names:
        if not name or "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
            raise SinkError(
                f"rows for table {table} have a column {name!r:.120}: in Postgres a name has 1 to "
                f"{NAME_BYTES_MAX} bytes, none of them NUL. Rename it in the rows"
            )


def _refuse_lacking_keys(rows: list[dict[str, Any]], key: Sequence[str], table: str) -> None:
    for row in rows:
        for name in key:
            if row.get(name) is None:
                raise SinkError(
                    f"a row for table {table} has no {name!r}, which is part of its key: "
                    f"{row!r:.120}"
                )


def _with(schema: pa.Schema, timestamp: str | None) -> pa.Schema:
    if timestamp is None or timestamp in schema.names:
        return schema
    return schema.append(pa.field(timestamp, INSTANT))


def _check_options(
    table: str, mode: str, key: Sequence[str], schema: pa.Schema | None, timestamp: str | None
) -> None:
    parts = str(table).split(".")
    if not 1 <= len(parts) <= 2 or not all(
        part and "\0" not in part and len(part.encode()) <= NAME_BYTES_MAX for part in parts
    ):
        raise InvalidPipeline(f"sinks.postgres: {table!r} is not a table: 'orders', 'shop.orders'")
    if mode not in ("append", "upsert"):
        raise InvalidPipeline(f"sinks.postgres: mode={mode!r} is unknown: use append or upsert")
    if (mode == "upsert") != bool(key):
        raise InvalidPipeline(
            "sinks.postgres: mode='upsert' needs key=, the columns that tell rows apart; "
            "mode='append' has none"
        )
    if len(set(key)) != len(key) or not all(isinstance(name, str) for name in key):
        raise InvalidPipeline(f"sinks.postgres: key={list(key)!r} does not name different columns")
    if schema is not None:
        lacking = [name for name in key if name not in schema.names and name != timestamp]
        if lacking:
            raise InvalidPipeline(f"sinks.postgres: schema= has no column {lacking[0]!r} of key=")
