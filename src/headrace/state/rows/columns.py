"""Reads single rows of a segment's columns from Arrow's buffers, without a copy of the column.

A look-up wants a few rows of each of many segments. Arrow's own `take` needs about thirty
microseconds for each column, however few the rows are.

A reader of a file that is checked in parts checks the parts that it reads, before it reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.log.blocks import BlockCheck

Rows = np.ndarray[Any, Any]
ColumnReader = Callable[[Rows], list[Any]]
"""Rows of a column, as a list of Python values."""


FEW = 256
"""So many rows are read one by one sooner than as arrays."""


class Checked:
    """A buffer of a file whose parts are checked before they are read."""

    __slots__ = ("_at", "_check")

    def __init__(self, check: BlockCheck, data: pa.Buffer) -> None:
        self._check, self._at = check, check.place_of(data)

    @staticmethod
    def of(check: BlockCheck | None, data: pa.Buffer | None) -> Checked | None:
        """None if there is nothing to check."""
        if check is None or check.is_done or data is None:
            return None
        return Checked(check, data)

    def items(self, rows: Rows, width: int, size: int) -> None:
        """Checks the items of some rows: one begins every `width` bytes, and has `size`."""
        if len(rows) <= FEW:
            firsts = (rows * width).tolist()
            self._check.each(self._at, [(first, first + size) for first in firsts])
        else:
            self._check.arrays(self._at, rows * width, rows * width + size)

    def parts(self, firsts: Sequence[int], lasts: Sequence[int]) -> None:
        """Checks parts, some of which may be empty."""
        if len(firsts) <= FEW:
            self._check.each(self._at, zip(firsts, lasts, strict=True))
        else:
            self._check.arrays(self._at, np.array(firsts), np.array(lasts))


def numbers_of(values: np.ndarray[Any, Any], checked: Checked | None = None) -> ColumnReader:
    """Of numbers."""
    if checked is None:
        return lambda rows: values[rows].tolist()
    width = values.dtype.itemsize

    def read(rows: Rows) -> list[Any]:
        checked.items(rows, width, width)
        return values[rows].tolist()

    return read


def bits_of(data: pa.Buffer, offset: int, checked: Checked | None = None) -> ColumnReader:
    """Of a column of booleans, which Arrow packs into bits."""
    packed = np.frombuffer(data, np.uint8) if data is not None else np.zeros(1, np.uint8)

    def read(rows: Rows) -> list[Any]:
        at = rows + offset
        if checked is not None:
            checked.items(at >> 3, 1, 1)
        return ((packed[at >> 3] >> (at & 7)) & 1).astype(np.bool_).tolist()

    return read


def slices_of(
    offsets: pa.Buffer,
    data: pa.Buffer,
    offset: int,
    *,
    text: bool,
    check: BlockCheck | None = None,
    width: int | None = None,
) -> ColumnReader:
    """Of a column of bytes or text: parts of one buffer, from one offset to the next.

    `width`: how long all parts are, if that is known. Then offsets are not read: in a file they
    begin with zero.
    """
    # Arrow leaves out buffers of columns without rows.
    begins = np.frombuffer(offsets, np.int32) if offsets is not None else np.zeros(1, np.int32)
    begins = begins[offset:]
    whole = memoryview(data if data is not None else b"")
    of_offsets, of_data = Checked.of(check, offsets), Checked.of(check, data)

    def places(rows: Rows) -> zip[tuple[int, int]]:
        if width is not None:
            starts = (rows.astype(np.int64) + offset) * width
            firsts, lasts = starts.tolist(), (starts + width).tolist()
        else:
            if of_offsets is not None:
                of_offsets.items(rows + offset, 4, 8)
            firsts, lasts = begins[rows].tolist(), begins[rows + 1].tolist()
        if of_data is not None:
            of_data.parts(firsts, lasts)
        return zip(firsts, lasts, strict=True)

    def read_bytes(rows: Rows) -> list[Any]:
        return [bytes(whole[a:b]) for a, b in places(rows)]

    def read_text(rows: Rows) -> list[Any]:
        return [str(whole[a:b], "utf-8") for a, b in places(rows)]

    return read_text if text else read_bytes
