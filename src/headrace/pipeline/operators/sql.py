"""`sql`: one SELECT over each record, run by DuckDB in the task that makes the records.

Rows are treated one by one: what would depend on how records are cut into tables
(aggregates, ORDER BY, DISTINCT, joins, subqueries) or on the moment (random(), now()) is
refused while building. Windows and aggregates are the business of `key_by`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.rows import values_of
from headrace.pipeline.columns import RECORD_TIME, check_column
from headrace.pipeline.operators.stateless import record_times

if TYPE_CHECKING:
    from headrace.model.context import TableContext

_HIDDEN = {"record time": "record time out", "record number": "record number out"}
"""What goes with each row through the query: its column there, and in the result."""
_TIME, _NUMBER = _HIDDEN
_MOMENTS = {"current_timestamp", "current_date", "current_time", "localtimestamp", "localtime"}
_EMPTY = ("modifiers", "group_expressions", "group_sets", "having", "qualify", "sample")


class Sql(Computation):
    """Runs a checked SELECT over tables of records."""

    def __init__(self, query: str, stream: str) -> None:
        self.query, self.table = checked_query(query, stream)
        self.named = _named_columns(_select(query, f"{stream}.sql")) or ()
        """The columns that it names: those that no record of a table has are null there."""

    def setup(self) -> None:
        """A connection per worker; one thread keeps rows in their order."""
        self.connection = _duckdb("sql").connect(config={"threads": 1})

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All rows of a task."""
        given = values_of(table).append_column(_TIME, pa.array(record_times(table)))
        given = given.append_column(_NUMBER, pa.array(np.arange(len(table))))
        have = {name.lower() for name in given.schema.names}
        for name in self.named:
            if name.lower() == RECORD_TIME not in have:
                given = given.append_column(name, pa.array(record_times(table)))
            elif name.lower() not in have:
                given = given.append_column(name, pa.nulls(table.num_rows))
        connection = self.connection.cursor()
        connection.register(self.table, given)
        made = connection.sql(self.query).to_arrow_table()
        times, causes = (made.column(name).to_numpy() for name in _HIDDEN.values())
        hidden = {*_HIDDEN, *_HIDDEN.values()}
        names = [name for name in made.schema.names if name not in hidden]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"sql: two columns are called {twice[0]!r}: give one another name, AS")
        ctx.produce_table(made.select(names), timestamp=times, causes=causes)


def checked_query(query: str, stream: str) -> tuple[str, str]:
    """The query, with each record's time and number in its result, and how it calls the stream.

    Refuses what does not go row by row.
    """
    where = f"{stream}.sql"
    if type(query) is not str or not query.strip():
        raise InvalidPipeline(f"{where} takes a query such as SELECT * FROM stream, not {query!r}")
    connection = _duckdb(where).connect()
    parsed = json.loads(connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()[0])
    if parsed.get("error"):
        raise InvalidPipeline(f"{where}: {parsed.get('error_message')}")
    node = parsed["statements"][0]["node"]
    table = node.get("from_table") or {}
    simple = len(parsed["statements"]) == 1 and node["type"] == "SELECT_NODE"
    named = table.get("table_name")
    if not simple or named not in ("stream", stream) or node["cte_map"]["map"]:
        own = stream if stream.isidentifier() else f'"{stream}"'
        raise InvalidPipeline(
            f"{where}: write one SELECT ... FROM stream (or FROM {own}), without joins and WITH"
        )
    if any(node.get(name) for name in _EMPTY):
        raise InvalidPipeline(
            f"{where} goes record by record: no GROUP BY, DISTINCT, ORDER BY or LIMIT; "
            "aggregate with key_by(...).aggregate(...)"
        )
    for expression in _expressions([node["select_list"], node["where_clause"]]):
        _check(expression, connection, where)
    node["select_list"] += [
        {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": out, "query_location": 0,
         "column_names": [name]}
        for name, out in _HIDDEN.items()
    ]  # fmt: skip
    text: str = connection.execute(
        "SELECT json_deserialize_sql(?)", [json.dumps(parsed)]
    ).fetchone()[0]
    return text, named


def query_columns(query: str, known: tuple[str, ...] | None, where: str) -> tuple[str, ...] | None:
    """The columns that a checked query makes, where that is plain to see.

    Refuses names that are not among the known columns.
    """
    node = _select(query, where)
    items = node["select_list"]
    if known is not None:
        lower = {RECORD_TIME, *(name.lower() for name in known)}
        for name in _named_columns(node) or ():
            if name.lower() not in lower:
                check_column(name, known, where=where)
    found: list[str] = []
    for item in items:
        if item["class"] == "STAR" and known is not None and not _narrowed(item):
            found += known
        elif item["class"] == "COLUMN_REF" or item["alias"]:
            found.append(item["alias"] or item["column_names"][-1])
        else:
            return None
    return tuple(dict.fromkeys(found))


def _select(query: str, where: str) -> dict[str, Any]:
    connection = _duckdb(where).connect()
    parsed = json.loads(connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()[0])
    node: dict[str, Any] = parsed["statements"][0]["node"]
    return node


def _named_columns(node: dict[str, Any]) -> tuple[str, ...] | None:
    """The stream's columns that a query names; None where they cannot be told apart."""
    every = list(_expressions([node["select_list"], node["where_clause"]]))
    if any(one["class"] == "LAMBDA" for one in every):
        return None  # it has names of its own
    tables = {node["from_table"][name].lower() for name in ("table_name", "alias")}
    own = {item["alias"].lower() for item in node["select_list"]}
    found: dict[str, None] = {}
    for one in every:
        if one["class"] == "COLUMN_REF":
            first, *rest = one["column_names"]
            name = rest[0] if rest and first.lower() in tables else first
            if name.lower() not in own:
                found[name] = None
    return tuple(found)


def _narrowed(star: dict[str, Any]) -> bool:
    """Whether a star stands for other columns than all."""
    return any(value for name, value in star.items() if name.endswith("_list")) or bool(
        star.get("columns") or star.get("expr") or star.get("relation_name")
    )


def _check(expression: dict[str, Any], connection: Any, where: str) -> None:
    kind = expression["class"]
    if kind in ("SUBQUERY", "WINDOW"):
        raise InvalidPipeline(f"{where} goes record by record: no {kind.lower()} in it")
    if kind == "COLUMN_REF" and expression["column_names"][-1].lower() in _MOMENTS:
        name, found = expression["column_names"][-1], [("scalar", "VOLATILE")]
    elif kind == "FUNCTION":
        name = expression["function_name"]
        found = connection.execute(
            "SELECT function_type, stability FROM duckdb_functions() WHERE function_name = ?",
            [name.lower()],
        ).fetchall()
    else:
        return
    if any(kind in ("aggregate", "window") for kind, _ in found):
        raise InvalidPipeline(
            f"{where}: {name} takes many records, but sql goes record by record; use "
            "key_by(...).aggregate(...)"
        )
    if any(stability not in (None, "CONSISTENT") for _, stability in found):
        raise InvalidPipeline(f"{where}: {name} gives something else on a replay")


def _expressions(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if "class" in part and "type" in part:
            yield part
        for inner in part.values():
            yield from _expressions(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _expressions(inner)


def _duckdb(where: str) -> Any:
    try:
        import duckdb
    except ImportError:
        raise InvalidPipeline(
            f"{where} runs in DuckDB, which is not installed: pip install 'headrace[sql]'"
        ) from None
    return duckdb
