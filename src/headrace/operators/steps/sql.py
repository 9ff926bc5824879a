"""`sql`: one SELECT over each record, run by DuckDB in the task that produces the records.

Each row is treated separately. Queries whose results would depend on how records are cut into
tables (aggregates, ORDER BY, DISTINCT, joins, subqueries) or on the time of the run (random(),
now()) are refused while building. For windows and aggregates use `key_by`.

DuckDB gets records by form, each with its own kinds (see `forms`), and only the columns that
expressions use. Columns that are only named, and `*`, pass unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import InvalidRecord
from headrace.model.computation import Computation
from headrace.model.values.arrow import one_array
from headrace.model.values.column_names import RECORD_TIME
from headrace.model.values.shown import shown
from headrace.operators.columns.forms import (
    COUNTED,
    Cells,
    InputRecords,
    Kinds,
    canonical,
    judged,
    listed,
    picked,
    produce,
    same_column,
    set_aside,
    united,
)
from headrace.operators.columns.groups import Ints
from headrace.operators.steps.sql_query import (
    COLUMN,
    NUMBER,
    OUT,
    STAR,
    check_once,
    checked_query,
    duckdb_for,
)

if TYPE_CHECKING:
    from headrace.model.context import TableContext

_WIDE = pa.decimal128(38, 0)
"""The Arrow type of DuckDB's 128-bit integers."""

Part = tuple[Ints, dict[str, Cells]]
"""Rows that a query selected, and the columns that it computed for them."""


class Sql(Computation):
    """Runs a checked SELECT over tables of records."""

    reads_values = False  # it takes the records as they are

    def __init__(self, query: str, stream: str) -> None:
        self.query = checked_query(query, stream)

    def setup(self) -> None:
        """Opens a connection per worker, with one thread, so that rows keep their order."""
        self.connection = duckdb_for("sql").connect(config={"threads": 1})

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Runs the query over all rows of a task."""
        records = InputRecords(ctx.inputs()[0].rows, wide=_WIDE, any_case=True)
        bad: dict[int, Exception] = {}
        rows, parts = np.arange(len(records)), []
        if self.query.text:
            parts = [part for part in self._parts(records, rows, bad) if len(part[0])]
            rows = np.sort(np.concatenate([at for at, _ in parts])) if parts else rows[:0]
        made: dict[str, Cells | Kinds] | list[Any] = {}
        if len(rows):
            made, rows = self._assembled(records, rows, parts, bad)
        set_aside(ctx, records, bad)
        times = records.rows.timestamps[rows]
        if isinstance(made, dict):
            produce(ctx, made, times, rows)
        else:
            ctx.produce_values(made, timestamp=times, causes=rows)

    # What DuckDB does -----------------------------------------------------

    def _parts(
        self, records: InputRecords, rows: Ints, bad: dict[int, Exception]
    ) -> Iterator[Part]:
        refusals = (duckdb_for("sql").Error, pa.ArrowException, ValueError)
        told = self._all(records, rows, bad) if self.query.items is None else self.query.told
        rows = np.array([i for i in rows.tolist() if i not in bad], np.int64) if bad else rows
        used = [name for name in self.query.names if name not in told]
        for at, table in records.tables(used, rows, bad, told):
            given = table.append_column(NUMBER, pa.array(at))
            given = given.drop([COUNTED]) if COUNTED in given.schema.names else given
            given = self._with_missing(given, records, at)
            for _, made in judged(given, at, self._run, refusals, bad):
                columns = [one_array(column) for column in made.columns]
                if records.columns is None:
                    columns = [canonical(column) for column in columns[:-1]] + columns[-1:]
                taken = columns.pop().to_numpy()
                yield taken, dict(zip(made.schema.names, columns, strict=False))

    def _all(self, records: InputRecords, rows: Ints, bad: dict[int, Exception]) -> tuple[str, ...]:
        """All columns of the records."""
        if records.columns is not None:
            return tuple(records.columns.schema.names)
        names: dict[Any, None] = {}
        for i in rows.tolist():
            names.update(dict.fromkeys(records.values[i]))
        if odd := [name for name in names if type(name) is not str]:
            error = InvalidRecord(f"sql: a column's name is text, not {shown(odd[0], 80)}")
            values = records.values
            bad.update((i, error) for i in rows.tolist() if any(name in values[i] for name in odd))
        return tuple(name for name in names if type(name) is str)

    def _with_missing(self, table: pa.Table, records: InputRecords, rows: Ints) -> pa.Table:
        """The table, with nulls for columns that the query names and these records do not have."""
        for name in self.query.names:
            if same_column(name, table.schema.names) is None:
                its_time = name.lower() == RECORD_TIME
                column = records.rows.timestamps[rows] if its_time else pa.nulls(len(rows))
                table = table.append_column(name, pa.array(column))
        return table

    def _run(self, given: pa.Table) -> pa.Table:
        connection = self.connection.cursor()
        connection.register(self.query.table, given)
        made = connection.sql(self.query.text).to_arrow_table()
        # A star includes the engine's column too; the requested one comes last.
        names = made.schema.names
        kept = [i for i, name in enumerate(names) if name not in (NUMBER, OUT)]
        check_once([names[i] for i in kept])
        return made.select([*kept, names.index(OUT)])

    # What comes out -------------------------------------------------------

    def _assembled(
        self, records: InputRecords, rows: Ints, parts: list[Part], bad: dict[int, Exception]
    ) -> tuple[dict[str, Cells | Kinds] | list[Any], Ints]:
        """The columns of these rows, or their values if they do not have the same columns."""
        items = self.query.items
        if items is None:
            names = [list(columns) for _, columns in parts]
            if any(found != names[0] for found in names):
                return _values_of(parts), rows
            return {name: united([(at, c[name]) for at, c in parts]) for name in names[0]}, rows
        computed = iter(list(parts[0][1]) if parts else ())
        made: list[tuple[str, Cells | Kinds | None]] = []
        for what, column, name in items:
            if what == STAR:
                made.append(("", None))
            elif what == COLUMN:
                made.append((name, self._handed(records, column, rows)))
            else:
                found = next(computed)
                made.append((name or found, united([(at, c[found]) for at, c in parts])))
        if (STAR, "", "") not in items:
            return dict(made), rows
        return self._with_stars(records, rows, made, bad)

    def _handed(self, records: InputRecords, column: str, rows: Ints) -> Cells | Kinds:
        every = len(rows) == len(records)
        if records.columns is not None:
            found = records.column(column)
            return found if every else found.take(pa.array(rows))
        cells = records.cells(column)
        return Kinds(cells if every else picked(cells, rows))

    def _with_stars(
        self,
        records: InputRecords,
        rows: Ints,
        made: list[tuple[str, Cells | Kinds | None]],
        bad: dict[int, Exception],
    ) -> tuple[dict[str, Cells | Kinds] | list[Any], Ints]:
        """The values of these rows, if a star stands for the columns of each record."""
        if records.columns is not None:
            shape = tuple(records.columns.schema.names)
        else:
            shapes = {tuple(records.values[i]) for i in rows.tolist()}
            if len(shapes) > 1:
                return self._one_by_one(records, rows, made, bad)
            shape = shapes.pop()
        columns: list[tuple[str, Cells | Kinds]] = []
        for name, cells in made:
            if cells is None:
                columns += [(n, self._handed(records, n, rows)) for n in shape]
            else:
                columns.append((name, cells))
        try:
            check_once([name for name, _ in columns])
        except ValueError as error:
            bad.update((i, error) for i in rows.tolist())
            return {}, rows[:0]
        return dict(columns), rows

    def _one_by_one(
        self,
        records: InputRecords,
        rows: Ints,
        made: list[tuple[str, Cells | Kinds | None]],
        bad: dict[int, Exception],
    ) -> tuple[list[Any], Ints]:
        lists = [(name, None if cells is None else listed(cells)) for name, cells in made]
        values, kept = [], []
        for at, row in enumerate(rows.tolist()):
            pairs: list[tuple[str, Any]] = []
            for name, cells in lists:
                pairs += records.values[row].items() if cells is None else [(name, cells[at])]
            try:
                check_once([name for name, _ in pairs])
            except ValueError as error:
                bad[row] = error
            else:
                values.append(dict(pairs))
                kept.append(at)
        return values, rows[np.array(kept, np.int64)]


def _values_of(parts: list[Part]) -> list[Any]:
    """The rows of all parts as dicts, in the order of the records."""
    order = np.argsort(np.concatenate([at for at, _ in parts]), kind="stable")
    values: list[Any] = []
    for at, columns in parts:
        lists = [listed(cells) for cells in columns.values()]
        found = zip(*lists, strict=True) if lists else ((),) * len(at)
        values += [dict(zip(columns, row, strict=True)) for row in found]
    return picked(values, order)
