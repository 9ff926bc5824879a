"""Times in delivered rows, as the numbers that the input has."""

from __future__ import annotations

import pyarrow as pa


def times_as_numbers(rows: pa.Table) -> pa.Table:
    """Rows whose timestamps are microseconds since 1970."""
    for number, column in enumerate(rows.schema):
        if pa.types.is_timestamp(column.type):
            times = rows.column(number).cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
            rows = rows.set_column(number, column.name, times)
    return rows
