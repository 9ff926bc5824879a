"""A parcel: records for one slot of one computation, keyed, as one Arrow blob.

Keys travel as a dictionary: each distinct key once, and a code per record. So a
million records of a thousand keys are hashed and encoded a thousand times, and
the consumer can group them without looking at a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.model.keys import hash_key
from headrace.model.rows import Rows

BLOB_BYTES_MAX = 32 << 20

_KEY, _TIME, _ORIGIN, _PACKED, _VALUE = "key", "time", "origin", "packed", "v."


class Parcel:
    """Rows with their keys: `keys[codes[i]]` is the key of row i."""

    __slots__ = ("codes", "keys", "rows")

    def __init__(self, keys: list[bytes], codes: np.ndarray[Any, Any], rows: Rows) -> None:
        self.keys = keys
        self.codes = codes
        self.rows = rows

    def hashes(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The hash of each distinct key."""
        return np.fromiter(map(hash_key, self.keys), np.uint64, len(self.keys))

    def blobs(self) -> Iterator[bytes]:
        """This parcel as blobs of bounded size."""
        pieces = max(1, -(-self.rows.nbytes // BLOB_BYTES_MAX))
        step = max(1, -(-len(self.rows) // pieces))
        for start in range(0, len(self.rows), step):
            yield self._blob(start, min(step, len(self.rows) - start))

    def _blob(self, start: int, length: int) -> bytes:
        rows = self.rows.slice(start, length)
        codes = pa.array(self.codes[start : start + length], pa.int32())
        arrays: list[Any] = [
            pa.DictionaryArray.from_arrays(codes, pa.array(self.keys, pa.binary())),
            pa.array(rows.timestamps),
        ]
        names = [_KEY, _TIME]
        if rows.origins is not None:
            arrays.append(rows.origins)
            names.append(_ORIGIN)
        if rows.packed is not None:
            arrays.append(rows.packed)
            names.append(_PACKED)
        else:
            columns = rows.columns
            arrays.extend(columns.columns)  # type: ignore[union-attr]
            names.extend(_VALUE + name for name in columns.schema.names)  # type: ignore[union-attr]
        return ipc_bytes(pa.RecordBatch.from_arrays(arrays, names))

    @staticmethod
    def read(blob: bytes) -> Parcel:
        """The parcel in a blob."""
        batch = ipc_batch(blob)
        names = batch.schema.names
        key = batch.column(0)
        timestamps = batch.column(1).to_numpy()
        origins = batch.column(2) if _ORIGIN in names[2:3] else None
        if _PACKED in names[2:4]:
            rows = Rows(timestamps, packed=batch.column(_PACKED), origins=origins)
        else:
            first = 3 if origins is not None else 2
            columns = pa.RecordBatch.from_arrays(
                batch.columns[first:], [name[len(_VALUE) :] for name in names[first:]]
            )
            rows = Rows(timestamps, columns=columns, origins=origins)
        return Parcel(key.dictionary.to_pylist(), key.indices.to_numpy(), rows)

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
        return Parcel(list(index), merged, Rows.concat([p.rows for p in parcels]))


def ipc_bytes(batch: pa.RecordBatch) -> bytes:
    """A record batch as an Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue().to_pybytes()


def ipc_batch(data: bytes) -> pa.RecordBatch:
    """The record batch of an Arrow IPC stream."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()
