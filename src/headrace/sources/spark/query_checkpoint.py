"""Spark's own checkpoint of a streaming query, which lies under ours on a local filesystem.

Spark writes it without syncing, and a power loss may take back what it wrote, or leave a name
with nothing under it. We count on it in one way: a micro-batch that is spooled must come again
with the same offsets. So everything is made durable before a micro-batch gets its marker, and
what is then left empty can only be newer than the last marker. It is deleted, with all offsets
that are newer: Spark plans or delivers those micro-batches again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import xxhash

from headrace.errors import SourceError
from headrace.store.files import explained, sync_directory

_LOGS = ("commits", "offsets", "sources")
_ENTRY = re.compile(r"\d+(\.compact)?")


class SparkCheckpoint:
    """A directory that Spark fills."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._synced: set[tuple[str, int]] = set()

    def __str__(self) -> str:
        return str(self.directory)

    def query(self) -> str:
        """The id of the query that it belongs to; empty before the first start."""
        path = self.directory / "metadata"
        try:
            return str(msgspec.json.decode(path.read_bytes())["id"])
        except FileNotFoundError:
            return ""
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise SourceError(f"Spark's file {path} is damaged ({error})") from None

    def offsets(self, batch: int) -> str:
        """A digest of where a micro-batch begins and ends."""
        path = self.directory / "offsets" / str(batch)
        return xxhash.xxh3_128_hexdigest(path.read_bytes()) if path.exists() else ""

    def sync(self) -> None:
        """Makes durable what has been written since the last time."""
        with explained("sync", self.directory):
            if not self._synced:
                sync_directory(self.directory.parent)
            self._synced = set(self._sync_below(str(self.directory)))

    def sweep(self, spooled: int) -> None:
        """Deletes what a power loss has left empty; micro-batches up to `spooled` have markers."""
        with explained("sweep", self.directory):
            entries = [path for log in _LOGS for path in (self.directory / log).rglob("*")]
            entries = [path for path in entries if _ENTRY.fullmatch(path.name) and path.is_file()]
            void = [path for path in entries if _is_void(path)]
            if void:
                # Offsets may name what its source has lost. Their rows are not spooled yet.
                offsets = [path for path in entries if path.parent == self.directory / "offsets"]
                void += [path for path in offsets if int(path.stem) > spooled and path not in void]
            for path in void:
                path.unlink()
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def _sync_below(self, directory: str) -> Iterator[tuple[str, int]]:
        with os.scandir(directory) as entries:
            found = list(entries)
        is_new = False
        for entry in found:
            # Spark renames every file to its name, so one that was rewritten is another inode.
            key = entry.path, entry.inode()
            is_new |= key not in self._synced
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from self._sync_below(entry.path)
                elif key not in self._synced:
                    _sync(entry.path)
            except FileNotFoundError:
                continue  # Spark deletes what is old whenever it likes.
            yield key
        if is_new:
            sync_directory(directory)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_void(path: Path) -> bool:
    """Whether a file has lost its content: some filesystems leave it empty, others full of 0."""
    with path.open("rb") as file:
        return not file.read(64).strip(b"\0")
