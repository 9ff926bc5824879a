"""The spool of a frame in a store that has no paths: an object store, or memory.

Spark cannot write there by itself, so its workers do, through the store: every partition becomes
Parquet objects under a prefix with a random part. A task may run twice, and the objects of the try
that Spark gave up stay there. So the marker of the spool names every object that counts
(`dataframes`, `micro_batches`), and nothing else of the prefix is ever read.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.sources.files.sequence import Extent
from headrace.store.store import Store

ROW_GROUP_RECORDS = 128 * 1024
FILE_BYTES = 64 * 1024 * 1024
"""About how large an object becomes, as Arrow in memory."""
_SCHEMA = "partition int, number int, name string, rows long"


def spool_table(table: pa.Table, store: Store, folder: str) -> list[Extent]:
    """Writes a table that lies in memory, and says where its rows lie."""
    if not table.num_rows:
        return []
    name = f"{folder}/rows.parquet"
    store.make_directory(folder)
    store.write(name, _parquet(table))
    return [Extent(name, 0, table.num_rows)]


def spool_frame(frame: Any, store: Store, folder: str, base: int = 0) -> list[Extent]:
    """Lets Spark's workers write a frame, and says where its rows lie, in its order."""
    store.make_directory(folder)
    written = frame.mapInArrow(SpoolWriter(store, folder), _SCHEMA).collect()
    extents: list[Extent] = []
    for row in sorted(written, key=lambda row: (row["partition"], row["number"])):
        extents.append(Extent(row["name"], base, row["rows"]))
        base += row["rows"]
    return extents


def delete_all(store: Store, folder: str) -> None:
    """Deletes a folder of objects that nothing reads any more."""
    store.delete_all([info.name for info in store.walk(folder) if info is not None])
    store.remove_directory(folder)


class SpoolWriter:
    """Runs in a worker: writes the rows of one partition, and gives the names of the objects."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        for number, table in enumerate(_tables(batches)):
            name = f"{self._folder}/{partition:06d}-{number:06d}-{secrets.token_hex(4)}.parquet"
            self._store.write(name, _parquet(table))
            row = {"partition": partition, "number": number, "name": name, "rows": table.num_rows}
            yield pa.RecordBatch.from_pylist([row], _ARROW_SCHEMA)


_ARROW_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("number", pa.int32()),
        ("name", pa.string()),
        ("rows", pa.int64()),
    ]
)


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together to tables of about `FILE_BYTES`."""
    kept: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            kept.append(batch)
            size += batch.nbytes
        if size >= FILE_BYTES:
            yield pa.Table.from_batches(kept)
            kept, size = [], 0
    if kept:
        yield pa.Table.from_batches(kept)


def _parquet(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out, row_group_size=ROW_GROUP_RECORDS, write_page_checksum=True)
    return out.getvalue().to_pybytes()
