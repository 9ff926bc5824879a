"""What a segment has beside its rows: a Bloom filter, its timed cells in order of time, facts.

They lie in the file, between the end of the Arrow stream and the footer of the Arrow file, where no
reader of Arrow looks. So they are mapped as the columns are, and take no memory of the process.

The section: the words of the filter, the rows of each order, the facts about fields
(`../rows/facts.py`), a tail of fixed size. Format 2 has no facts. An order is
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
from headrace.log.blocks import BlockCheck, footer_of, table_in, with_table
from headrace.model.values.time import END
from headrace.state.bloom import Bloom
from headrace.state.rows.facts import UNKNOWN, FieldFacts, decode_facts, encode_facts

Rows = np.ndarray[Any, np.dtype[np.uint32]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

INDEXES = ("event", "wall", "hold", "waiting")
"""The indexes of timed cells: timers by their clocks, explicit holds, waiting records."""

_BOTH = ("event", "wall")
"""The indexes whose cells may hold at another time than their own."""
_ORDERS = (*INDEXES, *(f"{name} hold" for name in _BOTH))
_TAIL = struct.Struct(f"<{4 + len(_ORDERS)}Q8s")
_MAGIC = b"HRORDER3"
_TAIL_2 = struct.Struct(f"<{3 + len(_ORDERS)}Q8s")
_MAGIC_2 = b"HRORDERS"
"""Of format 2."""

_EMPTY = np.zeros(0, np.uint32)


class SegmentIndex(NamedTuple):
    """The Bloom filter and the orders of a segment."""

    bloom: Bloom
    kinds: int
    """Which kinds of cells there are, one bit each."""
    timed: int
    """How many rows are of timed cells, deleted ones included."""
    orders: Mapping[str, Rows]
    facts: FieldFacts = UNKNOWN

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
    facts: FieldFacts,
) -> SegmentIndex:
    """The index of a segment; `rows` are those of each index that are not deleted, in order."""
    orders: dict[str, Rows] = dict.fromkeys(_ORDERS, _EMPTY)
    for name, chosen in rows.items():
        orders[name] = chosen[np.argsort(times[chosen], kind="stable")]
        if name in _BOTH:
            holding = chosen[holds[chosen] != END]
            orders[f"{name} hold"] = holding[np.argsort(holds[holding], kind="stable")]
    return SegmentIndex(bloom, kinds, timed, orders, facts)


def with_index(arrow: pa.Buffer, index: SegmentIndex) -> bytes:
    """An Arrow file with the section of `index` before its footer, and a table of its blocks if it
    is large."""
    cut = footer_of(arrow) or 0
    whole = memoryview(arrow)
    parts: list[bytes] = [index.bloom.to_bytes()]
    for name in _ORDERS:
        parts += _filled(index.orders[name].astype("<u4", copy=False).tobytes())
    facts = encode_facts(index.facts)
    parts += _filled(facts)
    counts = (len(index.orders[name]) for name in _ORDERS)
    parts.append(
        _TAIL.pack(index.bloom.words, index.kinds, index.timed, *counts, len(facts), _MAGIC)
    )
    return with_table(whole[:cut], parts, whole[cut:])


def _filled(data: bytes) -> tuple[bytes, bytes]:
    """With zeros up to a multiple of eight bytes."""
    return data, bytes(-len(data) % 8)


def index_in(name: str, data: pa.Buffer, check: BlockCheck | None) -> SegmentIndex:
    """The index in a file. Its arrays are views of the file. Its bytes are checked."""
    table = table_in(data)
    end = (footer_of(data) or 0) if table is None else table.covered
    whole = memoryview(data)
    if check is not None:
        check.part(max(end - _TAIL.size, 0), end)
    if end >= _TAIL.size and bytes(whole[end - len(_MAGIC) : end]) == _MAGIC:
        end -= _TAIL.size
        words, kinds, timed, *counts, size, _ = _TAIL.unpack_from(whole, end)
    elif end >= _TAIL_2.size and bytes(whole[end - len(_MAGIC) : end]) == _MAGIC_2:
        end -= _TAIL_2.size
        words, kinds, timed, *counts, _ = _TAIL_2.unpack_from(whole, end)
        size = 0
    else:
        raise CorruptCheckpoint(f"{name} has no index of its cells by time")
    at = end - 8 * words - sum(4 * n + -4 * n % 8 for n in counts) - size - -size % 8
    if at < 0:
        raise CorruptCheckpoint(f"{name} has no index of its cells by time")
    if check is not None:
        check.part(at, end)
    bloom = Bloom(np.frombuffer(whole, "<u8", words, at))
    at += 8 * words
    orders: dict[str, Rows] = {}
    for order, count in zip(_ORDERS, counts, strict=True):
        orders[order] = np.frombuffer(whole, "<u4", count, at) if count else _EMPTY
        at += 4 * count + -4 * count % 8
    facts = decode_facts(name, whole[at : at + size]) if size else UNKNOWN
    return SegmentIndex(bloom, kinds, timed, orders, facts)
