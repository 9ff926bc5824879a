"""SQL over state: each computation that a query names is a table of DuckDB.

The state is exported into a scratch directory first, and DuckDB reads it there: so a query may join
computations, read a table twice, and needs no more memory than DuckDB takes.
"""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from headrace.engine.primitives.epoch_state import EpochState
from headrace.engine.primitives.export import export
from headrace.engine.upkeep.pins import HeldPin
from headrace.errors import IncompatibleState, InvalidPipeline
from headrace.store.disk import DiskStore

TABLE = "state"
"""The name of the table where a computation is given."""

ROWS_AT_ONCE = 1000


@contextmanager
def query(
    state: EpochState, sql: str, computation: str | None = None, pin: HeldPin | None = None
) -> Iterator[Any]:
    """Runs a query; yields its result, a cursor of DuckDB that is valid inside the block."""
    try:
        import duckdb
    except ImportError:
        raise InvalidPipeline(
            "SQL over state runs in DuckDB, which is not installed: pip install 'headrace[sql]'. "
            "Without it, `headrace state export` writes Parquet for any other tool"
        ) from None
    if computation is not None:
        state.require(computation)
        _refuse_two_tables(state.computations, computation)
    named = tables_in(sql, state.computations)
    try:
        is_empty = not duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise InvalidPipeline(_explained(error, state, computation)) from None
    if is_empty:
        have = ", ".join(f'"{name}"' for name in state.computations) or "none"
        raise InvalidPipeline(f"the query is empty: write one, over a table; there are: {have}")
    with tempfile.TemporaryDirectory(prefix="headrace-sql-") as scratch:
        connection = duckdb.connect()
        try:
            connection.execute("SET TimeZone = 'UTC'")
            for number, name in enumerate(sorted({*named, *filter(None, [computation])})):
                place = os.path.join(scratch, str(number))
                export(state, name, DiskStore(place), pin=pin)
                files = f"{place}/*.parquet".replace("'", "''")
                for table in {name, TABLE} if name == computation else {name}:
                    quoted = table.replace('"', '""')
                    view = f"CREATE OR REPLACE VIEW \"{quoted}\" AS FROM read_parquet('{files}')"
                    connection.execute(view)
            try:
                yield connection.execute(sql)
            except duckdb.Error as error:  # many a row is made when it is fetched
                raise InvalidPipeline(_explained(error, state, computation)) from None
        finally:
            connection.close()


def tables_in(sql: str, computations: list[str]) -> list[str]:
    """The computations whose names occur in a query, as DuckDB reads names: in any case."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    text = sql.lower()
    found: dict[str, str] = {}
    for name in computations:
        plain = name.lower()
        if plain not in words and f'"{plain}"'.replace('""', '"') not in text:
            continue
        if plain in found:
            raise IncompatibleState(
                f"{found[plain]!r} and {name!r} are one name in SQL: give one of them as NAME, and "
                f"query the table {TABLE}"
            )
        found[plain] = name
    return list(found.values())


def _refuse_two_tables(computations: list[str], computation: str) -> None:
    """Refuses the table `state` where it would be two: the one asked for, and one of that name."""
    for name in computations:
        if name.lower() == TABLE and name != computation:
            raise InvalidPipeline(
                f"a computation is called {name!r}, so the table {TABLE} would be it and "
                f'{computation!r}: leave NAME out, and query "{computation}" by its name'
            )


def table_of(cursor: Any) -> pa.Table:
    """A result as an Arrow table, in memory."""
    # Older versions of DuckDB have the method under its former name only.
    read = getattr(cursor, "to_arrow_table", None) or cursor.fetch_arrow_table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the copy that this makes
        return read()


def rows_of(cursor: Any) -> Iterator[dict[str, Any]]:
    """The rows of a result, some at a time."""
    names = [column[0] for column in cursor.description or ()]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InvalidPipeline(
            f"two columns of the result are called {repeated[0]!r}, and a row would show one of "
            f"them: give one an alias (AS {repeated[0]}_2), or name the columns instead of *"
        )
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        for row in rows:
            yield dict(zip(names, row, strict=True))


def _explained(error: Exception, state: EpochState, computation: str | None) -> str:
    have = ", ".join(f'"{name}"' for name in state.computations) or "none"
    also = f", and {TABLE} for {computation!r}" if computation is not None else ""
    return f"{error}\nThe tables are the computations with state: {have}{also}"
