"""`sinks.delta`: a Delta Lake table; an epoch is one commit of the table (protocol N5).

The epoch is the version of an application transaction, in the table's own log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa

from headrace.sinks.columns import TIMES, checked_times
from headrace.sinks.tables.committed import CommittedTable
from headrace.sinks.tables.delta_table import TableAt


def delta(
    path: str | os.PathLike[str],
    *,
    mode: str = "append",
    partition_by: str | Sequence[str] = (),
    schema: pa.Schema | None = None,
    timestamp: str | None = None,
    times: str | Sequence[str] = TIMES,
    evolve: bool = False,
    shared: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> CommittedTable:
    """Appends to a Delta Lake table, each epoch in one commit of the table, exactly once.

    `path` is a directory, or a URL (`s3://`, `gs://`, `az://`). `storage_options` go to the
    library, deltalake, as they are; they are never shown, nor sent to executors.

    A missing table is created from `schema`, or from the rows of the first epoch that has any,
    with `partition_by`. Later rows must fit its columns: a new column is an error, or, with
    `evolve`, is added to the table. With a `schema`, rows that do not fit are refused before their
    epoch is committed. `timestamp` names a column for the record's own timestamp. New columns that
    `times` names become timestamps if they hold integers, which are microseconds since 1970. A
    table that a sink has created belongs to its checkpoint, unless both say `shared`.

    Needs `headrace[delta]`.
    """
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return CommittedTable(
        "delta",
        TableAt(path, storage_options or {}, columns),
        mode=mode,
        schema=schema,
        timestamp=timestamp,
        times=checked_times(times, what="sinks.delta"),
        evolve=evolve,
        shared=shared,
    )
