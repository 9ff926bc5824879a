"""Steps without a key: they run fused, in the task that makes their input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from headrace.model.computation import Computation
from headrace.pipeline.columns import UNKNOWN_FIELD
from headrace.pipeline.operators.grouping import plain

if TYPE_CHECKING:
    from headrace.model.context import Context, TableContext
    from headrace.model.record import Record

RECORD_TIME = "record_timestamp"
"""The column of the records' times where the values have a column `timestamp` of their own."""


class MapRecords(Computation):
    """One value out for each value in."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """One record."""
        ctx.produce(self.function(record.value))


_ONE_VALUE = (str, bytes, dict)
"""What can be walked through, but is meant as one value."""


class FlatMapRecords(Computation):
    """Any number of values out for each value in."""

    def __init__(self, function: Callable[[Any], Iterable[Any]]) -> None:
        self.function = function

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """One record."""
        made = self.function(record.value)
        if made is None:
            raise TypeError("flat_map: the function returned None; let it give values, or []")
        if isinstance(made, _ONE_VALUE):
            raise TypeError(
                f"flat_map: the function returned a {type(made).__name__} ({made!r:.80}), which "
                "would be taken apart: wrap it in a list, or use map"
            )
        for value in made:
            ctx.produce(value)


class FilterRecords(Computation):
    """Passes on the values for which the function holds."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """One record."""
        if self.function(record.value):
            ctx.produce(record.value)


class FilterTable(Computation):
    """Passes on the rows for which an Arrow expression holds, as they are."""

    def __init__(self, expression: pc.Expression) -> None:
        self.expression = expression
        self.text = str(expression)

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All rows of a task."""
        ctx.pass_on(holds(table, self.expression, "filter"))


class MapTable(Computation):
    """A table out for each table in, by a user's function."""

    def __init__(self, function: Callable[[pa.Table], pa.Table]) -> None:
        self.function = function

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All rows of a task."""
        times = record_times(table)
        taken = RECORD_TIME in table.schema.names
        made = self.function(table.drop([RECORD_TIME]) if taken else table)
        if isinstance(made, dict):
            made = pa.table(made)
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            made = _of_frame(made)
        if not taken and "timestamp" in made.schema.names:
            times = _times(made.column("timestamp"))
            made = made.drop(["timestamp"])
        elif made.num_rows != table.num_rows:
            raise ValueError(
                f"map_table: {table.num_rows} rows in, {made.num_rows} out: whose time do they "
                "have? Let the function keep the column 'timestamp'"
            )
        ctx.produce_table(made, timestamp=times)


class Select(Computation):
    """Columns by name or by Arrow expression."""

    def __init__(self, columns: Mapping[str, str | pc.Expression]) -> None:
        self.columns = dict(columns)
        self.text = str({name: str(given) for name, given in columns.items()})

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All rows of a task."""
        wanted = {
            name: pc.field(given) if isinstance(given, str) else given
            for name, given in self.columns.items()
        }
        made = evaluate(table, wanted)
        ctx.produce_table(made, timestamp=record_times(table))


class PassOn(Computation):
    """Sends everything on as it is: the stream after a union."""

    reads_values = False

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All rows of a task."""
        ctx.pass_on(np.ones(table.num_rows, np.bool_))


class SplitRecords(Computation):
    """Sends each value to the first port whose function holds."""

    def __init__(self, ports: Mapping[str, Callable[[Any], Any] | None]) -> None:
        self.ports = tuple(ports)
        self.functions = tuple(ports.values())

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """One record."""
        for port, function in zip(self.ports, self.functions, strict=True):
            if function is None or function(record.value):
                ctx.produce(record.value, to=port)
                return


class SplitTable(Computation):
    """The same by Arrow expressions."""

    def __init__(self, ports: Mapping[str, pc.Expression | None]) -> None:
        self.ports = tuple(ports)
        self.expressions = tuple(ports.values())
        self.text = str({port: str(given) for port, given in ports.items()})

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All rows of a task."""
        left = np.ones(table.num_rows, np.bool_)
        for port, expression in zip(self.ports, self.expressions, strict=True):
            mine = left if expression is None else left & holds(table, expression, "split")
            ctx.pass_on(mine, to=port)
            left = left & ~mine


def holds(table: pa.Table, expression: pc.Expression, step: str) -> np.ndarray[Any, Any]:
    """For which rows an expression is true; null is not."""
    found = evaluate(table, {"holds": expression}).column("holds")
    if pa.types.is_null(found.type):
        return np.zeros(table.num_rows, np.bool_)
    if not pa.types.is_boolean(found.type):
        raise TypeError(
            f"{step}: {expression} gives {found.type}, not true or false: compare it with something"
        )
    return pc.fill_null(found, False).to_numpy()


def record_times(table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The times of a table's records, whatever their values call `timestamp`."""
    name = RECORD_TIME if RECORD_TIME in table.schema.names else "timestamp"
    return table.column(name).to_numpy()


def _of_frame(made: Any) -> pa.Table:
    """A table of a pandas or Polars frame; a pandas index is no column."""
    module = type(made).__module__.split(".")[0]
    if module == "pandas" and hasattr(made, "columns"):
        return pa.Table.from_pandas(made, preserve_index=False).replace_schema_metadata(None)
    if module == "polars" and hasattr(made, "to_arrow") and hasattr(made, "columns"):
        return made.to_arrow()
    raise TypeError(
        f"map_table: the function returned {type(made).__name__}, not an Arrow table "
        "(or a pandas or Polars DataFrame)"
    )


def _times(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    times = plain(column)
    if times.null_count or not pa.types.is_int64(times.type):
        raise TypeError(
            f"map_table: the column 'timestamp' is {column.type} with {column.null_count} nulls; "
            "every row has its time there, in microseconds or as an Arrow timestamp"
        )
    return times.to_numpy()


_TYPES = (pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.binary(),
          pa.timestamp("us", "UTC"), pa.list_(pa.null()))  # fmt: skip
"""Of what types a column may have been that is null in all records of a table."""


def evaluate(table: pa.Table, columns: Mapping[str, pc.Expression]) -> pa.Table:
    """A table of expressions over the columns of another.

    A column that no record of the table has is null, as in sparse JSON: whether one of them has
    it depends on the cut, so it must not matter. Its type is any that the expressions take.
    """
    while True:
        try:
            return _evaluated(table, columns)
        except pa.ArrowNotImplementedError as error:
            return _as_another_type(table, columns, error)
        except pa.ArrowInvalid as error:
            missing = UNKNOWN_FIELD.match(str(error))
            if missing is None or missing[1] in table.schema.names:
                raise
            table = table.append_column(missing[1], pa.nulls(table.num_rows))


def _as_another_type(
    table: pa.Table, columns: Mapping[str, pc.Expression], error: pa.ArrowException
) -> pa.Table:
    """Where a function does not take nulls without a type: each expression with types it takes."""
    empty = [field.name for field in table.schema if pa.types.is_null(field.type)]
    made: dict[str, pa.ChunkedArray] = {}
    for name, expression in columns.items():
        named = [column for column in empty if column in str(expression)][:3]
        for kinds in product((pa.null(), *_TYPES), repeat=len(named)):
            typed = table
            for column, kind in zip(named, kinds, strict=True):
                at = table.schema.get_field_index(column)
                typed = typed.set_column(at, column, pa.nulls(table.num_rows, kind))
            try:
                made[name] = _evaluated(typed, {name: expression}).column(name)
                break
            except pa.ArrowNotImplementedError:
                continue
        else:
            raise error
    return pa.table(made)


def _evaluated(table: pa.Table, columns: Mapping[str, pc.Expression]) -> pa.Table:
    declaration = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
            acero.Declaration(
                "project", acero.ProjectNodeOptions(list(columns.values()), list(columns))
            ),
        ]
    )
    # One thread keeps the rows in their order.
    return declaration.to_table(use_threads=False)
