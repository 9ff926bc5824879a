"""Reads single rows of a segment's columns from Arrow's buffers, without a copy of the column.

A look-up wants a few rows of each of many segments. Arrow's own `take` needs about thirty
microseconds for each column, however few the rows are.

A reader of a file that is checked in parts checks the parts that it reads, before it reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.log.blocks import BlockCheck

Rows = np.ndarray[Any, Any]
ColumnReader = Callable[[Rows], list[Any]]
"""Rows of a column, as a list of Python values."""


Checks = Callable[[Any, Any], None]
"""Checks parts of a buffer, given as arrays: from byte, up to byte."""


def checks_of(check: BlockCheck | None, data: pa.Buffer | None) -> Checks | None:
    """Checks parts of a buffer of a file; None if there is nothing to check."""
    if check is None or check.is_done or data is None:
        return None
    at = check.place_of(data)
    return lambda firsts, lasts: check.parts(firsts + at, lasts + at)


def numbers_of(values: np.ndarray[Any, Any], checks: Checks | None = None) -> ColumnReader:
    """Of numbers."""
    if checks is None:
        return lambda rows: values[rows].tolist()
    width = values.dtype.itemsize

    def read(rows: Rows) -> list[Any]:
        checks(rows * width, (rows + 1) * width)
        return values[rows].tolist()

    return read


def bits_of(data: pa.Buffer, offset: int, checks: Checks | None = None) -> ColumnReader:
    """Of a column of booleans, which Arrow packs into bits."""
    packed = np.frombuffer(data, np.uint8) if data is not None else np.zeros(1, np.uint8)

    def read(rows: Rows) -> list[Any]:
        at = rows + offset
        if checks is not None:
            checks(at >> 3, (at >> 3) + 1)
        return ((packed[at >> 3] >> (at & 7)) & 1).astype(np.bool_).tolist()

    return read


def slices_of(
    offsets: pa.Buffer,
    data: pa.Buffer,
    offset: int,
    *,
    text: bool,
    check: BlockCheck | None = None,
) -> ColumnReader:
    """Of a column of bytes or text: parts of one buffer, from one offset to the next."""
    # Arrow leaves out buffers of columns without rows.
    begins = np.frombuffer(offsets, np.int32) if offsets is not None else np.zeros(1, np.int32)
    begins = begins[offset:]
    whole = memoryview(data if data is not None else b"")
    of_offsets, of_data = checks_of(check, offsets), checks_of(check, data)

    def places(rows: Rows) -> zip[tuple[int, int]]:
        if of_offsets is not None:
            of_offsets((rows + offset) * 4, (rows + offset) * 4 + 8)
        firsts, lasts = begins[rows], begins[rows + 1]
        if of_data is not None:
            some = np.flatnonzero(lasts > firsts)
            of_data(firsts[some].astype(np.int64), lasts[some].astype(np.int64))
        return zip(firsts.tolist(), lasts.tolist(), strict=True)

    def read_bytes(rows: Rows) -> list[Any]:
        return [bytes(whole[a:b]) for a, b in places(rows)]

    def read_text(rows: Rows) -> list[Any]:
        return [str(whole[a:b], "utf-8") for a, b in places(rows)]

    return read_text if text else read_bytes
