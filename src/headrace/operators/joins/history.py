"""The join of two streams by key over all records that ever arrived.

Every pair is produced once, when the second of the two records arrives, with the later of both
times. All rows of a key match all rows of the other side, so a row is unmatched exactly while the
other side has no rows. With `how="left"` or "full", an unmatched row holds the output watermark at
its time, and is sent at the end of the input.

An epoch's rows of all keys are paired at once, in columns. New rows read only the chunks of the
other side; the chunks of their own side are never changed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.model.state import state
from headrace.model.values.time import END
from headrace.operators.columns.groups import Ints, group
from headrace.operators.joins.chunked import ChunkedJoin
from headrace.operators.joins.rows import SideRows, matching, new_pairs

if TYPE_CHECKING:
    from headrace.model.context import TableContext

WAIT = "wait"
_PLACE = struct.Struct(">q")


class HistoryJoin(ChunkedJoin):
    """Keeps every row of both sides; the place of a chunk is its epoch."""

    oldest: int = state(END)
    """The time of the oldest row without a partner."""

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Pairs an epoch's rows with all rows of the other side."""
        new = self.pairing.new_rows(ctx, self.left_stream, self.outer)
        stored = [self._stored(ctx, i, np.unique(new[1 - i].key)) for i in (0, 1)]
        both = (SideRows.concat([stored[0], new[0]]), SideRows.concat([stored[1], new[1]]))
        left, right = new_pairs(
            lambda a, b: matching(both[0].key[a], both[1].key[b]),
            (len(stored[0]), len(new[0])),
            (len(stored[1]), len(new[1])),
        )
        times = np.maximum(both[0].time[left], both[1].time[right])
        self.pairing.produce(ctx, both, (left, right), times)
        place = _PLACE.pack(ctx.epoch)
        for i in (0, 1):
            if len(new[i]):
                self._store(ctx, i, new[i], group([new[i].key]), lambda first: [place] * len(first))
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
        # For a key with new rows of one side, all rows of the other side were read.
        counts = [np.bincount(side.key, minlength=len(oldest)) for side in both]
        oldest[(counts[0] > 0) & (counts[1] > 0)] = END
        met = np.flatnonzero((before != END) & (oldest == END))
        waits = np.flatnonzero(oldest < before)
        ctx.cancel_timers(met, tag=WAIT)
        ctx.set_timers(waits, np.full(len(waits), END), tag=WAIT, hold=oldest[waits])
        ctx.write(oldest=oldest)

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """At the end of the input: sends the rows that have no partner."""
        keys = np.unique(table.column("key_index").to_numpy())
        sides = (self._stored(ctx, 0, keys), self._stored(ctx, 1, keys))
        for i in (0, 1):
            self.pairing.produce_alone(ctx, sides, i)
            # Feedback may still arrive, but these rows were already sent as unmatched.
            self._drop(ctx, i, *self._chunks(ctx, i, keys)[:2])
        ctx.write(oldest=np.full(len(ctx.keys()), END))

    def _stored(self, ctx: TableContext, side: int, keys: Ints) -> SideRows:
        """A side's rows of these keys."""
        if not len(keys):
            return SideRows.empty()
        owners, _, data = self._chunks(ctx, side, keys)
        return SideRows.of_chunks(owners, data.to_pylist())[0]
