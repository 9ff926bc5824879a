"""Combines records before the shuffle: fewer rows are sent, and a hot key makes no hot slot.

If a computation has `combine_table` beside `process_table`, it runs here over the rows that a
task produced for the computation. Windows combine the records that they accept, as they are
(`combine_rows`). The late policy is applied here, by the same committed watermark, because a
combined row has no single time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import HeadraceError, UserCodeError
from headrace.model.values.arrow import one_batch
from headrace.model.values.rows import Rows, with_own
from headrace.operators.columns.records import Records, Refuse
from headrace.pipeline.graph.graph import Node
from headrace.plan.parcel import Parcel
from headrace.worker.runtime import Live
from headrace.worker.watching.tracebacks import describe


def combine(live: Live, parcel: Parcel, refuse: Refuse) -> Parcel:
    """The parcel with combined rows. `refuse` gets the records that cannot be combined."""
    if live.shape.combines_rows:
        return _combine_rows(live, parcel, refuse)
    table = value_table(live.node, parcel.rows)
    time = time_column(table)
    for name in ("key_index", time):
        if name in table.schema.names:
            raise reserved_name_error(live.node, name)
    table = with_own(table, "key_index", pa.array(parcel.codes, pa.int32()))
    table = with_own(table, time, parcel.rows.timestamps)
    obj = live.object_class.__new__(live.object_class)
    try:
        made = obj.combine_table(table)
        if isinstance(made, dict):
            made = pa.table(made)
        codes = made.column("key_index").to_numpy().astype(np.int32)
        return Parcel(parcel.keys, codes, _rows(made, codes, parcel))
    except Exception as error:
        what = f"combine_table over {table.num_rows:,} records"
        raise UserCodeError(describe(live.node, None, what, error, table=True)) from error


def _combine_rows(live: Live, parcel: Parcel, refuse: Refuse) -> Parcel:
    obj: Any = live.object_class.__new__(live.object_class)
    try:
        codes, rows = obj.combine_rows(Records(parcel.rows, parcel.codes), refuse)
        return Parcel(parcel.keys, codes.astype(np.int32), rows)
    except HeadraceError:
        raise  # the error policy stops the run
    except Exception as error:
        what = f"combining {len(parcel.rows):,} records"
        raise UserCodeError(describe(live.node, None, what, error, table=True)) from error


def reserved_name_error(node: Node, name: str) -> UserCodeError:
    """The error for a user's column whose name the engine needs."""
    return UserCodeError(
        f"computation {node.name!r}: the records have a column {name!r}, the name under which "
        "tables hold what belongs to the record itself: rename it before, with select or map"
    )


def _rows(made: pa.Table, codes: np.ndarray[Any, Any], parcel: Parcel) -> Rows:
    if "timestamp" in made.schema.names:
        times = made.column("timestamp").to_numpy().astype(np.int64)
    else:
        newest = np.zeros(len(parcel.keys), np.int64)
        np.maximum.at(newest, parcel.codes, parcel.rows.timestamps)
        times = newest[codes]
    names = [name for name in made.schema.names if name not in ("key_index", "timestamp")]
    return Rows(times, columns=one_batch(made.select(names)))


def time_column(table: pa.Table) -> str:
    """The name of the column with the records' times, beside the value columns."""
    return "timestamp" if "timestamp" not in table.schema.names else "record_timestamp"


def value_table(node: Node, rows: Rows) -> pa.Table:
    """The values of rows as columns."""
    if rows.columns is not None:
        return pa.Table.from_batches([rows.columns])
    return _packed_table(node, rows.values())


def _packed_table(node: Node, values: list[Any]) -> pa.Table:
    """One column per name that occurs in any of the dicts; other values as one column `value`."""
    if values and all(isinstance(value, dict) for value in values):
        names = dict.fromkeys(name for value in values for name in value)
        columns = {name: [value.get(name) for value in values] for name in names}
    else:
        columns = {"value": values}
    arrays: dict[str, pa.Array] = {}
    for name, cells in columns.items():
        try:
            if type(name) is not str:
                raise TypeError("the names of columns are text")
            arrays[name] = pa.array(cells)
        except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
            raise UserCodeError(
                f"computation {node.name!r}: the values of {name!r} do not fit one Arrow column "
                f"({error}); use process_record, or make them alike before, with map or a schema"
            ) from None
    return pa.table(arrays)
