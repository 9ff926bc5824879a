"""Parquet files, optionally in one directory per value of some columns (`partition_by`).

With `partition_by`, one producer's rows make several files. They are staged as one part: a magic
number, then a MessagePack list of (directory, bytes). The magic number decides how a staged part
is read, so an epoch that was staged with other options is still delivered.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import InvalidPipeline, SinkError
from headrace.model.sink import EncodedFile, Sink
from headrace.model.values.rows import Rows
from headrace.sinks.columns import TIMES, as_batch, check_schema, checked_times
from headrace.sinks.places import Place, file_sink
from headrace.sinks.row_format import RowFormat

MAGIC = b"\x00HRPQ\x00\x00\x01"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
COMPONENT_BYTES_MAX = 255

# Spark unquotes byte by byte, so characters beyond ASCII stay as they are.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
_PARTITION_TYPES = (str, bool, int, float, datetime.date, datetime.datetime)


def parquet(
    path: Place,
    *,
    partition_by: str | Sequence[str] = (),
    compression: str = "zstd",
    schema: pa.Schema | None = None,
    timestamp: str | None = None,
    times: str | Sequence[str] = TIMES,
    group_mb: float | None = None,
    group_within: str = "10m",
) -> Sink:
    """Writes `path/epoch=…/part-….parquet`, or `path/epoch=…/day=…/part-….parquet`.

    `path` may be a URL, as in `jsonl`; files are then `data/….parquet`, or `data/day=…/….parquet`.

    Columns are the stream's Arrow columns, or inferred from the dicts of each file, or those of
    `schema`: give a schema where readers need the same types in every file. When columns are
    inferred, a value that is not a dict is put into a column `value`, and a column that is None
    throughout a file is left out of it. `timestamp` names a column for the record's own timestamp.

    That column, and those that `times` names, become timestamps (microseconds, UTC) if they hold
    integers: without a `times`, the bounds of windows do. `times=()` leaves all of them integers,
    microseconds since 1970. Columns of a `schema` have its types, in its unit. Columns of
    `partition_by` stay as they are.

    `group_mb` and `group_within` are as in `jsonl`: several epochs appear together.
    """
    rows = ParquetRows(
        partition_by=partition_by,
        compression=compression,
        schema=schema,
        timestamp=timestamp,
        times=times,
    )
    return file_sink(rows, path, group_mb=group_mb, group_within=group_within)


class ParquetRows(RowFormat):
    """Columns, optionally in one file per value of some of them."""

    suffix = ".parquet"

    def __init__(
        self,
        *,
        partition_by: str | Sequence[str] = (),
        compression: str = "zstd",
        schema: pa.Schema | None = None,
        timestamp: str | None = None,
        times: str | Sequence[str] = TIMES,
    ) -> None:
        self.partition_by = (
            (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        )
        self.has_directories = bool(self.partition_by)
        self.compression = compression.lower()
        self.schema = schema
        self.timestamp = timestamp
        chosen = checked_times(times, what="sinks.parquet")
        if chosen and timestamp is not None:
            chosen += (timestamp,)
        self.times = tuple(name for name in chosen if name not in self.partition_by)
        check_schema(schema, what="sinks.parquet")
        _check_options(self.partition_by, self.compression)

    def encode(self, rows: Rows) -> bytes:
        if not len(rows):
            return b""
        files = self.encode_files(rows)
        if not self.partition_by:
            return files[0].data
        return MAGIC + msgspec.msgpack.encode([(file.directory, file.data) for file in files])

    def encode_files(self, rows: Rows) -> list[EncodedFile]:
        batch = as_batch(rows, timestamp=self.timestamp, schema=self.schema, times=self.times)
        if not self.partition_by:
            return [EncodedFile("", self.suffix, self._file(batch), len(rows))]
        if absent := set(self.partition_by) - set(batch.schema.names):
            raise SinkError(f"rows have no column {min(absent)!r}, which partition_by= names")
        kept = [name for name in batch.schema.names if name not in self.partition_by]
        if not kept:
            raise SinkError("rows have no columns besides those of partition_by=")
        files = []
        for directory, indices in partitions(batch, self.partition_by):
            data = self._file(batch.select(kept).take(pa.array(indices)))
            files.append(EncodedFile(directory, self.suffix, data, len(indices)))
        return files

    def is_split(self, head: bytes) -> bool:
        return head == MAGIC

    def split(self, data: bytes) -> list[tuple[str, bytes]]:
        try:
            return msgspec.msgpack.decode(data[len(MAGIC) :], type=list[tuple[str, bytes]])
        except msgspec.DecodeError as error:
            raise SinkError(f"a staged part is damaged: {error}") from error

    def _file(self, batch: pa.RecordBatch) -> bytes:
        table = pa.Table.from_batches([_typed(batch)]).replace_schema_metadata(None)
        out = pa.BufferOutputStream()
        try:
            pq.write_table(table, out, compression=self.compression)
        except pa.ArrowException as error:
            raise SinkError(f"rows cannot be written as Parquet: {error}") from error
        return out.getvalue().to_pybytes()


def _typed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drops columns of type null. Parquet would store these as INT32, and Spark would refuse the
    file beside others that have text in that column; it reads a missing column as nulls."""
    kept = [field.name for field in batch.schema if not pa.types.is_null(field.type)]
    return batch.select(kept) if kept else batch


def partitions(
    batch: pa.RecordBatch, names: Sequence[str]
) -> list[tuple[str, np.ndarray[Any, np.dtype[np.int64]]]]:
    """(directory, indices of its rows) for each combination of values, in order of directories."""
    directories = [""] * batch.num_rows
    for name in names:
        cells = batch.column(name).to_pylist()
        components: dict[Any, str] = {}
        for row, cell in enumerate(cells):
            # A column has one type, so 1, 1.0 and True cannot meet as keys of this dict.
            try:
                component = components[cell]
            except (KeyError, TypeError):
                component = partition_component(name, cell)
                components[cell] = component
            directories[row] = f"{directories[row]}/{component}" if directories[row] else component
    found, where = np.unique(np.array(directories, dtype=object), return_inverse=True)
    order = np.argsort(where, kind="stable")
    runs = np.split(order, np.cumsum(np.bincount(where, minlength=len(found)))[:-1])
    return list(zip(found.tolist(), runs, strict=True))


def partition_component(name: str, value: Any) -> str:
    """`name=value` as the name of a directory, encoded as Hive does."""
    if value is not None and not isinstance(value, _PARTITION_TYPES):
        raise SinkError(
            f"column {name!r} holds a {type(value).__name__}, which cannot name a directory: "
            "partition by text, numbers or dates"
        )
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if value is None or text == "":
        text = NO_VALUE
    component = f"{_quoted(name)}={_quoted(text)}"
    if len(component.encode()) > COMPONENT_BYTES_MAX:
        raise SinkError(
            f"column {name!r} holds a value too long to name a directory: {text[:60]!r}…"
        )
    return component


def _quoted(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _check_options(partition_by: Sequence[str], compression: str) -> None:
    for name in partition_by:
        if name.startswith(("_", ".")) or name in ("", "epoch"):
            raise InvalidPipeline(
                f"sinks.parquet: partition_by={name!r} would make directories that readers "
                "skip or take for epochs: rename the column"
            )
    if len(set(partition_by)) != len(partition_by):
        raise InvalidPipeline("sinks.parquet: partition_by= names a column twice")
    known = compression == "none" or (
        compression in ("snappy", "gzip", "brotli", "lz4", "zstd")
        and pa.Codec.is_available(compression)
    )
    if not known:
        raise InvalidPipeline(
            f"sinks.parquet: compression={compression!r} is unknown here: "
            "use zstd, snappy, gzip, brotli, lz4 or none"
        )
