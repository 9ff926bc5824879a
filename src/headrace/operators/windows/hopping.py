"""Hopping windows: windows of one size that begin at a fixed step, so a record is in several.

If windows are emitted once, the state has panes. A record is part of size / every windows, but it
changes only one pane. When the watermark passes the end of a window, its panes are merged and
emitted. A pane stays until the last window that contains it has closed. The state need not say
which windows were emitted: these are the windows that the previous epoch's watermark had passed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.model.context import TableContext
from headrace.model.values.time import END, Duration
from headrace.operators.columns.groups import Groups, Ints, group
from headrace.operators.columns.records import Records
from headrace.operators.windows.aggregation import CLOSE, CombinedAggregate, WindowAggregate
from headrace.operators.windows.merge_ranges import Failures, merge_runs, rows_up_to
from headrace.operators.windows.partials import Partials
from headrace.operators.windows.tumbling import cut_evenly
from headrace.operators.windows.window import Assigned, Every, Window, positive

HOPS_MAX = 100_000
"""The maximum number of hopping windows of a record. Each of them becomes a row."""


@dataclass(frozen=True)
class Hopping(Window):
    """Windows of one size that begin at a fixed step, aligned to 1970 UTC."""

    size_us: int
    every_us: int

    overlapping: ClassVar[bool] = True

    def assign(self, times: Ints) -> Assigned:
        last = times // self.every_us * self.every_us
        most = -(-self.size_us // self.every_us)
        starts = (last[:, None] - np.arange(most) * self.every_us).ravel()
        of = np.repeat(np.arange(len(times)), most)
        kept = starts > times[of] - self.size_us
        starts = starts[kept]
        # A time may be any 64-bit number: the last window ends at the largest time.
        return of[kept], starts, np.minimum(starts, END - self.size_us) + self.size_us

    def windows_of(self, times: Ints) -> Assigned:
        return self.assign(times)  # known to be correct, so it needs no check

    def pieces(self, times: Ints) -> tuple[Ints, Ints]:
        starts = times // self.pane_us * self.pane_us
        return starts, starts + self.pane_us

    def cut(self, records: Records) -> tuple[Groups, Ints, Ints]:
        return cut_evenly(records, self.pane_us)

    def last_ends(self, starts: Ints, ends: Ints) -> Ints:
        return starts // self.every_us * self.every_us + self.size_us

    @property
    def pane_us(self) -> int:
        """The length of the largest range of time that no window cuts."""
        return math.gcd(self.size_us, self.every_us)

    def computations(self, by: str, emit: str | Every) -> tuple[type[Any], type[Any]] | None:
        """Computations with panes, if windows are emitted once, by event time."""
        return (CombinedPaned, PanedAggregate) if by == "event" and emit == "final" else None


def hopping(size: Duration, *, every: Duration) -> Window:
    """Windows of one size that begin at a fixed step. A record is in several of them."""
    size_us, every_us = positive(size, "hopping"), positive(every, "hopping: every=")
    if every_us > size_us:
        raise InvalidPipeline(
            f"hopping({size!r}, every={every!r}) leaves gaps between windows; let every= be at "
            "most the size"
        )
    if size_us > HOPS_MAX * every_us:
        raise InvalidPipeline(
            f"hopping({size!r}, every={every!r}): each record would be in "
            f"{-(-size_us // every_us):,} windows, and {HOPS_MAX:,} are the limit; let every= be "
            "longer, or take sliding(size), which has one window per record"
        )
    return Hopping(size_us, every_us)


class PanedAggregate(WindowAggregate):
    """Aggregates of hopping windows from panes."""

    window: Hopping
    in_panes = True

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Merges new records into panes."""
        rows, arrived = self._arrived(ctx)
        if not len(rows):
            return  # all of them were refused
        too_late = self._closes(self.window.last_ends(rows.start, rows.end)) <= ctx.watermark_before
        if too_late.any():
            self._aside(rows.count[too_late], arrived, too_late, ctx)
            rows = rows.take(~too_late)
        rows = self._merge_stored(rows, ctx)
        if len(rows):
            ctx.put_entries("open", rows.key, rows.windows(), rows.cells(self.maker))
            self._wake(rows, ctx.watermark_before, ctx)

    def _first_end(self, rows: Partials, passed: int) -> Ints:
        """The end of each pane's first window that `passed` has not closed.

        It may be after the end of the pane's last window.
        """
        size, every = self.window.size_us, self.window.every_us
        first = -(-(rows.end - size) // every) * every + size
        open_from = (passed - self.grace_us - size) // every * every + every + size
        return np.maximum(first, open_from)

    def _wake(self, rows: Partials, passed: int, ctx: TableContext) -> None:
        keys = group([rows.key])
        owners = rows.key[keys.one_row()]
        at = -keys.newest(-self._closes(self._first_end(rows, passed)))
        before = ctx.timers(CLOSE).take(pa.array(owners)).fill_null(END).to_numpy()
        at = np.minimum(at, before)
        ctx.set_timers(owners, at, tag=CLOSE, hold=self._hold(at))

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """Emits the windows that the watermark has passed in this epoch."""
        rows = self._stored(ctx, np.unique(table.column("key_index").to_numpy()))
        if not len(rows):
            return
        rows = rows.take(np.lexsort((rows.end, rows.key)))
        every, last = self.window.every_us, self.window.last_ends(rows.start, rows.end)
        first = self._first_end(rows, ctx.watermark_before)
        until = last
        if not ctx.final:
            passed = ctx.watermark - self.grace_us - self.window.size_us
            until = np.minimum(last, passed // every * every + self.window.size_us)
        failures: Failures = {}
        windows = self._due(rows, first, until, failures)
        if len(windows):
            self._send(windows, ctx, failures=failures)
        over = self._closes(last) <= ctx.watermark
        gone, left = rows.take(over), rows.take(~over)
        ctx.put_entries("open", gone.key, gone.windows(), [None] * len(gone))
        if len(left):
            self._wake(left, ctx.watermark, ctx)

    def _due(self, rows: Partials, first: Ints, until: Ints, failures: Failures) -> Partials:
        """The windows from each pane's `first` end to its `until`, each of them once.

        Both rise from pane to pane of a key, so each pane adds the windows after the last window
        of the pane before it.
        """
        every, size = self.window.every_us, self.window.size_us
        follows = np.zeros(len(rows), np.bool_)
        follows[1:] = rows.key[1:] == rows.key[:-1]
        behind = np.minimum(until[:-1], END - every) + every
        first[1:] = np.where(follows[1:], np.maximum(first[1:], behind), first[1:])
        number = np.maximum((until - first) // every + 1, 0)
        who = np.repeat(np.arange(len(rows)), number)
        nth = np.arange(len(who)) - np.repeat(np.cumsum(number) - number, number)
        ends, keys = first[who] + nth * every, rows.key[who]
        # No window cuts a pane, so a window is a range of whole panes.
        low = rows_up_to(rows.key, rows.end, keys, ends - size)
        high = rows_up_to(rows.key, rows.end, keys, ends)
        merged = merge_runs(self.aggregates, rows, low, high - low, failures)
        merged.start, merged.end = ends - size, ends
        return merged


class CombinedPaned(PanedAggregate, CombinedAggregate):
    """`PanedAggregate` that creates partials before the shuffle."""
