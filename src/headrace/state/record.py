"""The record of finished splits: sorted, immutable files beside the ledger.

A pipeline that watches a directory for years finishes one split per file. In the ledger, finished
splits would be part of every snapshot for ever. So they move, some hundred at a time, into a file
of the checkpoint that the ledger names. Files are merged as they grow, newest first, so that there
are few files, and each row is written only a few times.

Columns: `hash, key, seen`. The key is (split, name of a part) as MessagePack; `seen` describes
what was read.
Invariants: rows are sorted by (hash, key), and each (hash, key) is unique. The hash only finds
candidates and the key decides, so the record is exact. The file's name ends with the digest of its
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headrace.errors import CorruptCheckpoint, IncompatibleState
from headrace.log.content import map_named, verify
from headrace.model.source import Seen
from headrace.model.values.arrow import one_batch
from headrace.store.store import Store

FORMAT = 1
SCHEMA = pa.schema(
    [
        pa.field("hash", pa.uint64(), False),
        pa.field("key", pa.binary(), False),
        pa.field("seen", pa.binary(), False),
    ]
)

Part = tuple[str, str]
"""A split, and the name of a part of it, or ""."""

_decode_part = msgspec.msgpack.Decoder(Part).decode
_decode_seen = msgspec.msgpack.Decoder(Seen | None).decode


def table_of(rows: Mapping[Part, Seen | None]) -> pa.Table:
    """An unsorted table of finished parts. A value of None: it is unknown what was read."""
    keys = [msgspec.msgpack.encode(part) for part in rows]
    hashes = np.array([xxhash.xxh3_64_intdigest(key) for key in keys], np.uint64)
    seen = [msgspec.msgpack.encode(each) for each in rows.values()]
    return pa.table([pa.array(hashes), keys, seen], schema=SCHEMA)


def encode_record(tables: Sequence[pa.Table]) -> tuple[bytes, int]:
    """The file of some tables, given newest first, and its number of rows."""
    together = pa.concat_tables(tables)
    # The sort is stable: among equal keys the newest stays first.
    order = pc.sort_indices(together, [("hash", "ascending"), ("key", "ascending")])
    whole = one_batch(together.take(order))
    whole = whole.filter(pa.array(_first_of_each(whole)))
    out = pa.BufferOutputStream()
    metadata = {b"headrace": b"record", b"format": str(FORMAT).encode()}
    with pa.ipc.new_file(out, SCHEMA.with_metadata(metadata)) as writer:
        writer.write_batch(whole)
    return out.getvalue().to_pybytes(), whole.num_rows


class FinishedFile:
    """An open file of the record."""

    __slots__ = ("hashes", "table")

    def __init__(self, name: str, data: pa.Buffer) -> None:
        """`name` is the file's whole name in the store; its digest is checked here."""
        verify(name, data)
        try:
            reader = pa.ipc.open_file(data)
            metadata = reader.schema.metadata or {}
        except (pa.ArrowException, OSError) as error:
            raise CorruptCheckpoint(f"{name} is not a record: {error}") from None
        version = metadata.get(b"format", b"")
        if metadata.get(b"headrace") != b"record" or not version.isdigit():
            raise CorruptCheckpoint(f"{name} is an Arrow file, but not a record of Headrace")
        if int(version) > FORMAT:
            raise IncompatibleState(
                f"{name} has record format {int(version)}; this Headrace reads up to {FORMAT}: "
                "upgrade Headrace"
            )
        if not reader.schema.equals(SCHEMA):
            raise CorruptCheckpoint(f"{name} has other columns than a record")
        self.table = reader.read_all()
        self.hashes = self.table.column(0).combine_chunks().to_numpy()

    @staticmethod
    def open(store: Store, name: str) -> FinishedFile:
        """Opens a file of a checkpoint's record."""
        return FinishedFile(name, map_named(store, name))

    def find(self, parts: Iterable[Part]) -> dict[Part, Seen | None]:
        """The given parts that are in this file."""
        asked = list(parts)
        keys = [msgspec.msgpack.encode(part) for part in asked]
        hashes = np.array([xxhash.xxh3_64_intdigest(key) for key in keys], np.uint64)
        rows = np.searchsorted(self.hashes, hashes)
        inside = np.flatnonzero(rows < len(self.hashes))
        near = inside[self.hashes[rows[inside]] == hashes[inside]]
        found: dict[Part, Seen | None] = {}
        for index in near.tolist():
            row = int(rows[index])
            while row < len(self.hashes) and self.hashes[row] == hashes[index]:
                if self.table.column(1)[row].as_py() == keys[index]:
                    found[asked[index]] = _decode_seen(self.table.column(2)[row].as_py())
                    break
                row += 1
        return found

    def after(self, low: int, rows: int) -> int:
        """A hash such that `rows` rows, or a few more, are between `low` and this hash."""
        last = int(np.searchsorted(self.hashes, np.uint64(low))) + rows - 1
        return int(self.hashes[last]) + 1 if last < len(self.hashes) else 2**64

    def between(self, low: int, high: int) -> dict[Part, Seen | None]:
        """The rows whose hash lies in [low, high)."""
        first = int(np.searchsorted(self.hashes, np.uint64(low)))
        last = len(self.hashes)
        if high < 2**64:
            last = int(np.searchsorted(self.hashes, np.uint64(high)))
        some = self.table.slice(first, last - first)
        pairs = zip(some.column(1).to_pylist(), some.column(2).to_pylist(), strict=True)
        return {_decode_part(key): _decode_seen(seen) for key, seen in pairs}


def _first_of_each(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A mask of the first row of each key, in sorted rows."""
    hashes = batch.column(0).to_numpy()
    first = np.ones(len(hashes), np.bool_)
    keys = batch.column(1)
    for row in (np.flatnonzero(hashes[1:] == hashes[:-1]) + 1).tolist():
        first[row] = keys[row] != keys[row - 1]
    return first
