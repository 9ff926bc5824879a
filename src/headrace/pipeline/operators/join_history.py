"""The join of two streams by key over all that ever came.

Every pair is produced once, when the second of the two arrives, stamped with the
later time. As all rows of a key match all rows of its other side, a row is
unmatched exactly while the other side has none; with `how="left"` or "full" it
then holds the output watermark at its own time, and comes out at the very end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.model.computation import Computation
from headrace.model.map import Map
from headrace.model.state import state
from headrace.model.time import END
from headrace.pipeline.operators.join_rows import Kept, Pairing

if TYPE_CHECKING:
    from headrace.model.context import Context
    from headrace.model.record import Record, Timer


class HistoryJoin(Computation):
    """Keeps every row of both sides."""

    left: Map[int, Kept] = state()
    right: Map[int, Kept] = state()
    left_count: int = state(0)
    right_count: int = state(0)
    oldest: int = state(END)
    """Of the rows that wait without any partner."""

    def __init__(self, pairing: Pairing, left_stream: str, how: str) -> None:
        self.pairing = pairing
        self.left_stream = left_stream
        self.how = how

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Pairs a row with all of the other side."""
        pairing, time = self.pairing, record.timestamp
        row = pairing.row(record.value)
        if record.stream == self.left_stream:
            for kept in self.right.values():
                pair = pairing(row, kept.columns(), ctx.key)
                ctx.produce(pair, timestamp=max(time, kept.timestamp))
            self.left[self.left_count] = Kept.of(row, time)
            self.left_count += 1
        else:
            for kept in self.left.values():
                pair = pairing(kept.columns(), row, ctx.key)
                ctx.produce(pair, timestamp=max(time, kept.timestamp))
            self.right[self.right_count] = Kept.of(row, time)
            self.right_count += 1
        if self.how != "inner":
            self._wait(time, ctx)

    def _wait(self, time: int, ctx: Context) -> None:
        if self.left_count and self.right_count:
            if self.oldest != END:
                self.oldest = END
                ctx.cancel_timer()
        elif (self.left_count or self.how == "full") and time < self.oldest:
            self.oldest = time
            ctx.set_timer(at=END, hold=time)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """The end: what has found no partner never will."""
        for kept in self.left.values():
            ctx.produce(self.pairing(kept.columns(), None, ctx.key), timestamp=kept.timestamp)
        for kept in self.right.values():
            ctx.produce(self.pairing(None, kept.columns(), ctx.key), timestamp=kept.timestamp)
