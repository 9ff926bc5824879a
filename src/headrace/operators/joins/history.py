"""The join of two streams by key over all that ever came.

Every pair is produced once, when the second of the two arrives, stamped with the
later time. As all rows of a key match all rows of its other side, a row is
unmatched exactly while the other side has none; with `how="left"` or "full" it
then holds the output watermark at its own time, and comes out at the very end.

An epoch's rows of all keys are paired at once, in columns. A row reads the other side's
chunks only; its own side's are never touched again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.model.computation import Computation
from headrace.model.map import Map
from headrace.model.state import state
from headrace.model.values.time import END
from headrace.operators.columns.groups import Ints, group
from headrace.operators.joins.combine import Pairing
from headrace.operators.joins.rows import SideRows, matching, new_pairs

if TYPE_CHECKING:
    from headrace.model.context import TableContext

SIDES = ("left", "right")
WAIT = "wait"
_PLACE = struct.Struct(">q")


class HistoryJoin(Computation):
    """Keeps every row of both sides."""

    reads_values = False  # it takes each side for itself

    left: Map[bytes, bytes] = state()
    """Epoch -> rows; see `SideRows.chunks`."""
    right: Map[bytes, bytes] = state()
    oldest: int = state(END)
    """Of the rows that wait without any partner."""

    def __init__(self, pairing: Pairing, left_stream: str, how: str) -> None:
        self.pairing = pairing
        self.left_stream = left_stream
        self.outer = (how in ("left", "full"), how == "full")

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Pairs an epoch's rows with all of the other side."""
        new = self.pairing.new_rows(ctx, self.left_stream, self.outer)
        stored = [_stored(ctx, i, np.unique(new[1 - i].key)) for i in (0, 1)]
        both = (SideRows.concat([stored[0], new[0]]), SideRows.concat([stored[1], new[1]]))
        left, right = new_pairs(
            lambda a, b: matching(both[0].key[a], both[1].key[b]),
            (len(stored[0]), len(new[0])),
            (len(stored[1]), len(new[1])),
        )
        times = np.maximum(both[0].time[left], both[1].time[right])
        self.pairing.produce(ctx, both, (left, right), times)
        for i in (0, 1):
            if len(new[i]):
                first, chunks = new[i].chunks(group([new[i].key]))
                places = [_PLACE.pack(ctx.epoch)] * len(chunks)
                ctx.put_entries(SIDES[i], new[i].key[first], places, chunks)
        if self.outer[0]:
            self._wait(ctx, new, both)

    def _wait(
        self, ctx: TableContext, new: list[SideRows], both: tuple[SideRows, SideRows]
    ) -> None:
        """Sets and ends the holds of keys that have rows of one side only."""
        before = ctx.read().column("oldest").to_numpy()
        oldest = before.copy()
        for i in (0, 1):
            if self.outer[i]:
                np.minimum.at(oldest, new[i].key, new[i].time)
        # Of a key with new rows of one side, what is known of the other is all that there is.
        counts = [np.bincount(side.key, minlength=len(oldest)) for side in both]
        oldest[(counts[0] > 0) & (counts[1] > 0)] = END
        met = np.flatnonzero((before != END) & (oldest == END))
        waits = np.flatnonzero(oldest < before)
        ctx.cancel_timers(met, tag=WAIT)
        ctx.set_timers(waits, np.full(len(waits), END), tag=WAIT, hold=oldest[waits])
        ctx.write(oldest=oldest)

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """The end: what has found no partner never will."""
        keys = np.unique(table.column("key_index").to_numpy())
        sides = (_stored(ctx, 0, keys), _stored(ctx, 1, keys))
        for i in (0, 1):
            self.pairing.produce_alone(ctx, sides, i)
            # Feedback may still come, but these have come out as having no partner.
            gone = ctx.entries(SIDES[i], keys)
            none = [None] * gone.num_rows
            ctx.put_entries(SIDES[i], gone.column("key_index"), gone.column("entry"), none)
        ctx.write(oldest=np.full(len(ctx.keys()), END))


def _stored(ctx: TableContext, side: int, keys: Ints) -> SideRows:
    """A side's rows of these keys."""
    if not len(keys):
        return SideRows.empty()
    found = ctx.entries(SIDES[side], keys)
    owners = found.column("key_index").to_pylist()
    return SideRows.of_chunks(owners, found.column("value").to_pylist())[0]
