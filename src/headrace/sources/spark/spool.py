"""Parquet files of our own: rows that came from elsewhere, kept until they are settled."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.sources.files.parquet_rows import footer
from headrace.sources.files.sequence import Extent
from headrace.store.files import explained, sync_directory


def extents_of(root: str | Path, folder: str, base: int) -> list[Extent]:
    """The places of the Parquet files in a folder that hold rows, in the order of their names."""
    found: list[Extent] = []
    for name in sorted(os.listdir(os.path.join(root, folder))):
        if name.startswith((".", "_")):
            continue  # Spark's checksums and its mark of success.
        place = os.path.join(folder, name)
        rows = int(footer(os.path.join(root, place)).ends[-1])
        if rows:
            found.append(Extent(place, base, rows))
            base += rows
    return found


def sync_files(directory: str | Path) -> None:
    """Makes the files of a directory durable, whoever wrote them, and their names."""
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
