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
import io
import lzma
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import xxhash

from headrace.errors import SourceError
from headrace.model.source import Reading, Rejected, digest_of_sum
from headrace.sources.files.format import FileFormat, block_sum
from headrace.sources.files.input_file import (
    InputFile,
    OpenFile,
    changed_error,
    unreadable_error,
)

UNPACKED_BYTES_BEFORE = 2**44
"""The length that older layouts of files read by name recorded for a compressed file."""
FETCH_BYTES = 8 * 1024 * 1024
"""How much of an object is fetched at once, to digest it."""
RAW_CHARACTERS_MAX = 200
NO_SUM = (digest_of_sum(0), "")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_NEWLINE = 0x0A
_UNPACKERS: dict[str, Callable[[Any], Any]] = {
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

    def length(self, file: InputFile) -> int:
        with file.open() as opened:
            return self.unpacked_bytes_max if is_compressed(file) else opened.size

    def lengths(self, file: InputFile) -> Sequence[int]:
        now = self.length(file)
        return (now, UNPACKED_BYTES_BEFORE) if is_compressed(file) else (now,)

    def next_end(self, file: InputFile, start: int, records: int) -> tuple[int, int]:
        if is_compressed(file):
            return self.unpacked_bytes_max, self._packed_records(file)
        with file.open() as opened:
            size = opened.size
            sample = _from_a_record(opened, file, start, self.sample_bytes)
            ends, _ = record_ends(sample, self.quote)
            if len(ends) >= records:
                return start + int(ends[records - 1]), records
            if start + len(sample) >= size:
                has_tail = len(sample) > (int(ends[-1]) if len(ends) else 0)
                return size, int(len(ends) + has_tail)
            record_bytes = ends[-1] / len(ends) if len(ends) else len(sample)
            end = self._align(opened, start, start + int(record_bytes * records), size)
        return end, max(1, round((end - start) / record_bytes))

    def cuts(self, file: InputFile, start: int, end: int, parts: int) -> list[int]:
        if is_compressed(file):
            return []
        found: list[int] = []
        with file.open() as opened:
            begin = start
            for part in range(1, parts):
                wanted = max(begin + 1, start + (end - start) * part // parts)
                begin = self._align(opened, begin, wanted, end)
                if begin >= end:
                    break
                found.append(begin)
        return found

    def weight(self, file: InputFile, start: int, end: int) -> int:
        return self.packed_bytes(file) * 4 if is_compressed(file) else end - start

    def fingerprint(self, file: InputFile, start: int, end: int) -> str:
        with file.open() as opened:
            if is_compressed(file):
                return opened.fingerprint()
            return opened.fingerprint(start, end)

    def packed_bytes(self, file: InputFile) -> int:
        """The size of a file as it lies on disk."""
        with file.open() as opened:
            return opened.size

    def lines(self, file: InputFile, name: str, start: int, end: int) -> Lines:
        """The records of a range, unpacked."""
        if start >= end:
            return Lines(b"", name, start, self.quote)
        with file.open() as opened:
            size = opened.size
            if is_compressed(file):
                packed = memoryview(opened.read(0, size))
                sums = block_sum(lambda a, b: packed[a:b], size, 0, size, self.sum_bytes)
                data = _unpack(io.BytesIO(packed), file)
                if len(data) > self.unpacked_bytes_max:
                    raise SourceError(
                        f"the file {file} unpacks to {len(data)} bytes, but one compressed file "
                        f"may have at most {self.unpacked_bytes_max}: split it into several, or "
                        "unpack it"
                    )
                return Lines(data, name, start, self.quote, sums)
            opened.fetch((start - start % self.sum_bytes, end))
            data = opened.read(start, end)
            view = memoryview(data)

            def bytes_of(first: int, after: int) -> bytes | memoryview:
                if first >= start:
                    return view[first - start : after - start]
                return opened.read(first, start) + data[: after - start]

            sums = block_sum(bytes_of, size, start, end, self.sum_bytes)
        return Lines(data, name, start, self.quote, sums)

    def sum_of(self, file: InputFile, end: int) -> tuple[str, str]:
        with file.open() as opened:
            size = opened.size
            end = size if is_compressed(file) else min(end, size)
            return self._sums(opened, size, end)

    def _sums(self, opened: OpenFile, size: int, end: int) -> tuple[str, str]:
        """The sum of a file's blocks up to `end`, as they are stored."""
        fetched = 0

        def read(start: int, after: int) -> bytes:
            nonlocal fetched
            if after > fetched:
                fetched = min(end, start + FETCH_BYTES)
                opened.fetch((start, fetched))
            return opened.read(start, after)

        return block_sum(read, size, 0, end, self.sum_bytes)

    def resumed(self, file: InputFile, position: int) -> int:
        if is_compressed(file):
            return self.length(file)
        with file.open() as opened:
            size = opened.size
            if position >= size:
                return size
            return self._align(opened, 0, position, size) if position else 0

    def _align(self, opened: OpenFile, begin: int, wanted: int, limit: int) -> int:
        """The first end of a record at or after `wanted`; `begin` begins a record."""
        # Without quotes any newline ends a record, also one that ends exactly at `wanted`.
        place, inside = (begin if self.quote is not None else max(begin, wanted - 1)), False
        while place < limit:
            size = self.sample_bytes if self.quote is None else self.scan_bytes
            block = opened.read(place, min(place + size, limit))
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

    def _packed_records(self, file: InputFile) -> int:
        with file.open() as opened:
            sample = _unpack(opened.stream(), file, self.sample_bytes)
        # Compression shrinks text to about a quarter; only back-pressure uses this estimate.
        unpacked = len(sample) if len(sample) < self.sample_bytes else self.packed_bytes(file) * 4
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


def is_compressed(file: InputFile) -> bool:
    """Whether a file has to be unpacked from its beginning."""
    return file.suffix in _UNPACKERS


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


def _from_a_record(opened: OpenFile, file: InputFile, start: int, size: int) -> bytes:
    """The bytes from `start`, which must begin a record.

    That detects most rewritten files: they rarely have a newline in the same place.
    """
    before = 1 if start else 0
    sample = opened.read(start - before, start + size)
    if before and sample[:1] != b"\n":
        raise changed_error(file)
    return sample[before:]


def _unpack(packed: BinaryIO, file: InputFile, limit: int = -1) -> bytes:
    try:
        with packed, _UNPACKERS[file.suffix](packed) as unpacked:
            data: bytes = unpacked.read(limit)
    except (FileNotFoundError, PermissionError) as error:
        raise unreadable_error(file, error) from error
    except _DAMAGED as error:
        raise SourceError(f"the file {file} is damaged and cannot be unpacked: {error}") from error
    return data
