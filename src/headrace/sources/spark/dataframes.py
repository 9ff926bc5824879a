"""`sources.dataframe`: any DataFrame, bounded ones spooled once as Parquet.

A bounded frame is written into the source's workspace when the pipeline first starts, and is
always read from there: a restart reads the existing spool, so a frame that has changed since has
no effect. A notice reports such a change, found by a digest of the frame that is stored beside
the spool. (Spark would have to run a Spark frame to compare it; that is done only where the spool
has been read to its end.)

1. Write all files into a directory with a random name, and sync them.
2. Put the marker that names the directory. If two drivers do this, both use the first marker. In a
   store without paths it names every object, too (`stored_spool`).
3. Only then plan any position in the spool.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from headrace.errors import InvalidPipeline, SourceError
from headrace.model.source import Change, Range, Seen, Source, Timing, Workspace
from headrace.model.values.names import known_options
from headrace.model.values.time import Duration
from headrace.sources.files.parquet_rows import ParquetFormat
from headrace.sources.files.sequence import (
    Extent,
    SequenceSource,
    decode_extents,
    encode_extents,
)
from headrace.sources.options import TIMING_OPTIONS, TimingOptions
from headrace.sources.spark.spool import extents_of, spark_path, spool_directory, sync_files
from headrace.sources.spark.stored_spool import (
    ROW_GROUP_RECORDS,
    delete_all,
    spool_frame,
    spool_table,
)
from headrace.sources.spark.streaming import StructuredSource
from headrace.store.files import make_directory
from headrace.store.store import Store

MARKER = "complete"


@known_options("sources.dataframe", TIMING_OPTIONS)
def dataframe(
    frame: Any,
    *,
    available_now: bool = False,
    every: Duration | None = None,
    ahead: int = 4,
    **timing: Unpack[TimingOptions],
) -> Source:
    """The rows of a pandas, Polars, Arrow or Spark DataFrame, in its order, as one split.

    A bounded frame is copied into the checkpoint once; a restart reads the copy. A streaming
    Spark frame (Structured Streaming) runs as a query of its own, and every micro-batch is
    copied before it is read; for those only:

    - `available_now=True`: the source ends when the rows available at the start are read.
    - `every`: the minimum time between two micro-batches.
    - `ahead`: how many micro-batches may wait to be processed before the query is paused.
    """
    kind = _kind(frame)
    if kind == "spark" and frame.isStreaming:
        return StructuredSource(
            frame, Timing(**timing), available_now=available_now, every=every, ahead=ahead
        )
    if available_now or every is not None:
        raise InvalidPipeline(
            "sources.dataframe: available_now= and every= are for streaming Spark frames only"
        )
    return DataFrameSource(frame, kind, Timing(**timing))


class DataFrameSource(SequenceSource):
    """A bounded frame, read from its spool."""

    split = "dataframe"

    def __init__(self, frame: Any, kind: str, timing: Timing) -> None:
        super().__init__(ParquetFormat(), timing)
        self.kind = kind
        self._frame = frame
        self._spark: Any = None
        self._spooled = ""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_frame": None, "_spark": None, "_spooled": ""}

    def prepare(self, workspace: Workspace) -> None:
        store, path = workspace.store, workspace.store.local_path()
        store.make_directory("")
        if not _has_marker(store):
            name, extents = f"spool-{secrets.token_hex(8)}", b""
            if path is None:
                extents = b" " + encode_extents(self._spool_stored(store, name))
            else:
                self._spool(Path(path) / name)
            store.put_if_absent(MARKER, f"{name} {self._digest()}".encode() + extents)
        self.look(workspace)
        for orphan in store.list(""):
            if orphan.startswith("spool-") and orphan != os.path.basename(self.root):
                if path is not None:
                    shutil.rmtree(Path(path) / orphan, ignore_errors=True)
                else:
                    delete_all(store, orphan)

    def look(self, workspace: Workspace) -> None:
        store = workspace.store
        name, _, rest = store.read(MARKER).partition(b" ")
        digest, _, extents = rest.partition(b" ")
        self._spooled = digest.decode()
        self._spark = workspace.spark
        if extents:
            self.root, self.store = name.decode(), store
            self.extents = decode_extents(extents)
        else:
            self.root, self.store = str(spool_directory(store) / name.decode()), None
            self.extents = extents_of(self.root, "", 0)

    def remembered(self, split: str, range: Range, seen: dict[str, Seen]) -> dict[str, Seen]:
        return {"": Seen(range.end, since=range.start, read=range.end, whole=range.last)}

    def parts(self) -> Iterable[tuple[str, str]]:
        return ((self.split, ""),)

    def compare(self, split: str, name: str, seen: Seen, *, closely: bool) -> Seen | Change | None:
        if not closely or self._frame is None:
            return seen
        what = "the frame given to sources.dataframe"
        try:
            if self.kind == "spark":
                # Spark cannot read a copy that has no path, so it is not compared.
                alike = not seen.whole or self.store is not None or self._is_spooled()
            else:
                alike = self._digest() == self._spooled
        except Exception as error:  # the source reads the copy, so this failure is only a notice
            how = f"cannot be compared with its copy any more ({str(error)[:200].splitlines()[0]})"
            return Change(what, how, "the copy in the checkpoint is read", told_only=True)
        if alike:
            return seen
        how = "has other rows than when it was copied into the checkpoint, and the copy is read"
        undo = "a new checkpoint reads the frame as it is now"
        return Change(what, how, undo, told_only=True)

    def _digest(self) -> str:
        """A digest of the rows of a frame that lies in memory."""
        if self.kind == "spark":
            return ""
        digest = xxhash.xxh3_128()
        table = _arrow(self._frame, self.kind).combine_chunks()
        digest.update(table.schema.to_string(show_field_metadata=False).encode())
        for batch in table.to_batches():
            digest.update(batch.serialize())
        return digest.hexdigest()

    def _is_spooled(self) -> bool:
        """Whether Spark finds the same rows in its frame as in the copy, in any order."""
        from pyspark.sql import functions as f

        spooled = self._spark.read.parquet(spark_path(self.root))
        if self._frame.columns != spooled.columns:
            return False
        sums = []
        for frame in (self._frame, spooled):
            columns = [f.col("`" + name.replace("`", "``") + "`") for name in frame.columns]
            # Spark cannot hash a map, but can convert every value to text.
            has_maps = "map<" in frame.schema.simpleString()
            row = f.xxhash64(f.to_json(f.struct(*columns)) if has_maps else f.struct(*columns))
            rows = frame.select(row.cast("decimal(38,0)").alias("row"))
            sums.append(rows.agg(f.count("*"), f.sum("row")).collect()[0])
        return bool(sums[0] == sums[1])

    def columns(self) -> Sequence[str] | None:
        found = getattr(self._frame, "column_names", None)  # Arrow's `columns` are arrays
        found = getattr(self._frame, "columns", None) if found is None else found
        return None if found is None else [str(name) for name in found]

    def refresh(self) -> bool:
        return True

    def describe(self) -> str:
        return f"dataframe({self.kind})"

    def _spool_stored(self, store: Store, folder: str) -> list[Extent]:
        frame = self._given_frame()
        if self.kind == "spark":
            return spool_frame(frame, store, folder)
        return spool_table(_arrow(frame, self.kind), store, folder)

    def _given_frame(self) -> Any:
        if self._frame is None:
            raise SourceError(
                "sources.dataframe was pickled before it was prepared, and lost its frame: "
                "start the pipeline in the process that made the frame"
            )
        return self._frame

    def _spool(self, directory: Path) -> None:
        self._given_frame()
        if self.kind == "spark":
            self._frame.write.parquet(spark_path(directory))
        else:
            make_directory(directory)
            table = _arrow(self._frame, self.kind)
            pq.write_table(table, directory / "rows.parquet", row_group_size=ROW_GROUP_RECORDS)
        sync_files(directory)


def _has_marker(store: Store) -> bool:
    try:
        store.read(MARKER)
    except FileNotFoundError:
        return False
    return True


def _kind(frame: Any) -> str:
    """Which library a frame comes from, found without importing any."""
    module = type(frame).__module__.split(".")[0]
    known = {"pandas": "pandas", "polars": "polars", "pyarrow": "arrow", "pyspark": "spark"}
    if module in known and type(frame).__name__ in (
        "DataFrame", "LazyFrame", "Table", "RecordBatch",
    ):  # fmt: skip
        return known[module]
    if hasattr(frame, "__arrow_c_stream__"):
        return "arrow"
    raise InvalidPipeline(
        "sources.dataframe takes a pandas, Polars, Arrow or Spark DataFrame, not "
        f"{type(frame).__name__}; for a list of values use sources.memory"
    )


def _arrow(frame: Any, kind: str) -> pa.Table:
    try:
        if kind == "pandas":
            table = pa.Table.from_pandas(frame, preserve_index=False)
            table = table.replace_schema_metadata(None)
        elif kind == "polars":
            table = (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
        else:
            table = pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SourceError(
            f"the {kind} frame cannot be turned into Arrow columns: {error}"
        ) from error
    return table.cast(pa.schema([_plain(field) for field in table.schema]))


def _plain(field: pa.Field) -> pa.Field:
    """A field of a simpler type that the rest of the engine handles fast."""
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        kind = pa.binary()
    return field.with_type(kind)
