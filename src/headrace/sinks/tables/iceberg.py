"""`sinks.iceberg`: an Iceberg table; an epoch is one snapshot of the table (protocol N5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from headrace.sinks.columns import TIMES, checked_times
from headrace.sinks.tables.committed import CommittedTable
from headrace.sinks.tables.iceberg_table import TableIn


def iceberg(
    table: str,
    *,
    catalog: str = "default",
    properties: Mapping[str, str] | None = None,
    mode: str = "append",
    partition_by: str | Sequence[str] = (),
    schema: pa.Schema | None = None,
    timestamp: str | None = None,
    times: str | Sequence[str] = TIMES,
    evolve: bool = False,
    shared: bool = False,
) -> CommittedTable:
    """Appends to an Iceberg table, each epoch in one snapshot of the table, exactly once.

    `table` is its name with its namespace, `shop.orders`. `catalog` is the name of a catalog as
    the library, pyiceberg, finds it in its configuration; `properties` are given to it beside
    that, as in `{"type": "rest", "uri": "https://…"}`. They are never shown, nor sent to executors.

    A missing table is created, as by `sinks.delta`, from `schema` or from the first rows, and so
    is its namespace. `partition_by` names columns whose values make the partitions. All other
    options are those of `sinks.delta`.

    Needs `headrace[iceberg]`.
    """
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return CommittedTable(
        "iceberg",
        TableIn(table, catalog, properties or {}, columns),
        mode=mode,
        schema=schema,
        timestamp=timestamp,
        times=checked_times(times, what="sinks.iceberg"),
        evolve=evolve,
        shared=shared,
    )
