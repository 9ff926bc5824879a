"""The bytes of the indexed log: records of cells, and the batches in which they are appended.

A *record* is one version of one cell, with its stamp and a checksum of its own. A *batch* is what
one call appends: a header with the checksum of all that follows, a table of its records as
columns, and the records. So the tail of a log is read without looking at single records, and a
batch that was not written to its end is recognized: there the log ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import xxhash

from headrace.errors import CorruptCheckpoint
from headrace.state.backend import AppliedCell
from headrace.state.segment import Cell

CELLS, MARK, FLOOR, LEFT = 1, 2, 3, 4
"""The kinds of batches: cells of an epoch; the mark `applied`; the floor; how much counts of the
files before, which were left after a write or a sync that failed."""

_RECORD = struct.Struct("<IQqHBBIHII")
"""checksum, stamp, expires, version, deleted, kind, lengths of key, field, entry and value."""
_HEADER = struct.Struct("<4sBQQQII")
"""magic, kind, bytes that follow, their checksum, number, records, bytes of computations' names."""
_MAGIC = b"hrl1"
_COLUMNS = (
    ("hash", np.uint64), ("place", np.uint64), ("stamp", np.uint64), ("offset", np.uint64),
    ("size", np.uint32), ("file", np.uint32), ("computation", np.uint16), ("kind", np.uint8),
    ("dead", np.uint8),
)  # fmt: skip

Array = np.ndarray[Any, Any]


class IndexRows(NamedTuple):
    """Some records, as columns; sorted by (hash, place) unless something else is said."""

    hash: Array
    """The hash of the key."""
    place: Array
    """A digest of (computation, key, kind, field, entry): with the hash it names the cell."""
    stamp: Array
    offset: Array
    """Where the record begins in its file; in a batch, behind its table."""
    size: Array
    file: Array
    computation: Array
    """The number of its name."""
    kind: Array
    dead: Array
    """Whether it is a tombstone."""

    @property
    def number(self) -> int:
        """How many."""
        return len(self.hash)

    def take(self, chosen: Array | slice) -> IndexRows:
        """Those of a mask, or at some positions."""
        return IndexRows(*(column[chosen] for column in self))

    @staticmethod
    def joined(parts: Sequence[IndexRows]) -> IndexRows:
        """All of them, one after another."""
        if not parts:
            return IndexRows(*(np.empty(0, kind) for _, kind in _COLUMNS))
        return IndexRows(
            *(np.concatenate([part[i] for part in parts]) for i in range(len(_COLUMNS)))
        )

    def to_bytes(self) -> bytes:
        """The columns, one after another, widest first: all are aligned if the first is."""
        return b"".join(
            np.ascontiguousarray(column, kind).tobytes()
            for column, (_, kind) in zip(self, _COLUMNS, strict=True)
        )

    @staticmethod
    def from_bytes(data: memoryview, count: int) -> IndexRows:
        """The columns of `count` rows at the beginning of `data`, without a copy."""
        found, at = [], 0
        for _, kind in _COLUMNS:
            found.append(np.frombuffer(data, kind, count, at))
            at += count * np.dtype(kind).itemsize
        return IndexRows(*found)


ROW_BYTES = sum(np.dtype(kind).itemsize for _, kind in _COLUMNS)


class Batch(NamedTuple):
    """A batch that was read."""

    kind: int
    number: int
    """The epoch of the cells, the mark, or the floor."""
    rows: IndexRows | None
    """Offsets count from the beginning of the file."""
    computations: list[str]
    end: int
    """Where it ends in its file."""


def place_of(computation: str, key: bytes, kind: int, field: str, entry: bytes) -> int:
    """The digest of a cell's name."""
    name, in_field = computation.encode(), field.encode()
    head = b"%d,%d,%d,%d:" % (len(name), len(key), kind, len(in_field))
    return xxhash.xxh3_64_intdigest(head + name + key + in_field + entry, seed=1)


def encode_record(stamp: int, cell: Cell) -> bytes:
    """One version of a cell."""
    field, value = cell.field.encode(), b"" if cell.tombstone else cell.value
    rest = _RECORD.pack(
        0, stamp, cell.expires, cell.version, cell.tombstone, cell.kind,
        len(cell.key), len(field), len(cell.entry), len(value),
    )[4:]  # fmt: skip
    rest += cell.key + field + cell.entry + value
    return xxhash.xxh32_intdigest(rest).to_bytes(4, "little") + rest


def encode_cells(
    epoch: int, cells: Sequence[tuple[str, Cell]]
) -> tuple[IndexRows, list[str], list[bytes]]:
    """Their rows, unsorted, with offsets in the joined records; the computations; the records."""
    numbers: dict[str, int] = {}
    records: list[bytes] = []
    columns: list[tuple[int, int, int, int, int, int]] = []
    for computation, cell in cells:
        number = numbers.setdefault(computation, len(numbers))
        record = encode_record(epoch, cell)
        records.append(record)
        place = place_of(computation, cell.key, cell.kind, cell.field, cell.entry)
        columns.append((cell.hash, place, len(record), number, cell.kind, cell.tombstone))
    hashes, places, sizes, of, kinds, dead = zip(*columns, strict=True)
    size = np.array(sizes, np.uint32)
    rows = IndexRows(
        np.array(hashes, np.uint64), np.array(places, np.uint64),
        np.full(len(records), epoch, np.uint64),
        np.cumsum(size, dtype=np.uint64) - size.astype(np.uint64),
        size, np.zeros(len(records), np.uint32), np.array(of, np.uint16),
        np.array(kinds, np.uint8), np.array(dead, np.uint8),
    )  # fmt: skip
    return rows, list(numbers), records


class CellRecord(NamedTuple):
    """A record that was read."""

    key: bytes
    kind: int
    field: str
    entry: bytes
    cell: AppliedCell


def decode_record(data: memoryview, where: str) -> CellRecord:
    """A record; CorruptCheckpoint if its checksum does not fit."""
    if len(data) < _RECORD.size:
        raise CorruptCheckpoint(f"{where} ends within a record: put back a copy of the file")
    checksum, stamp, expires, version, gone, kind, *lengths = _RECORD.unpack_from(data)
    if xxhash.xxh32_intdigest(data[4:]) != checksum:
        raise CorruptCheckpoint(
            f"{where} has a record with a wrong checksum: put back a copy of the file"
        )
    at, parts = _RECORD.size, []
    for length in lengths:
        parts.append(bytes(data[at : at + length]))
        at += length
    key, field, entry, value = parts
    cell = AppliedCell(stamp, None if gone else value, expires, version)
    return CellRecord(key, kind, field.decode(), entry, cell)


def encode_batch(
    kind: int, number: int, rows: IndexRows | None, computations: Sequence[str], data: bytes
) -> tuple[bytes, int]:
    """A batch, and where its records begin in it."""
    names = msgspec.json.encode(list(computations))
    table = b"" if rows is None else rows.to_bytes()
    payload = names + table + data
    head = _HEADER.pack(
        _MAGIC, kind, len(payload), 0, number, 0 if rows is None else rows.number, len(names)
    )
    checksum = xxhash.xxh3_64_intdigest(head + payload)
    head = _HEADER.pack(
        _MAGIC, kind, len(payload), checksum, number, 0 if rows is None else rows.number, len(names)
    )
    return head + payload, len(head) + len(names) + len(table)


def batches_in(data: memoryview, start: int) -> Iterator[Batch]:
    """The complete batches from a position on. What follows was not written to its end."""
    while start + _HEADER.size <= len(data):
        head = data[start : start + _HEADER.size]
        magic, kind, length, checksum, number, count, names = _HEADER.unpack(head)
        begin, end = start + _HEADER.size, start + _HEADER.size + length
        if magic != _MAGIC or end > len(data) or names + count * ROW_BYTES > length:
            return
        blank = _HEADER.pack(magic, kind, length, 0, number, count, names)
        found = xxhash.xxh3_64(blank)
        found.update(data[begin:end])
        if found.intdigest() != checksum:
            return
        rows = None
        if kind == CELLS:
            table = begin + names
            rows = IndexRows.from_bytes(data[table:end], count)
            rows = rows._replace(offset=rows.offset + np.uint64(table + count * ROW_BYTES))
        yield Batch(kind, number, rows, msgspec.json.decode(data[begin : begin + names]), end)
        start = end


def encode_left(ends: Mapping[str, int]) -> list[str]:
    """File -> how much of it counts, as the names in a batch."""
    return [f"{file} {end}" for file, end in ends.items()]


def left_in(batch: Batch) -> dict[str, int]:
    """The same, from a batch that was read; {} if it is of another kind."""
    pairs = [each.rpartition(" ") for each in batch.computations] if batch.kind == LEFT else []
    return {file: int(end) for file, _, end in pairs}


def is_torn(data: memoryview, start: int) -> bool:
    """Whether what follows the last complete batch may be one that was not written to its end.

    If it is not, a batch that was written is damaged: another one follows, or it has its length.
    """
    rest = bytes(data[start:])
    if not _MAGIC.startswith(rest[: len(_MAGIC)]):
        return not any(rest)  # what a disk did not take may be zeros
    if len(rest) >= _HEADER.size:
        magic, kind, length, checksum, number, count, names = _HEADER.unpack_from(rest)
        whole = len(rest) - _HEADER.size
        blank = _HEADER.pack(magic, kind, whole, 0, number, count, names)
        is_whole = xxhash.xxh3_64_intdigest(blank + rest[_HEADER.size :]) == checksum
        if length <= whole or is_whole:  # the length is that of a whole batch, or is damaged itself
            return False
    at = rest.find(_MAGIC, 1)
    while at >= 0:
        if next(batches_in(memoryview(rest), at), None) is not None:
            return False
        at = rest.find(_MAGIC, at + 1)
    return True
