"""`dedup`: the first record of each id within a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.model.computation import Computation
from headrace.model.state import state
from headrace.model.time import END
from headrace.pipeline.operators.stateless import record_times

if TYPE_CHECKING:
    from headrace.model.context import TableContext


class DedupWithin(Computation):
    """Passes on the first record of an id; further ones within the time are dropped and counted.

    "First" is the first to arrive. An id is remembered until the watermark has passed its
    record by `within_us`; a record older than that cannot be judged, so it is dropped as late.
    """

    reads_values = False
    prompt = True
    seen: int = state(0)

    def __init__(self, within_us: int) -> None:
        self.within_us = within_us

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All records of a slot."""
        owners = table.column("key_index").to_numpy()
        times = record_times(table)
        old = times < ctx.watermark - self.within_us
        seen = ctx.read().column("seen").to_numpy().copy()
        fresh = np.flatnonzero(~old & (seen[owners] == 0))
        keys, firsts = np.unique(owners[fresh], return_index=True)
        chosen = np.sort(fresh[firsts])
        for metric, n in (("late", old.sum()), ("duplicates", (~old).sum() - len(chosen))):
            if n:
                ctx.count(metric, int(n))
        seen[keys] = 1
        ctx.write(seen=seen)
        # From then on its duplicates are too late themselves, so the id may go.
        until = np.maximum(times[fresh[firsts]], ctx.watermark) + self.within_us + 1
        ctx.set_timers(keys, until, hold=np.full(len(keys), END))
        ctx.pass_on(chosen)

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """The time has passed."""
        seen = ctx.read().column("seen").to_numpy().copy()
        seen[table.column("key_index").to_numpy()] = 0
        ctx.write(seen=seen)
