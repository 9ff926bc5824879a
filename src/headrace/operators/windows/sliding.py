"""Sliding windows: one window ends with each record, and contains the records before it.

An entry of the state is the aggregate of one key's records at one instant. When the watermark has
passed the entry, the entries of the window that ends there are merged and emitted. The entry stays
until no window can contain it any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.model.context import TableContext
from headrace.model.values.time import END, Duration
from headrace.operators.columns.groups import Groups, Ints, group
from headrace.operators.columns.records import Records
from headrace.operators.windows.aggregation import CLOSE, CombinedAggregate, WindowAggregate
from headrace.operators.windows.merge_ranges import Failures, merge_runs, rows_up_to
from headrace.operators.windows.partials import Partials
from headrace.operators.windows.window import Assigned, Every, Window, positive


@dataclass(frozen=True)
class Sliding(Window):
    """The window of a record is the time up to the record. It includes earlier records."""

    size_us: int

    event_time_only: ClassVar[bool] = True
    final_only: ClassVar[bool] = True
    can_join: ClassVar[bool] = False
    can_rank: ClassVar[bool] = False

    def assign(self, times: Ints) -> Assigned:
        return np.arange(len(times)), times + 1 - self.size_us, times + 1

    def cut(self, records: Records) -> tuple[Groups, Ints, Ints]:
        groups = group([records.times, records.key])
        ends = records.times[groups.one_row()] + 1
        return groups, ends - self.size_us, ends

    def computations(self, by: str, emit: str | Every) -> tuple[type[Any], type[Any]] | None:
        return CombinedSliding, SlidingAggregate


def sliding(size: Duration) -> Window:
    """A window that ends with each record: all records of the key in the last `size`.

    For a record at t it is [t + 1 - size, t + 1), in microseconds. Records of one key
    with the same timestamp share it.
    """
    return Sliding(positive(size, "sliding"))


class SlidingAggregate(WindowAggregate):
    """Aggregates over the window that ends with each record."""

    window: Sliding

    def _next(self, rows: Partials) -> Ints:
        closes = self._closes(rows.end)
        size = self.window.size_us
        return np.where(rows.emitted == 0, closes, np.minimum(closes, END - size) + size)

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """Emits windows that are due, and removes entries that no window needs any more."""
        rows = self._stored(ctx, np.unique(table.column("key_index").to_numpy()))
        if not len(rows):
            return
        rows = rows.take(np.lexsort((rows.end, rows.key)))
        due = (self._closes(rows.end) <= ctx.watermark) & (rows.emitted == 0)
        if due.any():
            failures: Failures = {}
            windows = self._windows(rows, np.flatnonzero(due), failures)
            self._send(windows, ctx, failures=failures)
            rows.emitted[due] = rows.count[due]
        over = (self._next(rows) <= ctx.watermark) & (rows.emitted > 0)
        gone, kept, left = rows.take(over), rows.take(due & ~over), rows.take(~over)
        ctx.put_entries("open", gone.key, gone.windows(), [None] * len(gone))
        ctx.put_entries("open", kept.key, kept.windows(), kept.cells(self.maker))
        if len(left) and not ctx.final:
            keys = group([left.key])
            at = -keys.newest(-self._next(left))
            hold = -keys.newest(-np.where(left.emitted == 0, left.end - 1, END))
            ctx.set_timers(left.key[keys.one_row()], at, tag=CLOSE, hold=hold)

    def _windows(self, rows: Partials, due: Ints, failures: Failures) -> Partials:
        """For each due row, the merge of its key's rows from one size before it up to it."""
        low = rows_up_to(rows.key, rows.end, rows.key[due], rows.end[due] - self.window.size_us)
        merged = merge_runs(self.aggregates, rows, low, due - low + 1, failures)
        merged.start, merged.end = rows.start[due], rows.end[due]
        return merged


class CombinedSliding(SlidingAggregate, CombinedAggregate):
    """`SlidingAggregate` that creates partials before the shuffle."""
