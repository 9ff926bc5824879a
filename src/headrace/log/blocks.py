"""The table of blocks of a large file: it proves a part of the file without a look at the rest.

A file that is named by content, is an Arrow file and is large has, right before the footer of the
Arrow file, where no reader of Arrow looks:

    the digest of each block of all bytes up to here, a tail of fixed size

Its name is the digest of the table and of all that follows the blocks. So the name proves the
table, and the table proves each block. Whoever checks the whole file computes the table again from
the blocks (`whole_digest`). Whoever reads only some rows checks the blocks of these (`BlockCheck`).
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from headrace.errors import CorruptCheckpoint

BLOCK_BYTES = 4 << 10
LARGE_BYTES = 256 << 10
"""Smaller files have no table: they are checked as a whole as quickly."""

_DIGEST_BYTES = 16
_TAIL = struct.Struct("<QQ8s")
"""How many bytes the blocks have, how many each block has, magic."""
_MAGIC = b"HRBLOCKS"
_ARROW_END = struct.Struct("<i6s")
_ARROW_MAGIC = b"ARROW1"


class BlockTable(NamedTuple):
    """The table of a file."""

    covered: int
    """How many bytes from the beginning are in blocks."""
    block: int
    """Bytes of a block; the last one may have fewer."""

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.covered // self.block)

    @property
    def bytes(self) -> int:
        """The size of the table, with its tail."""
        return self.blocks * _DIGEST_BYTES + _TAIL.size


def footer_of(data: bytes | memoryview | pa.Buffer) -> int | None:
    """Where the footer of an Arrow file begins; None if this is no Arrow file."""
    whole = memoryview(data)
    if len(whole) < _ARROW_END.size:
        return None
    length, magic = _ARROW_END.unpack_from(whole, len(whole) - _ARROW_END.size)
    at = len(whole) - _ARROW_END.size - length
    return at if magic == _ARROW_MAGIC and length >= 0 and at >= 0 else None


def table_in(data: bytes | memoryview | pa.Buffer) -> BlockTable | None:
    """The table of a file; None if it has none."""
    footer = footer_of(data)
    if footer is None or footer < _TAIL.size:
        return None
    covered, block, magic = _TAIL.unpack_from(memoryview(data), footer - _TAIL.size)
    if magic != _MAGIC or not block:
        return None
    table = BlockTable(covered, block)
    return table if covered + table.bytes == footer else None


def with_table(stream: memoryview, more: Sequence[bytes], footer: memoryview) -> bytes:
    """A file of some bytes in order; with a table before the footer, if it is large.

    `stream` is what may be large: it is copied once.
    """
    size = len(stream) + sum(map(len, more))
    if size < LARGE_BYTES:
        return b"".join((stream, *more, footer))
    cut = len(stream) - len(stream) % BLOCK_BYTES
    first, rest = stream[:cut], b"".join((stream[cut:], *more))
    digests = _digests(first, BLOCK_BYTES) + _digests(memoryview(rest), BLOCK_BYTES)
    return b"".join((first, rest, digests, _TAIL.pack(size, BLOCK_BYTES, _MAGIC), footer))


def whole_digest(data: bytes | memoryview | pa.Buffer) -> str:
    """The digest that names a file, from all of its bytes."""
    table = table_in(data)
    if table is None:
        return xxhash.xxh3_128_hexdigest(data)
    whole = memoryview(data)
    return _root(_digests(whole[: table.covered], table.block), whole[table.covered :])


def table_digest(data: pa.Buffer, table: BlockTable) -> str:
    """The digest that names a file, if its blocks are as its table says."""
    behind = memoryview(data)[table.covered :]
    return _root(behind[: table.blocks * _DIGEST_BYTES], behind)


def _root(digests: bytes | memoryview, behind: memoryview) -> str:
    """`behind` begins with the table as it is in the file: a flip there is found, too."""
    found = xxhash.xxh3_128(digests)
    found.update(behind)
    return found.hexdigest()


def _digests(data: memoryview, block: int) -> bytes:
    digest = xxhash.xxh3_128_digest
    return b"".join([digest(data[at : at + block]) for at in range(0, len(data), block)])


class BlockCheck:
    """Checks blocks of a file before their bytes are used, each once."""

    def __init__(self, name: str, data: pa.Buffer, table: BlockTable) -> None:
        """The table is known to be right."""
        self._name, self._table = name, table
        whole, self._begin = memoryview(data).cast("B"), data.address
        self._data, self._proofs = whole[: table.covered], whole[table.covered :]
        self._left = table.blocks
        self._checked = bytearray(table.blocks)
        self._lock = threading.Lock()

    @property
    def is_done(self) -> bool:
        """Whether all blocks were checked."""
        return not self._left

    def part(self, first: int, last: int) -> None:
        """Checks the bytes from `first` up to `last`."""
        if first < last and self._left:
            block = self._table.block
            self._blocks(range(first // block, min(-(-last // block), len(self._checked))))

    def buffer(self, data: pa.Buffer | None) -> None:
        """Checks all bytes of a buffer, which lies in the file."""
        if data is not None and data.size:
            at = self.place_of(data)
            self.part(at, at + data.size)

    def place_of(self, data: pa.Buffer) -> int:
        """Where a buffer lies in the file. If it is a copy, the whole file is checked."""
        at = data.address - self._begin
        if at >= 0 and at + data.size <= self._table.covered:
            return int(at)
        self.part(0, self._table.covered)
        return 0

    def each(self, at: int, parts: Iterable[tuple[int, int]]) -> None:
        """Checks a few parts: (from byte, up to byte), both counted from `at`."""
        if not self._left:
            return
        block, chosen = self._table.block, list[int]()
        for first, last in parts:
            if first < last:
                low, high = (at + first) // block, (at + last - 1) // block
                chosen.append(low)
                if low < high:
                    chosen += range(low + 1, high + 1)
        self._blocks(chosen)

    def arrays(self, at: int, firsts: Any, lasts: Any) -> None:
        """Checks many parts: from bytes, up to bytes, both counted from `at`."""
        if not self._left:
            return
        some, block = np.flatnonzero(lasts > firsts), self._table.block
        low = (firsts[some].astype(np.int64) + at) // block
        high = (lasts[some].astype(np.int64) + at - 1) // block
        self._unchecked(low)
        if (high > low).any():
            self._unchecked(high)
            for one in np.flatnonzero(high > low + 1).tolist():
                self._unchecked(np.arange(low[one] + 1, high[one]))

    def _unchecked(self, chosen: Any) -> None:
        """Checks those of many blocks that were not checked yet."""
        self._blocks(chosen[np.frombuffer(self._checked, np.uint8)[chosen] == 0].tolist())

    def _blocks(self, chosen: Iterable[int]) -> None:
        data, proofs, known, block = self._data, self._proofs, self._checked, self._table.block
        digest = xxhash.xxh3_128_digest
        with self._lock:  # a block that two threads read counts once
            for number in chosen:
                if known[number]:
                    continue
                at, proof = number * block, number * _DIGEST_BYTES
                if digest(data[at : at + block]) != proofs[proof : proof + _DIGEST_BYTES]:
                    raise self._damaged(at)
                known[number] = 1
                self._left -= 1

    def _damaged(self, at: int) -> CorruptCheckpoint:
        end = min(at + self._table.block, self._table.covered)
        return CorruptCheckpoint(
            f"{self._name} is damaged: its bytes from {at:,} to {end:,} do not have the digest in "
            "its table. Restore the file from a copy; nothing of these bytes has been read"
        )
