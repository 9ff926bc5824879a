"""What a file format must be able to do, and how a file is known to be unchanged.

A format knows one file at a time, by positions in it (bytes or rows). Which files
there are, and how they make up splits, is not its business.

Invariants:
- Positions run from 0 to `length`; every record lies between two of them.
- `next_end` and `cuts` return ends of records only, so that any two neighbouring
  ranges together hold the same records as the range that covers both.
- `fingerprint` covers the file's size, its first and last block and, where
  positions are bytes, the first and last block of the range (PROTOCOL A7).
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from headrace.errors import SourceError
from headrace.model.rows import dicts, one_batch
from headrace.model.source import Reading

BLOCK_BYTES = 4096


class FileFormat(ABC):
    """Reads ranges of single files."""

    cut_from: int = 50_000
    """A range lighter than this is not worth a second task."""

    @abstractmethod
    def length(self, path: str) -> int:
        """The position after the last record of a file."""

    def lengths(self, path: str) -> Sequence[int]:
        """Every length that a file may have been noted with; the first is today's."""
        return (self.length(path),)

    @abstractmethod
    def next_end(self, path: str, start: int, records: int) -> tuple[int, int]:
        """Where a range of about `records` records from `start` ends, and how many it holds."""

    @abstractmethod
    def cuts(self, path: str, start: int, end: int, parts: int) -> list[int]:
        """Ends of records inside a range that cut it into at most `parts` like pieces."""

    @abstractmethod
    def read(self, path: str, name: str, start: int, end: int) -> Reading:
        """The records of a range; `name` is for messages."""

    def columns_of(self, path: str) -> Sequence[str] | None:
        """The columns of a file, where they are known without reading it."""
        return None

    def weight(self, path: str, start: int, end: int) -> int:
        """How much work a range is, in the unit of `cut_from`."""
        return end - start

    def fingerprint(self, path: str, start: int, end: int) -> str:
        """Changes when the file changes."""
        with opened(path) as descriptor:
            return fingerprint(descriptor)

    def verify(self, path: str, start: int, end: int, expected: str) -> None:
        """Raises SourceError where a file is not the one that the plan was made from."""
        if self.fingerprint(path, start, end) != expected:
            raise changed(path)


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A descriptor of a file; what the filesystem refuses becomes a SourceError."""
    try:
        # Not blocking: a pipe of that name would be waited for, perhaps for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SourceError(f"{path} is not a regular file and cannot be read: take it away")
        yield descriptor
    except OSError as error:
        raise unreadable(path, error) from error
    finally:
        os.close(descriptor)


def unreadable(path: str, error: Exception) -> SourceError:
    """The error for a file that cannot be opened or decoded."""
    if isinstance(error, FileNotFoundError):
        return SourceError(f"the file {path} is gone, but is not yet read to its end: put it back")
    if isinstance(error, PermissionError):
        return SourceError(f"the file {path} cannot be read: permission denied for this user")
    return SourceError(f"the file {path} cannot be read: {error}")


def changed(path: str) -> SourceError:
    """The error for a file that is not what the plan was made from."""
    return SourceError(
        f"the file {path} has changed since it was first read: "
        "put the old file back, or start a new checkpoint"
    )


def fingerprint(descriptor: int, start: int | None = None, end: int | None = None) -> str:
    """The size of a file and a digest of first and last blocks: of all of it, and of a range."""
    size = os.fstat(descriptor).st_size
    digest = xxhash.xxh3_128()
    places = [0, max(0, size - BLOCK_BYTES)]
    if start is not None and end is not None:
        places += [start, max(start, end - BLOCK_BYTES)]
    for place in places:
        digest.update(os.pread(descriptor, BLOCK_BYTES, place))
    return f"{size}-{digest.hexdigest()}"


def read_bytes(descriptor: int, start: int, end: int) -> bytes:
    """The bytes from `start` to `end`, or to the end of the file."""
    parts = []
    while start < end:
        part = os.pread(descriptor, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def joined(readings: Sequence[Reading]) -> Reading:
    """Readings that follow each other as one."""
    if len(readings) == 1:
        return readings[0]
    whole = Reading(
        positions=np.concatenate([np.empty(0, np.int64), *(r.positions for r in readings)]),
        rejected=[rejected for reading in readings for rejected in reading.rejected],
        text=any(reading.text for reading in readings),
    )
    batches = [reading.columns for reading in readings if reading.columns is not None]
    alike = all(batch.schema.equals(batches[0].schema) for batch in batches)
    if batches and len(batches) == len(readings) and alike:
        whole.columns = one_batch(pa.Table.from_batches(batches))
        return whole
    whole.values = [value for reading in readings for value in _values(reading)]
    return whole


def _values(reading: Reading) -> list[Any]:
    if reading.values is not None:
        return reading.values
    return [] if reading.columns is None else dicts(reading.columns)
