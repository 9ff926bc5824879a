"""`map_table`: a user's function over tables of records.

Columnar records are one table. For records without a schema, each run of records with the same
columns of the same kinds is a table. So the order is kept, and the types of a record do not depend
on the other records of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import InvalidRecord
from headrace.model.computation import Computation
from headrace.model.values.arrow import one_batch, stored_form
from headrace.model.values.rows import Rows
from headrace.model.values.shown import shown
from headrace.operators.columns.forms import Forms, InputRecords, Kinds, judged, set_aside
from headrace.operators.columns.groups import Ints

if TYPE_CHECKING:
    from headrace.model.context import TableContext

TIME = "timestamp"
_TIMES = "the times of these records"


class _Raised(Exception):
    """Wraps an error of the function, to distinguish it from an error in its result."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class MapTable(Computation):
    """Calls a user function that returns a table for each table."""

    reads_values = False  # it takes the records as they are

    def __init__(self, function: Callable[[pa.Table], pa.Table]) -> None:
        self.function = function

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Calls the function for all rows of a task."""
        records = InputRecords(ctx.inputs()[0].rows)
        bad: dict[int, Exception] = {}
        made: list[tuple[Ints, Rows]] = []
        for rows, given in _runs(records, bad):
            given = given.append_column(_TIMES, pa.array(records.rows.timestamps[rows]))
            refused: dict[int, Exception] = {}
            made += judged(given, rows, self._made, _Raised, refused, probe=False)
            bad |= {i: error.error for i, error in refused.items() if isinstance(error, _Raised)}
        set_aside(ctx, records, bad)
        one_for_one = all(len(rows) == len(part) for rows, part in made)
        every = np.concatenate([rows for rows, _ in made]) if made and one_for_one else None
        at = 0
        # Each form separately: the cast of a row to a schema must not depend on other rows.
        for part in Rows.joined([part for _, part in made]):
            causes = None if every is None else every[at : at + len(part)]
            at += len(part)
            columns = pa.Table.from_batches([part.columns])
            ctx.produce_table(columns, timestamp=part.timestamps, causes=causes)

    def _made(self, table: pa.Table) -> Rows:
        times, table = table.column(_TIMES).to_numpy(), table.drop([_TIMES])
        taken, count = TIME in table.schema.names, table.num_rows
        if not taken:
            table = table.append_column(TIME, pa.array(times))
        try:
            made = self.function(table)
        except Exception as error:
            raise _Raised(error) from error
        if isinstance(made, dict):
            made = pa.table(made)
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            made = _of_frame(made)
        if not taken and TIME in made.schema.names:
            times = _times(made.column(TIME))
            made = made.drop([TIME])
        elif made.num_rows != count:
            raise ValueError(
                f"map_table: {count} rows in, {made.num_rows} out: whose time do they "
                "have? Let the function keep the column 'timestamp'"
            )
        return Rows(times, columns=one_batch(made))


def _runs(records: InputRecords, bad: dict[int, Exception]) -> Iterator[tuple[Ints, pa.Table]]:
    """The positions and the table of each run of records of one form."""
    if records.columns is not None:
        yield np.arange(len(records)), pa.Table.from_batches([records.columns])
        return
    shapes: dict[tuple[Any, ...], list[int]] = {}
    for i, value in enumerate(records.values):
        shapes.setdefault(tuple(value), []).append(i)
    codes = np.zeros(len(records), np.int64)
    """The number of each record's form."""
    places = np.zeros(len(records), np.int64)
    """The position of each record among the records with the same columns."""
    of_code: list[Forms] = []
    for names, rows in shapes.items():
        odd = [name for name in names if type(name) is not str]
        if odd:
            error = InvalidRecord(f"a column's name is text, not {shown(odd[0], 80)}")
            bad.update((i, error) for i in rows)
            continue
        values = [records.values[i] for i in rows]
        forms = Forms({n: Kinds([value[n] for value in values]) for n in names})
        bad |= {rows[i]: error for i, error in forms.bad.items()}
        at = np.array(rows)
        places[at] = np.arange(len(rows))
        codes[at] = len(of_code) + (0 if forms.codes is None else forms.codes)
        of_code += [forms] * (1 if forms.codes is None else int(forms.codes.max()) + 1)
    good = np.delete(np.arange(len(records)), list(bad)) if bad else np.arange(len(records))
    for run in np.split(good, np.flatnonzero(np.diff(codes[good])) + 1):
        if len(run):
            yield run, of_code[int(codes[run[0]])].table(places[run])


def _of_frame(made: Any) -> pa.Table:
    """A table of a pandas or Polars frame. A pandas index does not become a column."""
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
    times = stored_form(column)
    if times.null_count or not pa.types.is_int64(times.type):
        raise TypeError(
            f"map_table: the column 'timestamp' is {column.type} with {column.null_count} nulls; "
            "every row has its time there, in microseconds or as an Arrow timestamp"
        )
    return times.to_numpy()
