"""Files whose records end with a newline: where ranges may end, and how they are cut.

A position is the byte at which a record begins. With `quote` set, a newline inside
quotes does not end a record; a record is *defined* by the parity of quotes since
the one before, so its bounds do not depend on how the file is cut into ranges.

A compressed file cannot be entered in the middle: it is one range, and a position
in it is a byte of what it unpacks to, below `LineFormat.unpacked_bytes_max`.

Planning reads one block at the start of a range and one at its end. Only files
with quotes are scanned in between.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import xxhash

from headrace.errors import SourceError
from headrace.model.source import Reading, Rejected, digest_of_sum
from headrace.sources.files.format import (
    FileFormat,
    block_sum,
    changed_error,
    fingerprint,
    open_file,
    read_bytes,
    unreadable_error,
)

UNPACKED_BYTES_BEFORE = 2**44
"""The length that older layouts of files read by name recorded for a compressed file."""
RAW_CHARACTERS_MAX = 200
NO_SUM = (digest_of_sum(0), "")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_NEWLINE = 0x0A
_UNPACKERS: dict[str, Callable[[str], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)

Offsets = np.ndarray[Any, np.dtype[np.int64]]


class LineFormat(FileFormat):
    """Ranges of bytes that begin and end with records."""

    cut_from = 4 * 1024 * 1024
    quote: int | None = None
    sample_bytes: int = 64 * 1024
    """The size of a sample, read to estimate the length of records and to find an end."""
    scan_bytes: int = 1024 * 1024
    """The size of one read while quotes are counted."""
    unpacked_bytes_max: int = 2**36
    """The number of positions of a compressed file. It is unpacked in memory, so no real file is
    longer; and 2**27 files still fit one after the other into the positions of a split."""

    def length(self, path: str) -> int:
        with open_file(path) as descriptor:
            size = os.fstat(descriptor).st_size
        return self.unpacked_bytes_max if is_compressed(path) else size

    def lengths(self, path: str) -> Sequence[int]:
        now = self.length(path)
        return (now, UNPACKED_BYTES_BEFORE) if is_compressed(path) else (now,)

    def next_end(self, path: str, start: int, records: int) -> tuple[int, int]:
        if is_compressed(path):
            return self.unpacked_bytes_max, self._packed_records(path)
        with open_file(path) as descriptor:
            size = os.fstat(descriptor).st_size
            _check_begins_a_record(descriptor, path, start)
            sample = os.pread(descriptor, self.sample_bytes, start)
            ends, _ = record_ends(sample, self.quote)
            if len(ends) >= records:
                return start + int(ends[records - 1]), records
            if start + len(sample) >= size:
                has_tail = len(sample) > (int(ends[-1]) if len(ends) else 0)
                return size, int(len(ends) + has_tail)
            record_bytes = ends[-1] / len(ends) if len(ends) else len(sample)
            end = self._align(descriptor, start, start + int(record_bytes * records), size)
        return end, max(1, round((end - start) / record_bytes))

    def cuts(self, path: str, start: int, end: int, parts: int) -> list[int]:
        if is_compressed(path):
            return []
        found: list[int] = []
        with open_file(path) as descriptor:
            begin = start
            for part in range(1, parts):
                wanted = max(begin + 1, start + (end - start) * part // parts)
                begin = self._align(descriptor, begin, wanted, end)
                if begin >= end:
                    break
                found.append(begin)
        return found

    def weight(self, path: str, start: int, end: int) -> int:
        return self.packed_bytes(path) * 4 if is_compressed(path) else end - start

    def fingerprint(self, path: str, start: int, end: int) -> str:
        with open_file(path) as descriptor:
            if is_compressed(path):
                return fingerprint(descriptor)
            return fingerprint(descriptor, start, end)

    def packed_bytes(self, path: str) -> int:
        """The size of a file as it lies on disk."""
        with open_file(path) as descriptor:
            return os.fstat(descriptor).st_size

    def lines(self, path: str, name: str, start: int, end: int) -> Lines:
        """The records of a range, unpacked."""
        if start >= end:
            return Lines(b"", name, start, self.quote)
        with open_file(path) as descriptor:
            size = os.fstat(descriptor).st_size
            if is_compressed(path):
                sums = self._sums(descriptor, size, size)
                data = _unpack(path)
                if len(data) > self.unpacked_bytes_max:
                    raise SourceError(
                        f"the file {path} unpacks to {len(data)} bytes, but one compressed file "
                        f"may have at most {self.unpacked_bytes_max}: split it into several, or "
                        "unpack it"
                    )
                return Lines(data, name, start, self.quote, sums)
            data = read_bytes(descriptor, start, end)
            view = memoryview(data)

            def bytes_of(first: int, after: int) -> bytes | memoryview:
                if first >= start:
                    return view[first - start : after - start]
                return read_bytes(descriptor, first, start) + data[: after - start]

            sums = block_sum(bytes_of, size, start, end, self.sum_bytes)
        return Lines(data, name, start, self.quote, sums)

    def sum_of(self, path: str, end: int) -> tuple[str, str]:
        with open_file(path) as descriptor:
            size = os.fstat(descriptor).st_size
            end = size if is_compressed(path) else min(end, size)
            return self._sums(descriptor, size, end)

    def _sums(self, descriptor: int, size: int, end: int) -> tuple[str, str]:
        """The sum of a file's blocks up to `end`, as it lies on disk."""
        return block_sum(lambda a, b: read_bytes(descriptor, a, b), size, 0, end, self.sum_bytes)

    def resumed(self, path: str, position: int) -> int:
        if is_compressed(path):
            return self.length(path)
        with open_file(path) as descriptor:
            size = os.fstat(descriptor).st_size
            if position >= size:
                return size
            return self._align(descriptor, 0, position, size) if position else 0

    def _align(self, descriptor: int, begin: int, wanted: int, limit: int) -> int:
        """The first end of a record at or after `wanted`; `begin` begins a record."""
        # Without quotes any newline ends a record, also one that ends exactly at `wanted`.
        place, inside = (begin if self.quote is not None else max(begin, wanted - 1)), False
        while place < limit:
            size = self.sample_bytes if self.quote is None else self.scan_bytes
            block = os.pread(descriptor, min(size, limit - place), place)
            if not block:
                break
            if place + len(block) < wanted and self.quote is not None:
                inside ^= bool(_count(block, self.quote) % 2)
            else:
                ends, inside = record_ends(block, self.quote, inside)
                index = int(np.searchsorted(ends, wanted - place))
                if index < len(ends):
                    return place + int(ends[index])
            place += len(block)
        return limit

    def _packed_records(self, path: str) -> int:
        sample = _unpack(path, self.sample_bytes)
        # Compression shrinks text to about a quarter; only back-pressure uses this estimate.
        unpacked = len(sample) if len(sample) < self.sample_bytes else self.packed_bytes(path) * 4
        return max(1, unpacked * max(1, sample.count(b"\n")) // max(1, len(sample)))


class Lines:
    """The records of a range as bytes, and where each begins in the file."""

    __slots__ = ("data", "name", "offsets", "quote", "rejected", "start", "sums")

    def __init__(
        self,
        data: bytes,
        name: str,
        start: int,
        quote: int | None = None,
        sums: tuple[str, str] = NO_SUM,
    ) -> None:
        ends, _ = record_ends(data, quote)
        self.offsets: Offsets = np.concatenate([np.zeros(1, np.int64), ends])
        if self.offsets[-1] == len(data):
            self.offsets = self.offsets[:-1]
        self.data = data
        self.quote = quote
        self.name = name
        self.start = start
        self.sums = sums
        self.rejected: list[Rejected] = []

    def __len__(self) -> int:
        return len(self.offsets)

    def records(self) -> list[bytes]:
        """Every record without its newline and without a byte order mark."""
        if self.quote is None:
            found = self.data.removesuffix(b"\n").split(b"\n") if self.data else []
        else:
            bounds = [*self.offsets.tolist(), len(self.data)]
            found = [self.data[a:b].removesuffix(b"\n") for a, b in pairwise(bounds)]
        if b"\r" in self.data:
            found = [record.removesuffix(b"\r") for record in found]
        if found and self.start == 0:
            found[0] = found[0].removeprefix(BYTE_ORDER_MARK)
        return found

    def reject(self, index: int, raw: bytes, reason: str) -> None:
        """Records that line number `index` of the range is not a valid record."""
        position = self.start + int(self.offsets[index])
        text = raw[: 4 * RAW_CHARACTERS_MAX].decode("utf-8", "backslashreplace")
        self.rejected.append(
            Rejected(position, text[:RAW_CHARACTERS_MAX], f"{self.name}, byte {position}: {reason}")
        )

    def reading(self, values: list[Any], kept: list[int] | None = None) -> Reading:
        """Values with the positions of the records that they come from."""
        offsets = self.offsets if kept is None else self.offsets[kept]
        return Reading(
            self.start + offsets,
            values=values,
            rejected=self.rejected,
            digest=xxhash.xxh3_128_hexdigest(self.data),
            sum=self.sums[0],
            tail=self.sums[1],
        )


def is_compressed(path: str) -> bool:
    """Whether a file has to be unpacked from its beginning."""
    return os.path.splitext(path)[1] in _UNPACKERS


def record_ends(
    block: bytes, quote: int | None = None, inside: bool = False
) -> tuple[Offsets, bool]:
    """The offsets after each record that ends in `block`, and whether it ends inside quotes."""
    data = np.frombuffer(block, np.uint8)
    newlines = np.flatnonzero(data == _NEWLINE)
    if quote is None:
        return newlines + 1, False
    quotes = np.flatnonzero(data == quote)
    before = np.searchsorted(quotes, newlines) + inside
    return newlines[before % 2 == 0] + 1, bool((len(quotes) + inside) % 2)


def not_utf8(error: UnicodeDecodeError, raw: bytes) -> str:
    """Why these bytes are not text."""
    return f"not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start} of the record"


def _count(block: bytes, byte: int) -> int:
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == byte))


def _check_begins_a_record(descriptor: int, path: str, start: int) -> None:
    """Detects most rewritten files: they rarely have a newline in the same place."""
    if start and os.pread(descriptor, 1, start - 1) != b"\n":
        raise changed_error(path)


def _unpack(path: str, limit: int = -1) -> bytes:
    try:
        with _UNPACKERS[os.path.splitext(path)[1]](path) as file:
            data: bytes = file.read(limit)
    except (FileNotFoundError, PermissionError) as error:
        raise unreadable_error(path, error) from error
    except _DAMAGED as error:
        raise SourceError(f"the file {path} is damaged and cannot be unpacked: {error}") from error
    return data
