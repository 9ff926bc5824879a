"""`ChunkedJoin`: the common base of columnar joins: chunks of both sides in state, and timers.

A chunk has the rows that one key got on one side in one epoch; some joins also cut chunks by window
or time range (`SideRows.chunks`). Its place is the key of its map entry. If the join knows when a
chunk is no longer needed, its place begins with that time. A subclass decides which rows match, and
when rows are no longer needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.model.computation import Computation
from headrace.model.map import Map
from headrace.model.state import state
from headrace.model.values.time import END
from headrace.operators.columns.groups import Groups, Ints, group
from headrace.operators.joins.combine import Pairing
from headrace.operators.joins.rows import SideRows

if TYPE_CHECKING:
    from headrace.model.context import TableContext

SIDES = ("left", "right")
Chunks = tuple[list[int], list[bytes], Any]
"""The keys and places of chunks, and the column of their rows."""

NONE: Ints = np.zeros(0, np.int64)


class ChunkedJoin(Computation):
    """Keeps rows of both sides in chunks."""

    reads_values = False  # it reads each side separately

    left: Map[bytes, bytes] = state()
    """Place -> rows of a chunk."""
    right: Map[bytes, bytes] = state()

    def __init__(self, pairing: Pairing, left_stream: str, how: str) -> None:
        self.pairing = pairing
        self.left_stream = left_stream
        self.outer = (how in ("left", "full"), how == "full")
        """For each side, whether rows without a partner are sent too."""

    def _chunks(
        self, ctx: TableContext, side: int, keys: Any
    ) -> tuple[list[int], list[bytes], Any]:
        """The chunks of these keys."""
        found = ctx.entries(SIDES[side], keys)
        owners, places = (found.column(name).to_pylist() for name in ("key_index", "entry"))
        return owners, places, found.column("value")

    def _store(
        self,
        ctx: TableContext,
        side: int,
        rows: SideRows,
        groups: Groups,
        places_of: Callable[[Ints], list[bytes]],
    ) -> tuple[Ints, list[bytes]]:
        """Stores a chunk per group; returns the position of its first row, and its place.

        `places_of` computes places from such positions.
        """
        first, chunks = rows.chunks(groups)
        places = places_of(first)
        ctx.put_entries(SIDES[side], rows.key[first], places, chunks)
        return first, places

    def _drop(
        self, ctx: TableContext, side: int, keys: Sequence[int], places: Sequence[bytes]
    ) -> None:
        """Removes chunks."""
        ctx.put_entries(SIDES[side], keys, places, [None] * len(places))

    def _earliest(self, ctx: TableContext, tag: str, key: Ints, at: Ints) -> tuple[Ints, Ints]:
        """Each key once, with its earliest time, or the time of its timer if that is earlier."""
        keys = group([key])
        owners = key[keys.one_row()]
        before = ctx.timers(tag).take(pa.array(owners)).fill_null(END).to_numpy()
        return owners, np.minimum(-keys.newest(-at), before)
