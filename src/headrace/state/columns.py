"""Reads single rows of a segment's columns from Arrow's buffers, without a copy of the column.

A look-up wants a few rows of each of many segments. Arrow's own `take` needs about thirty
microseconds for each column, however few the rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

Rows = np.ndarray[Any, Any]
ColumnReader = Callable[[Rows], list[Any]]
"""Rows of a column, as a list of Python values."""


def numbers_of(values: np.ndarray[Any, Any]) -> ColumnReader:
    """Of numbers."""
    return lambda rows: values[rows].tolist()


def bits_of(data: pa.Buffer, offset: int) -> ColumnReader:
    """Of a column of booleans, which Arrow packs into bits."""
    packed = np.frombuffer(data, np.uint8) if data is not None else np.zeros(1, np.uint8)

    def read(rows: Rows) -> list[Any]:
        at = rows + offset
        return ((packed[at >> 3] >> (at & 7)) & 1).astype(np.bool_).tolist()

    return read


def slices_of(offsets: pa.Buffer, data: pa.Buffer, offset: int, *, text: bool) -> ColumnReader:
    """Of a column of bytes or text: parts of one buffer, from one offset to the next."""
    # Arrow leaves out buffers of columns without rows.
    begins = np.frombuffer(offsets, np.int32) if offsets is not None else np.zeros(1, np.int32)
    begins = begins[offset:]
    whole = memoryview(data if data is not None else b"")

    def read_bytes(rows: Rows) -> list[Any]:
        ends = begins[rows + 1].tolist()
        return [bytes(whole[a:b]) for a, b in zip(begins[rows].tolist(), ends, strict=True)]

    def read_text(rows: Rows) -> list[Any]:
        ends = begins[rows + 1].tolist()
        return [str(whole[a:b], "utf-8") for a, b in zip(begins[rows].tolist(), ends, strict=True)]

    return read_text if text else read_bytes
