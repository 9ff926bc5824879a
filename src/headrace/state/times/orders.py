"""What a segment has beside its rows: a Bloom filter, and its timed cells in order of time.

Both lie in the file, between the end of the Arrow stream and the footer of the Arrow file, where no
reader of Arrow looks. So they are mapped as the columns are, and take no memory of the process.

The section: the words of the filter, the rows of each order, a tail of fixed size. An order is
the row numbers of cells of one index, sorted by (time, row), or by (hold, row). Rows are sorted by
hash, so an order is sorted by (time, hash). Deleted cells are in no order, and cells that hold
nothing are in no order by hold. For holds and waiting records both orders are the same.

This module does not know what a row means, only its time and hold.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptCheckpoint
from headrace.model.values.time import END
from headrace.state.bloom import Bloom

Rows = np.ndarray[Any, np.dtype[np.uint32]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

INDEXES = ("event", "wall", "hold", "waiting")
"""The indexes of timed cells: timers by their clocks, explicit holds, waiting records."""

_BOTH = ("event", "wall")
"""The indexes whose cells may hold at another time than their own."""
_ORDERS = (*INDEXES, *(f"{name} hold" for name in _BOTH))
_TAIL = struct.Struct(f"<{3 + len(_ORDERS)}Q8s")
_MAGIC = b"HRORDERS"
_ARROW_END = struct.Struct("<i6s")

_EMPTY = np.zeros(0, np.uint32)


class SegmentIndex(NamedTuple):
    """The Bloom filter and the orders of a segment."""

    bloom: Bloom
    kinds: int
    """Which kinds of cells there are, one bit each."""
    timed: int
    """How many rows are of timed cells, deleted ones included."""
    orders: Mapping[str, Rows]

    def by_time(self, name: str) -> Rows:
        """The rows of an index, by time."""
        return self.orders[name]

    def by_hold(self, name: str) -> Rows:
        """The rows of an index that hold the watermark, by hold."""
        return self.orders[f"{name} hold" if name in _BOTH else name]


def index_of(
    bloom: Bloom,
    kinds: int,
    timed: int,
    rows: Mapping[str, Rows],
    times: Numbers,
    holds: Numbers,
) -> SegmentIndex:
    """The index of a segment; `rows` are those of each index that are not deleted, in order."""
    orders: dict[str, Rows] = dict.fromkeys(_ORDERS, _EMPTY)
    for name, chosen in rows.items():
        orders[name] = chosen[np.argsort(times[chosen], kind="stable")]
        if name in _BOTH:
            holding = chosen[holds[chosen] != END]
            orders[f"{name} hold"] = holding[np.argsort(holds[holding], kind="stable")]
    return SegmentIndex(bloom, kinds, timed, orders)


def with_index(arrow: pa.Buffer, index: SegmentIndex) -> bytes:
    """An Arrow file with the section of `index` before its footer."""
    cut = _footer(arrow)
    whole = memoryview(arrow)
    parts: list[Any] = [whole[:cut], index.bloom.to_bytes()]
    for name in _ORDERS:
        data = index.orders[name].astype("<u4", copy=False).tobytes()
        parts += (data, bytes(-len(data) % 8))
    counts = (len(index.orders[name]) for name in _ORDERS)
    parts += (_TAIL.pack(index.bloom.words, index.kinds, index.timed, *counts, _MAGIC), whole[cut:])
    return b"".join(parts)


def index_in(name: str, data: pa.Buffer) -> SegmentIndex:
    """The index in a file. Its arrays are views of the file."""
    end = _footer(data) - _TAIL.size
    whole = memoryview(data)
    words, kinds, timed, *counts, magic = _TAIL.unpack_from(whole, max(end, 0))
    at = end - 8 * words - sum(4 * n + -4 * n % 8 for n in counts)
    if magic != _MAGIC or at < 0:
        raise CorruptCheckpoint(f"{name} has no index of its cells by time")
    bloom = Bloom(np.frombuffer(whole, "<u8", words, at))
    at += 8 * words
    orders: dict[str, Rows] = {}
    for order, count in zip(_ORDERS, counts, strict=True):
        orders[order] = np.frombuffer(whole, "<u4", count, at) if count else _EMPTY
        at += 4 * count + -4 * count % 8
    return SegmentIndex(bloom, kinds, timed, orders)


def _footer(arrow: pa.Buffer) -> int:
    """Where the footer of an Arrow file begins."""
    length, _ = _ARROW_END.unpack_from(memoryview(arrow), arrow.size - _ARROW_END.size)
    return int(arrow.size - _ARROW_END.size - length)
