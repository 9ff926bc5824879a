"""The contract of a file format, and how a change of a file is detected.

A format knows one file at a time, by positions in it (bytes or rows). It must not know which
files exist, nor how they make up splits.

Invariants:
- Positions run from 0 to `length`; every record lies between two of them.
- `next_end` and `cuts` return ends of records only, so that any two neighbouring
  ranges together hold the same records as the range that covers both.
- `fingerprint` covers the file's size, its first and last block and, where positions are bytes,
  the first and last block of the range (protocol A7); of an object in a store, its version.
- `read` digests what it reads, and `sum_of` computes the same sum, however the file
  was cut into ranges: a block counts for the range in which it ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from headrace.model.source import Change, Reading, Seen, digest_of_sum
from headrace.model.values.arrow import dicts, one_batch
from headrace.sources.files.input_file import (
    InputFile,
    changed_error,
    stamp_of,
    unreadable_error,
)


class FileFormat(ABC):
    """Reads ranges of single files."""

    cut_from: int = 50_000
    """A range of less weight than this is not worth a second task."""
    sum_bytes: int = 64 * 1024
    """The length of the blocks whose digests are added up."""

    @abstractmethod
    def length(self, file: InputFile) -> int:
        """The position after the last record of a file."""

    def lengths(self, file: InputFile) -> Sequence[int]:
        """Every length that a layout may have recorded for a file; the first is the present one."""
        return (self.length(file),)

    @abstractmethod
    def next_end(self, file: InputFile, start: int, records: int) -> tuple[int, int]:
        """Where a range of about `records` records from `start` ends, and how many it holds."""

    @abstractmethod
    def cuts(self, file: InputFile, start: int, end: int, parts: int) -> list[int]:
        """Ends of records inside a range that cut it into at most `parts` pieces of like size."""

    @abstractmethod
    def read(self, file: InputFile, name: str, start: int, end: int) -> Reading:
        """The records of a range, with its digests; `name` is for messages."""

    @abstractmethod
    def sum_of(self, file: InputFile, end: int) -> tuple[str, str]:
        """`Seen.digest` and `Seen.tail` of all ranges up to `end` together."""

    def resumed(self, file: InputFile, position: int) -> int:
        """The first position at or after `position` at which a record begins, or the end."""
        return min(position, self.length(file))

    def columns_of(self, file: InputFile) -> Sequence[str] | None:
        """The columns of a file, where they are known without reading it."""
        return None

    def weight(self, file: InputFile, start: int, end: int) -> int:
        """The amount of work of a range, in the unit of `cut_from`."""
        return end - start

    def fingerprint(self, file: InputFile, start: int, end: int) -> str:
        """Changes when the file changes."""
        with file.open() as opened:
            return opened.fingerprint()

    def read_columns(
        self, file: InputFile, name: str, start: int, end: int, needed: frozenset[str]
    ) -> Reading:
        """`read`; columns that are not needed may be left out (`Reading.left_out`)."""
        return self.read(file, name, start, end)

    def seen(
        self,
        file: InputFile,
        name: str,
        start: int,
        end: int,
        expected: str,
        needed: frozenset[str] | None = None,
    ) -> Reading:
        """`read`, after checking that the file is as planned; `Seen` describes what was read."""
        file = file.fresh()
        before = stamp_of(file)
        self.verify(file, start, end, expected)
        if needed is None:
            reading = self.read(file, name, start, end)
        else:
            reading = self.read_columns(file, name, start, end, needed)
        if stamp_of(file.fresh()) != before:
            raise changed_error(file)
        whole = end in self.lengths(file)
        reading.seen = {"": Seen(*before, reading.sum, reading.tail, start, end, whole)}
        return reading

    def compare(self, file: InputFile, seen: Seen, *, closely: bool) -> Seen | Change | None:
        """Compares a file with what was read of it; None where the file is missing."""
        try:
            alike = file.looks_like(seen)
            if closely or not alike:
                return self._compare(file, seen)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise unreadable_error(file, error) from error
        return seen

    def _compare(self, file: InputFile, seen: Seen) -> Seen | Change:
        file = file.fresh()
        now = stamp_of(file)
        if now.size != seen.size:
            how = "grown" if now.size > seen.size else "shrunk"
            return _change(file, f"has {how} from {seen.size:,} to {now.size:,} bytes")
        if now.ends != seen.ends:
            return _change(file, "was rewritten")
        if now.time_ns != seen.time_ns:
            # The file was written to, or replaced by a copy: only its bytes can show which.
            is_same = self._has_same_bytes(file, seen)
            # Without a digest the ends of a file count; an object has only its version.
            if is_same is False or (is_same is None and not now.ends):
                return _change(file, "was rewritten")
        return msgspec.structs.replace(seen, time_ns=now.time_ns)

    def _has_same_bytes(self, file: InputFile, seen: Seen) -> bool | None:
        """Whether the bytes that were read are still the same; None if that is not known."""
        if not seen.digest or seen.since:
            return None
        digest, tail = self.sum_of(file, seen.read)
        if digest.partition("/")[2] != seen.digest.partition("/")[2]:
            return None  # other columns are read now
        return (digest, tail) == (seen.digest, seen.tail)

    def accepted(self, file: InputFile, seen: Seen) -> Seen:
        """What counts as read of a changed file: all of it, or the part that was read."""
        file = file.fresh()
        now = stamp_of(file)
        length = self.length(file)
        read = length if seen.whole else self.resumed(file, seen.read)
        return Seen(*now, *self.sum_of(file, read), 0, read, read >= length)

    def verify(self, file: InputFile, start: int, end: int, expected: str) -> None:
        """Raises SourceError where a file has changed since the plan was made."""
        if self.fingerprint(file, start, end) != expected:
            raise changed_error(file)


def _change(file: InputFile, how: str) -> Change:
    return Change(f"the file {file}", how, "put the old file back", str(file))


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
        left_out=tuple(dict.fromkeys(name for r in readings for name in r.left_out)),
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
