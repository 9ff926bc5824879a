"""Places of an indexed log: small files that say from what its index is built.

    000002-000005            a place: generation, number
    000002-000005.index      a table of all cells, as they were when it was flushed
    000002-000003.log        records; only a driver of generation 2 appends to it

A place names an index, pieces of files that closed generations have appended since, and the
generation that goes on, with the file and the position from which it does. What a closed generation
appends later is outside of its piece, and counts for nothing.
"""

from __future__ import annotations

import msgspec
import xxhash

from headrace.errors import CorruptCheckpoint
from headrace.state.backends.directory import StateDirectory
from headrace.state.backends.indexed_log.index import LogIndex
from headrace.state.backends.indexed_log.records import ROW_BYTES, IndexRows
from headrace.store import files

_MAGIC = b"hri1"


class LogPlace(msgspec.Struct, frozen=True):
    """What a place says."""

    generation: int
    """Which generation goes on appending."""
    number: int
    """The number of its first file that counts."""
    start: int = 0
    """Where in that file it goes on."""
    index: str = ""
    """The file of the index; "" if it is empty."""
    pieces: tuple[tuple[str, int, int], ...] = ()
    """(file, from, to) of what closed generations have appended since, in order."""
    applied: int = 0
    floor: int = 0


class _IndexHead(msgspec.Struct, frozen=True):
    rows: int
    computations: list[str]
    files: list[str]


def place_name(generation: int, number: int) -> str:
    """The name of a place, and how the names of its index and of a log begin."""
    return f"{generation:06d}-{number:06d}"


def log_name(generation: int, number: int) -> str:
    """The name of a file of records."""
    return f"{place_name(generation, number)}.log"


def parsed(name: str) -> tuple[int, int] | None:
    """(generation, number) in the name of a place, an index or a log; None if it is another."""
    generation, dash, number = name.partition(".")[0].partition("-")
    if not dash or not (generation.isdigit() and number.isdigit()):
        return None
    return int(generation), int(number)


def write_place(directory: StateDirectory, name: str, place: LogPlace) -> None:
    """Writes a place, durably."""
    body = msgspec.json.encode(place)
    data = xxhash.xxh3_64_hexdigest(body).encode() + b"\n" + body
    files.write(directory.at(name), data, directory.system)


def read_place(directory: StateDirectory, name: str) -> LogPlace:
    """Reads a place; FileNotFoundError if it was removed."""
    with files.explained("read", directory.at(name)):
        data = directory.system.files.read(directory.at(name))
    checksum, _, body = data.partition(b"\n")
    if xxhash.xxh3_64_hexdigest(body).encode() != checksum:
        raise _damaged(directory.at(name))
    return msgspec.json.decode(body, type=LogPlace)


def write_index(directory: StateDirectory, name: str, index: LogIndex) -> None:
    """Writes an index that is one table, durably."""
    rows = index.tables[0] if index.tables else IndexRows.joined([])
    head = msgspec.json.encode(_IndexHead(rows.number, index.computations, index.files))
    head += b" " * (-(len(head) + 20) % 64)
    body = len(head).to_bytes(8, "little") + head + rows.to_bytes()
    checksum = xxhash.xxh3_64_intdigest(body).to_bytes(8, "little")
    files.write(directory.at(name), _MAGIC + checksum + body, directory.system)


def read_index(directory: StateDirectory, name: str) -> LogIndex:
    """Maps an index into memory. Its bytes are read once, to check them."""
    with files.explained("read", directory.at(name)):
        data = memoryview(directory.system.files.map(directory.at(name)))
    if bytes(data[:4]) != _MAGIC:
        raise _damaged(directory.at(name))
    if xxhash.xxh3_64_intdigest(data[12:]) != int.from_bytes(data[4:12], "little"):
        raise _damaged(directory.at(name))
    length = int.from_bytes(data[12:20], "little")
    head = msgspec.json.decode(data[20 : 20 + length], type=_IndexHead)
    table = data[20 + length :]
    if len(table) != head.rows * ROW_BYTES:
        raise _damaged(directory.at(name))
    index = LogIndex()
    index.computations, index.files = head.computations, head.files
    if head.rows:
        index.tables = [IndexRows.from_bytes(table, head.rows)]
    return index


def _damaged(path: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(f"{path} does not have the checksum that it says: put back a copy")
