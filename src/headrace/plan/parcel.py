"""A parcel: records for one slot of one computation, with their keys, as one Arrow blob.

Keys are sent as a dictionary: each distinct key once, and a code per record. So for a million
records of a thousand keys, only a thousand keys are hashed and encoded, and the consumer can group
the records without looking at a key. No data is sent twice: a value column that equals the key or
the timestamp is left out and restored on arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.model.values.arrow import ipc_batch, ipc_bytes
from headrace.model.values.keys import decode_key, hash_key
from headrace.model.values.rows import Rows

BLOB_BYTES_MAX = 32 << 20

_KEY, _TIME, _ORIGIN, _PACKED, _VALUE = "key", "time", "origin", "packed", "v."
_LAYOUT = b"layout"
_RESTORABLE = {str(t): t for t in (pa.string(), pa.large_string(), pa.int64(), pa.binary())}


class Column(msgspec.Struct, frozen=True, array_like=True):
    """Where a value column of a blob comes from: its own data, the key or the timestamp."""

    name: str
    source: str
    type: str = ""


class Parcel:
    """Rows with their keys: `keys[codes[i]]` is the key of row i."""

    __slots__ = ("codes", "key_column", "key_values", "keys", "rows")

    def __init__(
        self,
        keys: list[bytes],
        codes: np.ndarray[Any, Any],
        rows: Rows,
        key_column: str | None = None,
        key_values: pa.Array | None = None,
    ) -> None:
        self.key_column = key_column
        """The name of the value column that equals the key in every row."""
        self.key_values = key_values
        """The distinct values of that column, one per key, if they are available."""
        self.keys = keys
        self.codes = codes
        self.rows = rows

    def hashes(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The hash of each distinct key."""
        return np.fromiter(map(hash_key, self.keys), np.uint64, len(self.keys))

    def sparing(self) -> Rows:
        """The rows with the key column as codes, which makes it cheap to select rows."""
        name, columns = self.key_column, self.rows.stored
        if name is None or self.key_values is None or columns is None or self.rows.encoded:
            return self.rows
        if str(self.key_values.type) not in _RESTORABLE:
            return self.rows
        codes = pa.DictionaryArray.from_arrays(pa.array(self.codes), self.key_values)
        at = columns.schema.get_field_index(name)
        return Rows(
            self.rows.timestamps,
            columns=columns.set_column(at, name, codes),
            origins=self.rows.origins,
            time_column=self.rows.time_column,
            encoded=name,
            schema=self.rows.schema,
        )

    def part(self, start: int, end: int) -> Parcel:
        """The records from `start` up to `end`, with the keys that they use."""
        used, codes = np.unique(self.codes[start:end], return_inverse=True)
        keys = [self.keys[i] for i in used.tolist()]
        rows = self.rows.slice(start, len(codes))
        return Parcel(keys, codes.astype(np.int32), rows, self.key_column)

    def take(self, indices: np.ndarray[Any, Any]) -> Parcel:
        """The records at `indices`, in that order. Keys keep their numbers."""
        return Parcel(self.keys, self.codes[indices], self.rows.take(indices), self.key_column)

    def blobs(self, bytes_max: int = BLOB_BYTES_MAX) -> Iterator[bytes]:
        """This parcel as blobs of bounded size, each with the keys that its rows use."""
        origins = 0 if self.rows.origins is None else self.rows.origins.nbytes
        size = self.rows.nbytes + origins + sum(map(len, self.keys))
        pieces = max(1, -(-size // bytes_max))
        step = max(1, -(-len(self.rows) // pieces))
        for start in range(0, len(self.rows), step):
            piece = self if pieces == 1 else self.part(start, start + step)
            yield _blob(piece.keys, piece.codes, piece.rows, self.key_column)

    @staticmethod
    def read(blob: bytes) -> Parcel:
        """Decodes the parcel in a blob."""
        batch = ipc_batch(blob)
        key = batch.column(0)
        keys = key.dictionary.to_pylist()
        codes = key.indices.to_numpy().astype(np.int32)
        timestamps = batch.column(1).to_numpy()
        names = batch.schema.names
        origins = batch.column(2) if names[2:3] == [_ORIGIN] else None
        if names[-1] == _PACKED:
            packed = batch.column(len(names) - 1)
            return Parcel(keys, codes, Rows(timestamps, packed=packed, origins=origins))
        layout = msgspec.msgpack.decode(batch.schema.metadata[_LAYOUT], type=list[Column])
        own = iter(batch.columns[3 if origins is not None else 2 :])
        arrays: list[Any] = []
        encoded: str | None = None
        for column in layout:
            if column.source == _TIME:
                arrays.append(batch.column(1))
            elif column.source == _KEY:
                shown = pa.array([decode_key(k) for k in keys], _RESTORABLE[column.type])
                arrays.append(pa.DictionaryArray.from_arrays(pa.array(codes), shown))
                encoded = column.name
            else:
                arrays.append(next(own))
        columns = pa.RecordBatch.from_arrays(arrays, [column.name for column in layout])
        rows = Rows(timestamps, columns=columns, origins=origins, encoded=encoded)
        return Parcel(keys, codes, rows, encoded)

    @staticmethod
    def merge(parcels: Sequence[Parcel]) -> Parcel:
        """All records of `parcels` in order, over one list of distinct keys."""
        if len(parcels) == 1:
            return parcels[0]
        index: dict[bytes, int] = {}
        codes = []
        for parcel in parcels:
            mapping = np.fromiter(
                (index.setdefault(key, len(index)) for key in parcel.keys),
                np.int32,
                len(parcel.keys),
            )
            codes.append(mapping[parcel.codes] if len(mapping) else parcel.codes)
        merged = np.concatenate(codes) if codes else np.empty(0, np.int32)
        names = {parcel.key_column for parcel in parcels}
        rows = Rows.concat([p.rows for p in parcels])
        return Parcel(list(index), merged, rows, names.pop() if len(names) == 1 else None)


def _blob(
    keys: list[bytes], codes: np.ndarray[Any, Any], rows: Rows, key_column: str | None
) -> bytes:
    numbers = pa.array(codes, _code_type(len(keys)))
    key = pa.DictionaryArray.from_arrays(numbers, pa.array(keys, pa.binary()))
    arrays: list[Any] = [key, pa.array(rows.timestamps)]
    names = [_KEY, _TIME]
    if rows.origins is not None:
        arrays.append(rows.origins)
        names.append(_ORIGIN)
    if rows.packed is not None:
        return ipc_bytes(pa.RecordBatch.from_arrays([*arrays, rows.packed], [*names, _PACKED]))
    layout: list[Column] = []
    encoded = rows.encoded is not None and rows.encoded == key_column
    columns: Any = rows.stored if encoded else rows.columns
    for field, array in zip(columns.schema, columns.columns, strict=True):
        layout.append(_column(field, rows.time_column, key_column, encoded))
        if layout[-1].source == _VALUE:
            arrays.append(array)
            names.append(_VALUE + field.name)
    batch = pa.RecordBatch.from_arrays(arrays, names)
    return ipc_bytes(batch.replace_schema_metadata({_LAYOUT: msgspec.msgpack.encode(layout)}))


def _column(
    field: pa.Field, time_column: str | None, key_column: str | None, encoded: bool
) -> Column:
    if field.name == time_column:
        return Column(field.name, _TIME)
    if field.name == key_column:
        kind = str(field.type.value_type if encoded else field.type)
        if kind in _RESTORABLE:
            return Column(field.name, _KEY, kind)
    return Column(field.name, _VALUE)


def _code_type(keys: int) -> pa.DataType:
    """The smallest integer type that can number `keys` keys."""
    return pa.int8() if keys < 2**7 else pa.int16() if keys < 2**15 else pa.int32()
