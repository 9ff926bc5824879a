"""Steps without a key. They run fused, in the task that produces their input.

Expressions are evaluated for records of one form at a time, with the kinds of that form (see
`columns/forms`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.computation import Computation
from headrace.model.values.arrow import one_array
from headrace.model.values.shown import shown
from headrace.operators.columns.expressions import columns_read, evaluate, is_column
from headrace.operators.columns.forms import (
    Cells,
    InputRecords,
    Kinds,
    canonical,
    judged,
    picked,
    produce,
    set_aside,
    united,
)
from headrace.operators.columns.groups import Ints

if TYPE_CHECKING:
    from headrace.model.context import Context, TableContext
    from headrace.model.record import Record

TIME_BESIDE_VALUES = "record_timestamp"
"""The column of the records' times, if the values have a column `timestamp` themselves."""


class MapRecords(Computation):
    """Sends one value for each value."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Sends the function's value for one record."""
        ctx.produce(self.function(record.value))


_ONE_VALUE = (str, bytes, dict)
"""Types that can be iterated, but that are meant as one value."""


class FlatMapRecords(Computation):
    """Sends any number of values for each value."""

    def __init__(self, function: Callable[[Any], Iterable[Any]]) -> None:
        self.function = function

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Sends the function's values for one record."""
        made = self.function(record.value)
        if made is None:
            raise TypeError("flat_map: the function returned None; let it give values, or []")
        if isinstance(made, _ONE_VALUE):
            raise TypeError(
                f"flat_map: the function returned a {type(made).__name__} ({shown(made, 80)}), "
                "which would be taken apart: wrap it in a list, or use map"
            )
        for value in made:
            ctx.produce(value)


class FilterRecords(Computation):
    """Passes on the values for which the function is true."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Passes one record on if the function is true."""
        if self.function(record.value):
            ctx.produce(record.value)


_REFUSALS = (pa.ArrowException, TypeError)
"""The errors of an expression that cannot handle a record."""


class FilterTable(Computation):
    """Passes on, unchanged, the rows for which an Arrow expression is true."""

    reads_values = False  # it takes the records as they are

    def __init__(self, expression: pc.Expression) -> None:
        self.expression = expression
        self.text = str(expression)
        self.names = columns_read(expression)

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Filters all rows of a task."""
        records = InputRecords(ctx.inputs()[0].rows)
        bad: dict[int, Exception] = {}
        every = np.arange(len(records))
        mask = holding(records, self.expression, self.names, "filter", every, bad)
        set_aside(ctx, records, bad)
        ctx.pass_on(mask)


class Select(Computation):
    """Columns by name or by Arrow expression."""

    reads_values = False  # it takes the records as they are

    def __init__(self, columns: Mapping[str, str | pc.Expression]) -> None:
        self.columns = dict(columns)
        self.text = str({name: str(given) for name, given in columns.items()})
        self.named = {name: of for name, given in columns.items() if (of := is_column(given))}
        """Columns that pass unchanged, of any type."""
        self.computed = {n: given for n, given in columns.items() if n not in self.named}
        self.names = tuple(
            dict.fromkeys(name for e in self.computed.values() for name in columns_read(e))
        )

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Selects columns of all rows of a task."""
        records = InputRecords(ctx.inputs()[0].rows)
        bad: dict[int, Exception] = {}
        good = np.arange(len(records))
        parts = list(self._parts(records, good, bad)) if self.computed else []
        if bad:
            set_aside(ctx, records, bad)
            good = np.delete(good, list(bad))
        if not len(good):
            return
        made: dict[str, Cells | Kinds] = {}
        for name in self.columns:
            if name not in self.named:
                made[name] = united([(rows, cells[name]) for rows, cells in parts])
            elif records.columns is not None:
                column = records.column(self.named[name])
                made[name] = column.take(pa.array(good)) if bad else column
            else:
                cells = records.cells(self.named[name])
                made[name] = Kinds(picked(cells, good) if bad else cells)
        produce(ctx, made, records.rows.timestamps[good], good)

    def _parts(
        self, records: InputRecords, rows: Ints, bad: dict[int, Exception]
    ) -> Iterator[tuple[Ints, dict[str, Cells]]]:
        """The computed columns, form by form."""
        for at, one in evaluated(records, self.computed, self.names, rows, bad):
            columns = {name: one_array(one.column(name)) for name in self.computed}
            if records.columns is None:
                yield at, {name: canonical(column) for name, column in columns.items()}
            else:
                yield at, dict(columns)


class PassOn(Computation):
    """Passes on all records unchanged: the stream after a union."""

    reads_values = False

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Passes on all rows of a task."""
        ctx.pass_on(np.ones(table.num_rows, np.bool_))


class SplitRecords(Computation):
    """Sends each value to the first port whose function is true."""

    def __init__(self, ports: Mapping[str, Callable[[Any], Any] | None]) -> None:
        self.ports = tuple(ports)
        self.functions = tuple(ports.values())

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Sends one record to its port."""
        for port, function in zip(self.ports, self.functions, strict=True):
            if function is None or function(record.value):
                ctx.produce(record.value, to=port)
                return


class SplitTable(Computation):
    """Sends each row to the first port whose Arrow expression is true."""

    reads_values = False  # it takes the records as they are

    def __init__(self, ports: Mapping[str, pc.Expression | None]) -> None:
        self.ports = tuple(ports)
        self.expressions = tuple(ports.values())
        self.text = str({port: str(given) for port, given in ports.items()})
        self.names = tuple(() if e is None else columns_read(e) for e in self.expressions)

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Sends all rows of a task to their ports."""
        records = InputRecords(ctx.inputs()[0].rows)
        bad: dict[int, Exception] = {}
        left = np.ones(len(records), np.bool_)
        taken: list[tuple[str, Any]] = []
        for port, expression, names in zip(self.ports, self.expressions, self.names, strict=True):
            mine = left
            if expression is not None:
                mine = holding(records, expression, names, "split", np.flatnonzero(left), bad)
            left = left & ~mine
            left[list(bad)] = False
            taken.append((port, mine))
        set_aside(ctx, records, bad)
        for port, mine in taken:
            ctx.pass_on(mine, to=port)


def holding(
    records: InputRecords,
    expression: pc.Expression,
    names: tuple[str, ...],
    step: str,
    rows: Ints,
    bad: dict[int, Exception],
) -> np.ndarray[Any, Any]:
    """The rows for which an expression is true. Null is not true."""
    mask = np.zeros(len(records), np.bool_)
    for at, found in evaluated(records, {"holds": expression}, names, rows, bad, step):
        mask[at] = pc.fill_null(found.column("holds"), False).to_numpy()
    return mask


def evaluated(
    records: InputRecords,
    columns: Mapping[str, Any],
    names: tuple[str, ...],
    rows: Ints,
    bad: dict[int, Exception],
    condition: str | None = None,
) -> Iterator[tuple[Ints, pa.Table]]:
    """The results of expressions, form by form. Rows for which they fail go into `bad`."""

    def result(table: pa.Table) -> pa.Table:
        made = evaluate(table, columns)
        return made if condition is None else _checked(made, columns, condition)

    for at, table in records.tables(names, rows, bad):
        yield from judged(table, at, result, _REFUSALS, bad)


def _checked(made: pa.Table, columns: Mapping[str, Any], step: str) -> pa.Table:
    """The result of a condition, after a check that it is true, false or null."""
    kind = made.column("holds").type
    if pa.types.is_null(kind):
        return pa.table({"holds": pa.nulls(made.num_rows, pa.bool_())})
    if not pa.types.is_boolean(kind):
        raise TypeError(
            f"{step}: {columns['holds']} gives {kind}, not true or false: compare it with something"
        )
    return made


def record_times(table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The times of a table's records, even if their values have a column `timestamp`."""
    name = TIME_BESIDE_VALUES if TIME_BESIDE_VALUES in table.schema.names else "timestamp"
    return table.column(name).to_numpy()
