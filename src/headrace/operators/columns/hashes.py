"""64-bit hashes of columns in numpy, for sketches. Equal values of one kind have equal hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.operators.columns.cells import CELLS, TYPES, values_in
from headrace.operators.columns.groups import float_order

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_MULTIPLY_1, _MULTIPLY_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def hash_column(values: pa.Array) -> Hashes:
    """The hash of each value of a column, typed or of cells. The hash of null is 0."""
    kind = values.type
    if values.null_count and not pa.types.is_null(kind):
        found = np.zeros(len(values), np.uint64)
        found[values.is_valid().to_numpy(False)] = hash_column(values.drop_null())
        return found
    if pa.types.is_null(kind) or not len(values):
        return np.zeros(len(values), np.uint64)
    if kind == CELLS:
        return _hash_cells(values)
    if pa.types.is_floating(kind):
        return mixed(float_order(values.to_numpy()).view(np.uint64) ^ _SALTS[float])
    if pa.types.is_boolean(kind):
        return mixed(values.cast(pa.int64()).to_numpy().view(np.uint64) ^ _SALTS[bool])
    if pa.types.is_integer(kind):
        return mixed(values.to_numpy().view(np.uint64) ^ _SALTS[int])
    return mixed(_hash_bytes(values) ^ _SALTS[str if pa.types.is_string(kind) else bytes])


_SALTS = {
    kind: np.uint64(n * 0x9E3779B97F4A7C15 & 2**64 - 1)
    for n, kind in enumerate((int, float, bool, str, bytes, list))
}
"""A seed per kind, because equal values of two kinds are different values."""


def _hash_cells(cells: pa.Array) -> Hashes:
    """The hashes of cells, equal to those of typed columns. Values of one kind go together."""
    found = np.zeros(len(cells), np.uint64)
    rows_of: dict[type, list[int]] = {}
    values = values_in(cells)
    for row, value in enumerate(values):
        kind = type(value)
        if kind not in TYPES or (kind is int and not -(2**63) <= value < 2**63):
            kind = list
        rows_of.setdefault(kind, []).append(row)
    for kind, rows in rows_of.items():
        if kind is list:  # kinds without a typed column: hash the bytes of the cells
            raw = cells.take(pa.array(rows)).cast(pa.binary())
            found[rows] = mixed(_hash_bytes(raw) ^ _SALTS[list])
        else:
            found[rows] = hash_column(pa.array([values[row] for row in rows], TYPES[kind]))
    return found


def mixed(numbers: Hashes) -> Hashes:
    """The finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        z = numbers + _STEP
        z = (z ^ (z >> np.uint64(30))) * _MULTIPLY_1
        z = (z ^ (z >> np.uint64(27))) * _MULTIPLY_2
        return z ^ (z >> np.uint64(31))


def _hash_bytes(values: pa.Array) -> Hashes:
    """Hashes eight bytes of every value per round; longer values need more rounds."""
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
