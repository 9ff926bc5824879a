"""Parses queries of `sql`: which parts DuckDB computes, and which columns pass unchanged.

A query that does not treat each record separately is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.errors import InvalidPipeline
from headrace.model.values.column_names import RECORD_TIME, check_column

NUMBER, OUT = "record number", "record number out"
"""The columns of the row's number: in the query's input, and in its result."""
STAR, COLUMN, COMPUTED = "star", "column", "computed"
_MOMENTS = {"current_timestamp", "current_date", "current_time", "localtimestamp", "localtime"}
_EMPTY = ("modifiers", "group_expressions", "group_sets", "having", "qualify", "sample")


class Query(msgspec.Struct, frozen=True):
    """A checked query: the part that DuckDB computes, and the columns that pass unchanged."""

    table: str
    """The name of the stream in the query."""
    text: str
    """The query for DuckDB: the expressions and each row's number; empty without expressions."""
    names: tuple[str, ...]
    """Columns that expressions use; null if a record does not have the column."""
    told: tuple[str, ...] = ()
    """Columns that expressions use, but whose names may also be names that the query defines."""
    items: tuple[tuple[str, str, str], ...] | None = None
    """(kind, column, new name) of each item. None: DuckDB computes all of them."""


def check_once(names: list[str]) -> None:
    """Refuses a row with two columns of one name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"sql: two columns are called {twice!r}: give one another name, AS")


def checked_query(query: str, stream: str) -> Query:
    """The parsed query. Refuses a query that does not treat each row separately."""
    where = f"{stream}.sql"
    if type(query) is not str or not query.strip():
        raise InvalidPipeline(f"{where} takes a query such as SELECT * FROM stream, not {query!r}")
    connection = duckdb_for(where).connect()
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
    items = _items(node)
    names: tuple[str, ...] = _named_columns(node) or ()
    told: tuple[str, ...] = ()
    if items is not None:
        try:
            check_once([name for _, _, name in items if name])
        except ValueError as error:
            raise InvalidPipeline(str(error)) from None
        names, told = _used(node, items)
        node["select_list"] = [
            item
            for item, (what, _, _) in zip(node["select_list"], items, strict=True)
            if what == COMPUTED
        ]
    if items is not None and not node["select_list"] and not node["where_clause"]:
        return Query(named, "", (), (), items)
    node["select_list"].append(
        {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": OUT, "query_location": 0,
         "column_names": [NUMBER]}
    )  # fmt: skip
    text = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(parsed)]).fetchone()[0]
    return Query(named, text, names, told, items)


def _items(node: dict[str, Any]) -> tuple[tuple[str, str, str], ...] | None:
    """The kind of each item of a query; None if only DuckDB can know it."""
    every = list(_expressions([node["select_list"], node["where_clause"]]))
    own = [item for item in node["select_list"] if item["class"] == "STAR"]
    if any(one["class"] in ("LAMBDA", "POSITIONAL_REFERENCE") for one in every):
        return None
    if sum(one["class"] == "STAR" for one in every) > len(own):
        return None
    tables = _tables(node)
    if node["from_table"]["column_name_alias"]:
        return None
    if any(_narrowed(star) and star["relation_name"].lower() not in tables for star in own):
        return None
    if any(_narrowed({**star, "relation_name": ""}) for star in own):
        return None
    meant = {name.lower() for one in every for name, is_own in _meant(one, tables) if not is_own}
    found = []
    for item in node["select_list"]:
        if item["class"] == "STAR":
            found.append((STAR, "", ""))
            continue
        alias = item["alias"]
        first, *way = item["column_names"] if item["class"] == "COLUMN_REF" else ("",)
        column = first if not way else way[0] if way[1:] == [] and first.lower() in tables else ""
        # DuckDB computes a new name to which an expression may refer.
        if column and not (alias and alias.lower() in meant):
            found.append((COLUMN, column, alias or column))
        else:
            found.append((COMPUTED, "", alias))
    return tuple(found)


def _used(
    node: dict[str, Any], items: tuple[tuple[str, str, str], ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that expressions use, and those that may be names of earlier items instead."""
    tables = _tables(node)
    names: dict[str, None] = {}
    told: dict[str, None] = {}
    earlier: set[str] = set()
    for item, (what, _, name) in zip(node["select_list"], items, strict=True):
        if what == COMPUTED:
            _sort(item, tables, earlier, names, told)
            earlier.add(name.lower())
    _sort(node["where_clause"], tables, earlier, names, told)
    lower = {name.lower() for name in names}
    return tuple(names), tuple(name for name in told if name.lower() not in lower)


def _sort(
    part: Any,
    tables: set[str],
    earlier: set[str],
    names: dict[str, None],
    told: dict[str, None],
) -> None:
    for one in _expressions(part):
        for name, is_column in _meant(one, tables):
            (names if is_column or name.lower() not in earlier else told)[name] = None


def _meant(expression: dict[str, Any], tables: set[str]) -> Iterator[tuple[str, bool]]:
    """The name that a reference means, and whether it can only be the name of a column."""
    if expression["class"] == "COLUMN_REF":
        first, *rest = expression["column_names"]
        if rest and first.lower() in tables:
            yield rest[0], True
        else:
            yield first, False


def _tables(node: dict[str, Any]) -> set[str]:
    """The names under which a query may refer to the stream."""
    return {node["from_table"][name].lower() for name in ("table_name", "alias")} - {""}


def query_columns(query: str, known: tuple[str, ...] | None, where: str) -> tuple[str, ...] | None:
    """The columns of a checked query's result, if they can be derived from its text.

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
    connection = duckdb_for(where).connect()
    parsed = json.loads(connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()[0])
    node: dict[str, Any] = parsed["statements"][0]["node"]
    return node


def _named_columns(node: dict[str, Any]) -> tuple[str, ...] | None:
    """The stream's columns that a query names; None if they cannot be distinguished."""
    every = list(_expressions([node["select_list"], node["where_clause"]]))
    if any(one["class"] == "LAMBDA" for one in every):
        return None  # it defines names itself
    tables = _tables(node)
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
    """Whether a star stands for less than all columns, or for changed ones."""
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


def duckdb_for(where: str) -> Any:
    """The DuckDB module, or an error that says how to install it."""
    try:
        import duckdb
    except ImportError:
        raise InvalidPipeline(
            f"{where} runs in DuckDB, which is not installed: pip install 'headrace[sql]'"
        ) from None
    return duckdb
