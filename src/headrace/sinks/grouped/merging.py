"""Files of several epochs as fewer, larger ones; and which rows of them belong to which epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

SUFFIXES = (".jsonl", ".parquet")


class Piece(NamedTuple):
    """A file of an epoch."""

    epoch: int
    directory: str
    """Its partition, as `day=2024-05-01`; "" without one."""
    suffix: str
    data: bytes


class RowsOf(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a file that belong to one epoch."""

    epoch: int
    name: str
    first: int
    rows: int
    rows_in_file: int


class MergedFile(NamedTuple):
    """A file of a group."""

    directory: str
    name: str
    data: bytes
    of: list[RowsOf]


def merged(pieces: Sequence[Piece], target_bytes: int) -> Iterator[MergedFile]:
    """The files that the pieces become, one after the other.

    Files of one partition and format are put together until they have the target size. Parquet
    files in which a column has different types are not put together. Rows keep their order.
    """
    homes: dict[tuple[str, str], list[Piece]] = {}
    for piece in pieces:
        homes.setdefault((piece.directory, piece.suffix), []).append(piece)
    number = 0
    for (directory, suffix), found in sorted(homes.items()):
        for run in _runs(found, target_bytes):
            for together in _alike(run) if suffix == ".parquet" else [run]:
                number += 1
                data, counts = (_tables if suffix == ".parquet" else _lines)(together)
                yield _file(directory, f"part-{number:06d}{suffix}", data, together, counts)


def _runs(pieces: Sequence[Piece], target_bytes: int) -> Iterator[list[Piece]]:
    run: list[Piece] = []
    size = 0
    for piece in pieces:
        run.append(piece)
        size += len(piece.data)
        if size >= target_bytes:
            yield run
            run, size = [], 0
    if run:
        yield run


def _alike(run: Sequence[Piece]) -> Iterator[list[Piece]]:
    """The run in parts within which a column has one type."""
    part: list[Piece] = []
    types: dict[str, pa.DataType] = {}
    for piece in run:
        schema = pq.read_schema(pa.BufferReader(piece.data))
        mine = dict(zip(schema.names, schema.types, strict=True))
        if any(types.get(name, kind) != kind for name, kind in mine.items()):
            yield part
            part, types = [], {}
        part.append(piece)
        types |= mine
    yield part


def _lines(pieces: Sequence[Piece]) -> tuple[bytes, list[int]]:
    parts = [piece.data if piece.data.endswith(b"\n") else piece.data + b"\n" for piece in pieces]
    return b"".join(parts), [part.count(b"\n") for part in parts]


def _tables(pieces: Sequence[Piece]) -> tuple[bytes, list[int]]:
    files = [pq.ParquetFile(pa.BufferReader(piece.data)) for piece in pieces]
    metadata = files[0].metadata
    codec = "zstd"
    if metadata.num_row_groups and metadata.num_columns:
        codec = metadata.row_group(0).column(0).compression.lower()
    tables = [file.read() for file in files]
    out = pa.BufferOutputStream()
    together = pa.concat_tables(tables, promote_options="default")
    pq.write_table(together, out, compression="none" if codec == "uncompressed" else codec)
    return out.getvalue().to_pybytes(), [table.num_rows for table in tables]


def _file(
    directory: str, name: str, data: bytes, pieces: Sequence[Piece], counts: Sequence[int]
) -> MergedFile:
    path = f"{directory}/{name}" if directory else name
    total, first, of = sum(counts), 0, []
    for piece, rows in zip(pieces, counts, strict=True):
        of.append(RowsOf(piece.epoch, path, first, rows, total))
        first += rows
    return MergedFile(directory, name, data, of)
