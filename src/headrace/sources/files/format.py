"""The contract of a file format, and how a change of a file is detected.

A format knows one file at a time, by positions in it (bytes or rows). It must not know which
files exist, nor how they make up splits.

Invariants:
- Positions run from 0 to `length`; every record lies between two of them.
- `next_end` and `cuts` return ends of records only, so that any two neighbouring
  ranges together hold the same records as the range that covers both.
- `fingerprint` covers the file's size, its first and last block and, where
  positions are bytes, the first and last block of the range (protocol A7).
- `read` digests what it reads, and `sum_of` computes the same sum, however the file
  was cut into ranges: a block counts for the range in which it ends.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from headrace.errors import SourceError
from headrace.model.source import Change, Reading, Seen, digest_of_sum
from headrace.model.values.arrow import dicts, one_batch

BLOCK_BYTES = 4096


class Stamp(NamedTuple):
    """What identifies the present content of a file without reading all of it."""

    size: int
    time_ns: int
    ends: str


class FileFormat(ABC):
    """Reads ranges of single files."""

    cut_from: int = 50_000
    """A range of less weight than this is not worth a second task."""
    sum_bytes: int = 64 * 1024
    """The length of the blocks whose digests are added up."""

    @abstractmethod
    def length(self, path: str) -> int:
        """The position after the last record of a file."""

    def lengths(self, path: str) -> Sequence[int]:
        """Every length that a layout may have recorded for a file; the first is the present one."""
        return (self.length(path),)

    @abstractmethod
    def next_end(self, path: str, start: int, records: int) -> tuple[int, int]:
        """Where a range of about `records` records from `start` ends, and how many it holds."""

    @abstractmethod
    def cuts(self, path: str, start: int, end: int, parts: int) -> list[int]:
        """Ends of records inside a range that cut it into at most `parts` pieces of like size."""

    @abstractmethod
    def read(self, path: str, name: str, start: int, end: int) -> Reading:
        """The records of a range, with its digests; `name` is for messages."""

    @abstractmethod
    def sum_of(self, path: str, end: int) -> tuple[str, str]:
        """`Seen.digest` and `Seen.tail` of all ranges up to `end` together."""

    def resumed(self, path: str, position: int) -> int:
        """The first position at or after `position` at which a record begins, or the end."""
        return min(position, self.length(path))

    def columns_of(self, path: str) -> Sequence[str] | None:
        """The columns of a file, where they are known without reading it."""
        return None

    def weight(self, path: str, start: int, end: int) -> int:
        """The amount of work of a range, in the unit of `cut_from`."""
        return end - start

    def fingerprint(self, path: str, start: int, end: int) -> str:
        """Changes when the file changes."""
        with open_file(path) as descriptor:
            return fingerprint(descriptor)

    def seen(self, path: str, name: str, start: int, end: int, expected: str) -> Reading:
        """`read`, after checking that the file is as planned; `Seen` describes what was read."""
        before = stamp_of(path)
        self.verify(path, start, end, expected)
        reading = self.read(path, name, start, end)
        if stamp_of(path) != before:
            raise changed_error(path)
        whole = end in self.lengths(path)
        reading.seen = {"": Seen(*before, reading.sum, reading.tail, start, end, whole)}
        return reading

    def compare(self, path: str, seen: Seen, *, closely: bool) -> Seen | Change | None:
        """Compares a file with what was read of it; None where the file is missing."""
        try:
            now = os.stat(path)
            if closely or (now.st_size, now.st_mtime_ns) != (seen.size, seen.time_ns):
                return self._compare(path, seen)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise unreadable_error(path, error) from error
        return seen

    def _compare(self, path: str, seen: Seen) -> Seen | Change:
        now = stamp_of(path)
        if now.size != seen.size:
            how = "grown" if now.size > seen.size else "shrunk"
            return _change(path, f"has {how} from {seen.size:,} to {now.size:,} bytes")
        if now.ends != seen.ends:
            return _change(path, "was rewritten")
        if now.time_ns != seen.time_ns and seen.digest and not seen.since:
            # The file was written to, or replaced by a copy: only its bytes can show which.
            digest, tail = self.sum_of(path, seen.read)
            alike = digest.partition("/")[2] == seen.digest.partition("/")[2]
            if alike and (digest, tail) != (seen.digest, seen.tail):
                return _change(path, "was rewritten")
        return msgspec.structs.replace(seen, time_ns=now.time_ns)

    def accepted(self, path: str, seen: Seen) -> Seen:
        """What counts as read of a changed file: all of it, or the part that was read."""
        now = stamp_of(path)
        length = self.length(path)
        read = length if seen.whole else self.resumed(path, seen.read)
        return Seen(*now, *self.sum_of(path, read), 0, read, read >= length)

    def verify(self, path: str, start: int, end: int, expected: str) -> None:
        """Raises SourceError where a file has changed since the plan was made."""
        if self.fingerprint(path, start, end) != expected:
            raise changed_error(path)


@contextmanager
def open_file(path: str) -> Iterator[int]:
    """Opens a file and gives its descriptor; an error of the filesystem becomes a SourceError."""
    try:
        # Not blocking: opening a pipe of that name could wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise unreadable_error(path, error) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SourceError(f"{path} is not a regular file and cannot be read: remove it")
        yield descriptor
    except OSError as error:
        raise unreadable_error(path, error) from error
    finally:
        os.close(descriptor)


def has_bytes(path: str) -> bool:
    """Whether a file exists and is not empty: an empty file may still be filled."""
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False
    except PermissionError as error:  # for other errors the run decides whether they are transient
        raise unreadable_error(path, error) from error


def unreadable_error(path: str, error: Exception) -> SourceError:
    """The error for a file that cannot be opened or decoded."""
    if isinstance(error, FileNotFoundError):
        return SourceError(f"the file {path} is missing and not yet read to its end: put it back")
    if isinstance(error, PermissionError):
        return SourceError(f"the file {path} cannot be read: permission denied for this user")
    return SourceError(f"the file {path} cannot be read: {error}")


def changed_error(path: str) -> SourceError:
    """The error for a file that has changed since the plan was made."""
    return SourceError(
        f"the file {path} has changed since it was first read: put the old file back; or start "
        f"with --accept-changed {path} (accept_changed= in Python): reading then goes on at the "
        "old position of the new file; or start a new checkpoint"
    )


def moved_error(path: str) -> SourceError:
    """The error for a file whose length has changed, where other files follow it in its split."""
    return SourceError(
        f"the file {path} has changed: it is not as long as when it was first seen, and has its "
        "place among the files of one split (ordered_by_name=True). Put the old file back, or "
        "start a new checkpoint; such a change can be accepted only of a file read to its end"
    )


def _change(path: str, how: str) -> Change:
    return Change(f"the file {path}", how, "put the old file back", path)


def stamp_of(path: str) -> Stamp:
    """The stamp of a file as it is now."""
    with open_file(path) as descriptor:
        status = os.fstat(descriptor)
        ends = xxhash.xxh3_64()
        for place in (0, max(0, status.st_size - BLOCK_BYTES)):
            ends.update(os.pread(descriptor, BLOCK_BYTES, place))
        return Stamp(status.st_size, status.st_mtime_ns, ends.hexdigest())


def block_sum(
    read: Callable[[int, int], Any], size: int, start: int, end: int, block_bytes: int
) -> tuple[str, str]:
    """The sum of the digests of the blocks that end in a range, and the digest of the rest."""
    total = 0
    place = start - start % block_bytes
    while place < end:
        stop = min(place + block_bytes, size)
        if not place < stop <= end:
            return digest_of_sum(total), xxhash.xxh3_64_hexdigest(read(place, end))
        total += xxhash.xxh3_128_intdigest(read(place, stop), seed=place // block_bytes)
        place = stop
    return digest_of_sum(total), ""


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


def join_readings(readings: Sequence[Reading]) -> Reading:
    """Joins readings of adjacent ranges into one."""
    if len(readings) == 1:
        return readings[0]
    whole = Reading(
        positions=np.concatenate([np.empty(0, np.int64), *(r.positions for r in readings)]),
        rejected=[rejected for reading in readings for rejected in reading.rejected],
        text=any(reading.text for reading in readings),
        digest=xxhash.xxh3_128_hexdigest("".join(r.digest for r in readings).encode()),
        seen=_joined_seen(readings),
    )
    batches = [reading.columns for reading in readings if reading.columns is not None]
    alike = all(batch.schema.equals(batches[0].schema) for batch in batches)
    if batches and len(batches) == len(readings) and alike:
        whole.columns = one_batch(pa.Table.from_batches(batches))
        return whole
    whole.values = [value for reading in readings for value in _values(reading)]
    return whole


def _joined_seen(readings: Sequence[Reading]) -> dict[str, Seen]:
    found: dict[str, Seen] = {}
    for reading in readings:
        for name, seen in reading.seen.items():
            found[name] = found[name].then(seen) if name in found else seen
    return found


def _values(reading: Reading) -> list[Any]:
    if reading.values is not None:
        return reading.values
    return [] if reading.columns is None else dicts(reading.columns)
