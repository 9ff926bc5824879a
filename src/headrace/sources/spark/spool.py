"""The spool: rows of a DataFrame as Parquet files of our own, kept until they are committed.

Here it lies on a filesystem that the driver and all executors share (`Store.local_path`): Spark
writes the files itself, and tasks read them by path. `stored_spool` is for other stores. In both
cases the markers that name the valid files are ordinary files of the store.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.errors import SourceError
from headrace.sources.files.input_file import LocalFile
from headrace.sources.files.parquet_rows import footer
from headrace.sources.files.sequence import Extent
from headrace.store.files import explained, sync_directory
from headrace.store.store import Store


def spool_directory(store: Store) -> Path:
    """The directory of a source's workspace, for Spark to write to; SourceError without one."""
    path = store.local_path()
    if path is None:
        raise SourceError(
            f"the rows that sources.dataframe has copied into {store.where()} were written when it "
            "was a directory of a filesystem, and now it has no path: start a new checkpoint"
        )
    return Path(path)


def extents_of(root: str | Path, folder: str, base: int) -> list[Extent]:
    """The places of the Parquet files in a folder that hold rows, in the order of their names."""
    found: list[Extent] = []
    for name in sorted(os.listdir(os.path.join(root, folder))):
        if name.startswith((".", "_")):
            continue  # Spark's checksums and its `_SUCCESS` file.
        place = os.path.join(folder, name)
        rows = int(footer(LocalFile(os.path.join(root, place))).ends[-1])
        if rows:
            found.append(Extent(place, base, rows))
            base += rows
    return found


def sync_files(directory: str | Path) -> None:
    """Makes the files of a directory and their names durable, also files of other processes."""
    with explained("sync", directory):
        for name in os.listdir(directory):
            descriptor = os.open(os.path.join(directory, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(directory)
        sync_directory(Path(directory).parent)


def spark_path(path: str | Path) -> str:
    """A local path for Spark, whatever its default filesystem is."""
    # Not as_uri(): Hadoop would take its percent signs literally.
    return f"file://{Path(path).absolute()}"
