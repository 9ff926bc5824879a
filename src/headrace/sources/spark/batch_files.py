"""Where the rows of micro-batches lie, and how Spark's own checkpoint outlives this process.

On a shared filesystem Spark writes both by itself, and they are synced. A store without paths is
different:

- The rows are written by Spark's workers through the store (`stored_spool`).
- Spark's checkpoint lies in a scratch directory of the driver. Before a micro-batch gets its marker
  the files that are new are put into the store, and the marker names the whole set. A driver that
  starts restores what the last marker names. So only what the winner of a marker has put counts:
  a driver that is paused, and puts other files later, changes nothing.

      spark/<batch>-<digest>      a file of Spark's checkpoint, put before the marker of that batch
"""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.log.content import digest_of
from headrace.sources.files.sequence import Extent
from headrace.sources.spark.query_checkpoint import SparkCheckpoint
from headrace.sources.spark.spool import extents_of, spark_path, sync_files
from headrace.sources.spark.stored_spool import delete_all, spool_frame
from headrace.store.store import Store

SPARK = "spark"


class BatchFiles(ABC):
    """The rows of micro-batches, and the checkpoint of the query that makes them."""

    checkpoint: SparkCheckpoint

    def restore(self, files: Mapping[str, str]) -> None:
        """Prepares Spark's checkpoint as the last marker names it, before the query starts."""

    @abstractmethod
    def write(self, frame: Any, folder: str, base: int) -> list[Extent]:
        """Writes the rows of a micro-batch durably, and says where they lie, from `base` on."""

    @abstractmethod
    def keep_checkpoint(self, batch: int) -> dict[str, str]:
        """Makes Spark's checkpoint durable before the marker of a micro-batch is put.

        Returns its files, each with the name under which it can be restored; none where Spark's
        own files are durable.
        """

    @abstractmethod
    def has(self, folder: str) -> bool:
        """Whether the rows of a micro-batch are there."""

    @abstractmethod
    def delete(self, folder: str) -> None:
        """Deletes the rows of a micro-batch."""

    def close(self) -> None:
        """Called when the query has ended."""


class LocalBatchFiles(BatchFiles):
    """On a filesystem that the driver and all executors share."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.checkpoint = SparkCheckpoint(directory / SPARK)

    def write(self, frame: Any, folder: str, base: int) -> list[Extent]:
        # The frame belongs to the query's private session, so this changes no setting of the user.
        frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        frame.write.parquet(spark_path(self._directory / folder))
        sync_files(self._directory / folder)
        found = extents_of(self._directory, folder, base)
        if not found:
            self.delete(folder)
        return found

    def keep_checkpoint(self, batch: int) -> dict[str, str]:
        self.checkpoint.sync()
        return {}

    def has(self, folder: str) -> bool:
        return (self._directory / folder).is_dir()

    def delete(self, folder: str) -> None:
        shutil.rmtree(self._directory / folder, ignore_errors=True)


class StoredBatchFiles(BatchFiles):
    """In a store without paths."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._scratch = Path(tempfile.mkdtemp(prefix="headrace-query-"))
        self.checkpoint = SparkCheckpoint(self._scratch / SPARK)
        self._kept: dict[str, tuple[tuple[int, int, int], str]] = {}
        """File -> what identifies it on the disk, and its name in the store."""

    def restore(self, files: Mapping[str, str]) -> None:
        for relative, name in files.items():
            path = self.checkpoint.directory / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._store.read(name))
            self._kept[relative] = _identity(path), name

    def write(self, frame: Any, folder: str, base: int) -> list[Extent]:
        return spool_frame(frame, self._store, folder, base)

    def keep_checkpoint(self, batch: int) -> dict[str, str]:
        root, kept = self.checkpoint.directory, {}
        self._store.make_directory(SPARK)
        for path in sorted(root.rglob("*")):
            relative = path.relative_to(root).as_posix()
            # Spark's checksums and incomplete files are hidden.
            if any(part.startswith(".") for part in relative.split("/")):
                continue
            try:
                if not path.is_file():
                    continue
                identity = _identity(path)
                known = self._kept.get(relative)
                if known is None or known[0] != identity:
                    data = path.read_bytes()
                    name = f"{SPARK}/{batch:012d}-{digest_of(data)}"
                    self._store.write(name, data)
                    known = identity, name
            except FileNotFoundError:
                continue  # Spark may delete old files at any time.
            kept[relative] = known
        self._kept = kept
        return {relative: name for relative, (_, name) in kept.items()}

    def has(self, folder: str) -> bool:
        return bool(self._store.list(folder))

    def delete(self, folder: str) -> None:
        delete_all(self._store, folder)

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)


def batch_files(store: Store) -> BatchFiles:
    """The files of micro-batches for a store of either kind."""
    path = store.local_path()
    return StoredBatchFiles(store) if path is None else LocalBatchFiles(Path(path))


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
