"""64-bit hashes of Arrow columns in numpy, for sketches. Equal values have equal hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_MULTIPLY_1, _MULTIPLY_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def hash_column(values: pa.Array) -> Hashes:
    """The hash of each value; that of a null is 0."""
    kind = values.type
    if values.null_count and not pa.types.is_null(kind):
        found = np.zeros(len(values), np.uint64)
        found[values.is_valid().to_numpy(False)] = hash_column(values.drop_null())
        return found
    if pa.types.is_null(kind) or not len(values):
        return np.zeros(len(values), np.uint64)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return mixed(values.cast(pa.int64(), safe=False).to_numpy(False).view(np.uint64))
    if pa.types.is_floating(kind):
        numbers = values.cast(pa.float64()).to_numpy(False)
        whole = (numbers == np.rint(numbers)) & (np.abs(numbers) < 2**53)
        as_ints = np.where(whole, numbers, 0).astype(np.int64).view(np.uint64)
        # A whole float is the same value as the integer: a column may change its type.
        return mixed(np.where(whole, as_ints, numbers.view(np.uint64)))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_bytes(values)
    raise TypeError(f"an approximate distinct count takes numbers, text or bytes, not {kind}")


def mixed(numbers: Hashes) -> Hashes:
    """The finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        z = numbers + _STEP
        z = (z ^ (z >> np.uint64(30))) * _MULTIPLY_1
        z = (z ^ (z >> np.uint64(27))) * _MULTIPLY_2
        return z ^ (z >> np.uint64(31))


def _hash_bytes(values: pa.Array) -> Hashes:
    """Eight bytes of every value at a time; long ones go more rounds."""
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)
    offsets = offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)
    raw = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    data = np.concatenate([raw, np.zeros(8, np.uint8)])
    starts, lengths = offsets[:-1], np.diff(offsets)
    found = mixed(lengths.astype(np.uint64))
    at = 0
    rows = np.flatnonzero(lengths > 0)
    while len(rows):
        places = starts[rows, None] + at + np.arange(8)
        left = lengths[rows, None] - at
        cells = np.where(np.arange(8) < left, data[np.minimum(places, len(data) - 1)], 0)
        words = np.ascontiguousarray(cells.astype(np.uint8)).view(np.uint64)[:, 0]
        found[rows] = mixed(found[rows] ^ words)
        at += 8
        rows = rows[lengths[rows] > at]
    return found
