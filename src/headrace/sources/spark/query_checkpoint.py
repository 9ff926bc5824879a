"""Spark's own checkpoint of a streaming query, which lies below ours on a local filesystem.

Spark writes it without syncing, so a power loss may undo its writes, or leave a name of an empty
file. We rely on it for one thing: a spooled micro-batch must be delivered again with the same
offsets. So all files are synced before a micro-batch gets its marker, and a file that a power
loss left empty can only be newer than the last marker. It is deleted, with all newer offsets:
Spark plans or delivers those micro-batches again.
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
    """The directory of Spark's checkpoint."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._synced: set[tuple[str, int]] = set()

    def __str__(self) -> str:
        return str(self.directory)

    def query(self) -> str:
        """The id of the query that the checkpoint belongs to; empty before the first start."""
        path = self.directory / "metadata"
        try:
            return str(msgspec.json.decode(path.read_bytes())["id"])
        except FileNotFoundError:
            return ""
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise SourceError(f"Spark's file {path} is damaged ({error})") from None

    def offsets(self, batch: int) -> str:
        """A digest of the offsets at which a micro-batch begins and ends."""
        path = self.directory / "offsets" / str(batch)
        return xxhash.xxh3_128_hexdigest(path.read_bytes()) if path.exists() else ""

    def sync(self) -> None:
        """Syncs all files that Spark has written since the last call."""
        with explained("sync", self.directory):
            if not self._synced:
                sync_directory(self.directory.parent)
            self._synced = set(self._sync_below(str(self.directory)))

    def sweep(self, spooled: int) -> None:
        """Deletes files that a power loss left empty; `spooled` is the last one with a marker."""
        with explained("sweep", self.directory):
            entries = [path for log in _LOGS for path in (self.directory / log).rglob("*")]
            entries = [path for path in entries if _ENTRY.fullmatch(path.name) and path.is_file()]
            void = [path for path in entries if _is_void(path)]
            if void:
                # Offsets that are not spooled yet are deleted too: they may name rows that
                # Spark's source has lost in the same power loss.
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
                continue  # Spark may delete old files at any time.
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
