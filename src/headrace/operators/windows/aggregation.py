"""Windows and aggregates on `process_table`: merge partials into state, emit by timers.

Before the shuffle, records become partials per (key, window) (`combine_rows`). In the slot these
are merged with the key's stored partials, one entry per open window. One timer per key fires when
its next window is due. Rows have the timestamp `end - 1`. The output watermark stays `grace` behind
the input watermark (`lag_us`), so no row, and no correction, is late downstream.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.model.computation import Computation
from headrace.model.context import TableContext
from headrace.model.map import Map
from headrace.model.state import state
from headrace.model.values.rows import Rows
from headrace.model.values.time import END
from headrace.operators.aggregates.aggregate import Aggregate, Unfinished
from headrace.operators.columns.groups import Groups, Ints, group
from headrace.operators.columns.output import Column, key_columns, send
from headrace.operators.columns.records import Records, Refuse
from headrace.operators.windows import partials
from headrace.operators.windows.merge_ranges import Failures
from headrace.operators.windows.partials import Partials
from headrace.operators.windows.window import Every, Window
from headrace.operators.windows.withdrawals import Replaced, Standing, withdraws

AFTER_THE_END = "late after the end"
"""A metric: records for windows that closed in an earlier run, because its input had ended."""

CLOSE, TICK, FLUSH = "close", "tick", "flush"
"""Tags of timers: a window of the key is due; time to emit changes; the input has ended."""


@dataclass
class Arrived:
    """The group of each accepted record, and its position among all that arrived."""

    groups: Groups
    positions: Ints


class WindowAggregate(Computation):
    """Aggregates per key and window. Records that are too late go to the port `late`."""

    open: Map[bytes, bytes] = state()
    """(end, start) of a window -> its counts and accumulators; see `Partials`."""

    reads_values = False  # it reads the columns that it needs from the records themselves

    in_panes: ClassVar[bool] = False
    """Whether entries are pieces of windows, which are merged when a window is due."""

    def __init__(
        self,
        window: Window,
        aggregates: dict[str, Aggregate],
        *,
        key_columns: tuple[str, ...],
        by: str = "event",
        grace_us: int = 0,
        emit: str | Every = "final",
        late: bool = False,
    ) -> None:
        self.window = window
        self.names = tuple(aggregates)
        self.aggregates = tuple(aggregates.values())
        self.withdraws = withdraws(window, emit)
        if self.withdraws:
            self.aggregates += (Standing(None),)
        self.key_columns = key_columns
        self.by_event = by == "event"
        self.grace_us = self.lag_us = grace_us
        self.emit, self.late = emit, late
        self.prompt = window.endless and emit == "changes"
        self.combined = False
        self.forms = partials.forms_of(self.aggregates)
        self.maker = self._checksum(by)
        """A checksum of everything that decides what stored cells mean."""

    def _checksum(self, by: str) -> int:
        meanings = [self.window.meaning(), by, *(a.meaning() for a in self.aggregates)]
        return zlib.crc32(repr([self.in_panes, *meanings]).encode())

    # Records --------------------------------------------------------------

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Merges new records with the stored partials."""
        rows, arrived = self._arrived(ctx)
        if not len(rows):
            return  # all of them were refused
        if not self.by_event:
            self._place(rows, ctx.now())
        before = ctx.watermark_before
        if self.window.merging:
            rows = self._merge_touching(rows, arrived, ctx, before)
        else:
            last = self.window.last_ends(rows.start, rows.end)
            too_late = (self._closes(last) <= before) & (not self.prompt)
            if too_late.any():
                self._aside(rows.count[too_late], arrived, too_late, ctx)
                rows = rows.take(~too_late)
            if self.window.overlapping:
                rows = partials.spread(rows, self.window)
                rows = rows.take(self._closes(rows.end) > before)
            rows = self._merge_stored(rows, ctx)
        if len(rows):
            self._changed(rows, ctx)

    def _arrived(self, ctx: TableContext) -> tuple[Partials, Arrived | None]:
        """Partials per key and window and, if records arrived, the group of each record."""
        (given,) = ctx.inputs()
        if self.combined:
            key = given.key_index.astype(np.int64)
            return Partials.from_rows(given.rows, key, self.forms), None

        def refuse(row: int, error: Exception) -> None:
            one = given.rows.take(np.array([row]))
            key, time = int(given.key_index[row]), int(one.timestamps[0])
            ctx.set_aside(error, key, one.values()[0], time, given.stream)

        records = Records(given.rows, given.key_index)
        rows, groups, taken = partials.start(
            self.aggregates, self.window, records, self.by_event, refuse
        )
        return rows, Arrived(groups, taken)

    def _place(self, rows: Partials, now: int) -> None:
        """For processing time: gives all records of an epoch the time of the epoch."""
        start, end = self.window.pieces(np.array([now]))
        rows.start = np.full(len(rows), start[0])
        rows.end = np.full(len(rows), end[0])

    def _closes(self, ends: Ints) -> Ints:
        """When windows with these ends close for good, by event time."""
        if not self.by_event:
            return np.full(len(ends), END)
        return self.window.closes(ends, self.grace_us)

    def _aside(
        self, counts: Ints, arrived: Arrived | None, too_late: Any, ctx: TableContext
    ) -> None:
        """Sends records aside whose windows have all closed. `too_late` is a mask of groups."""
        ctx.count("late", int(counts.sum()))
        if ctx.watermark_before == END:
            ctx.count(AFTER_THE_END, int(counts.sum()))
        if self.late and arrived is not None:
            ctx.pass_on(arrived.positions[too_late[arrived.groups.of]], to="late")

    def _merge_stored(self, rows: Partials, ctx: TableContext) -> Partials:
        """Merges new rows with the stored rows of the same windows."""
        if not len(rows):
            return rows
        rows = self._merge(rows, group([rows.end, rows.start, rows.key]), ctx)
        wanted = set(zip(rows.key.tolist(), rows.windows(), strict=True))
        stored = self._stored(ctx, np.unique(rows.key), wanted)
        if not len(stored):
            return rows
        rows = rows.followed_by(stored)
        return self._merge(rows, group([rows.end, rows.start, rows.key]), ctx)

    def _merge_touching(
        self, new: Partials, arrived: Arrived | None, ctx: TableContext, before: int
    ) -> Partials:
        """Merges new rows with the stored windows that they touch; removes the merged windows."""
        stored = self._stored(ctx, np.unique(new.key))
        rows = new.followed_by(stored)
        chains = partials.touching(rows)
        fresh = np.zeros(chains.count, np.bool_)
        fresh[chains.of[: len(new)]] = True
        merged = self._merge(rows, chains, ctx)
        # Merge before checking lateness: a record may be late alone, but not in a merged window.
        too_late = fresh & (self._closes(merged.end) <= before)
        if too_late.any():
            mine = too_late[chains.of[: len(new)]]
            self._aside(new.count[mine], arrived, mine, ctx)
        old = chains.of[len(new) :]
        gone = stored.take(fresh[old]) if len(stored) else stored
        ctx.put_entries("open", gone.key, gone.windows(), [None] * len(gone))
        return merged.take(fresh & ~too_late)

    def _merge(self, rows: Partials, groups: Groups, ctx: TableContext) -> Partials:
        def failed(merged: Partials, row: int, error: Exception) -> None:
            # Its window has no row from now on. Other keys and windows are not affected.
            self._unfinished(merged, row, error, ctx)

        return partials.merge(self.aggregates, rows, groups, failed)

    def _unfinished(self, rows: Partials, row: int, error: Exception, ctx: TableContext) -> None:
        """Sends a dead letter for a key and window for which a user function failed."""
        told: dict[str, Any] = {"records": int(rows.count[row])}
        if not self.window.endless:
            told |= {"window_start": int(rows.start[row]), "window_end": int(rows.end[row])}
        ctx.set_aside(error, int(rows.key[row]), told, int(rows.newest[row]))

    def _stored(
        self, ctx: TableContext, keys: Any, wanted: set[tuple[int, bytes]] | None = None
    ) -> Partials:
        """The stored rows of these keys: all, or only the wanted ones."""
        table = ctx.entries("open", keys)
        owners = table.column("key_index").to_pylist()
        if not owners:
            return Partials.of_cells([], [], [], self.forms, self.maker)
        windows = table.column("entry").to_pylist()
        cells = table.column("value").to_pylist()
        found = list(zip(owners, windows, cells, strict=True))
        if wanted is not None:
            found = [row for row in found if row[:2] in wanted]
        if not found:
            return Partials.of_cells([], [], [], self.forms, self.maker)
        key, chosen, data = zip(*found, strict=True)
        return Partials.of_cells(key, chosen, data, self.forms, self.maker)

    def _changed(self, rows: Partials, ctx: TableContext) -> None:
        """Emits the rows that this mode emits at once, stores the rows and sets timers."""
        if self.emit == "changes":
            out = np.ones(len(rows), np.bool_)
        elif self.emit == "on_time":
            out = rows.emitted > 0
        elif isinstance(self.emit, Every) and self.emit.records:
            out = rows.count // self.emit.records > rows.emitted // self.emit.records
        else:
            out = np.zeros(len(rows), np.bool_)
        self._emit(rows, out, ctx)
        ctx.put_entries("open", rows.key, rows.windows(), rows.cells(self.maker))
        self._set_timers(rows, ctx)
        if isinstance(self.emit, Every) and self.emit.micros:
            self._set_ticks(rows, ctx)

    # Timers ---------------------------------------------------------------

    def _next(self, rows: Partials) -> Ints:
        """The next time at which each row is due."""
        if not self.by_event:
            return rows.end
        closes = self._closes(rows.end)
        return np.where(rows.emitted == 0, rows.end, closes) if self.emit == "on_time" else closes

    def _set_timers(self, rows: Partials, ctx: TableContext) -> None:
        if self.window.endless and self.emit == "changes":
            return  # it never closes, and all its rows were emitted
        keys = group([rows.key])
        owners = rows.key[keys.one_row()]
        at = -keys.newest(-self._next(rows))
        clock = "event" if self.by_event else "wall"
        # The key's other windows may be due earlier. A timer that is too early only sets itself
        # again.
        set_before = ctx.timers(CLOSE, clock).take(pa.array(owners))
        at = np.minimum(at, set_before.fill_null(END).to_numpy())
        hold = self._hold(at)
        if self.window.endless and self.emit in ("final", "on_time"):
            hold = keys.newest(rows.newest)
        ctx.set_timers(owners, at, tag=CLOSE, clock=clock, hold=hold)
        if not self.by_event:
            # The end of the input must close the last windows too.
            ctx.set_timers(owners, np.full(len(owners), END), tag=FLUSH, hold=hold)

    def _hold(self, at: Ints) -> Ints:
        """The hold for windows that close at these times: the timestamp of their rows.

        If the input watermark has a bound, the lag keeps the output watermark further back. If it
        has none (a source that has ended or is idle), only this hold does. Without it, a later
        join would advance with the time of its other stream, and these rows would be late.
        """
        if not self.by_event or self.emit == "changes":
            return np.full(len(at), END)
        return np.maximum(at - self.grace_us - 1, 0)

    def _set_ticks(self, rows: Partials, ctx: TableContext) -> None:
        dirty = np.unique(rows.key[rows.count > rows.emitted])
        micros = self.emit.micros  # type: ignore[union-attr]
        now = ctx.watermark_before if self.by_event else ctx.now()
        at = now // micros * micros + micros
        clock = "event" if self.by_event else "wall"
        ctx.set_timers(
            dirty, np.full(len(dirty), at), tag=TICK, clock=clock, hold=np.full(len(dirty), END)
        )

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """Emits and closes the windows that are due, and sets the next timer of their key."""
        owners = table.column("key_index").to_numpy()
        ticking = np.unique(owners[np.array(table.column("tag").to_pylist()) == TICK])
        rows = self._stored(ctx, np.unique(owners))
        if not len(rows):
            return
        now = ctx.watermark if self.by_event or ctx.final else ctx.now()
        closing = (self._closes(rows.end) if self.by_event else rows.end) <= now
        out = closing.copy()
        if self.emit == "on_time":
            out |= (rows.emitted == 0) & (rows.end <= now)
        out |= np.isin(rows.key, ticking)
        out &= rows.count > rows.emitted
        self._emit(rows, out, ctx)
        gone, kept = rows.take(closing), rows.take(out & ~closing)
        ctx.put_entries("open", gone.key, gone.windows(), [None] * len(gone))
        ctx.put_entries("open", kept.key, kept.windows(), kept.cells(self.maker))
        left = rows.take(~closing)
        if len(left) and not ctx.final:
            self._set_timers(left, ctx)

    # Rows -----------------------------------------------------------------

    def _emit(self, rows: Partials, out: Any, ctx: TableContext) -> None:
        """Sends the rows that the mask `out` selects, and records that they were sent."""
        if not out.any():
            return
        replaced = Replaced.by(rows, out) if self.withdraws else None
        self._send(rows.take(out), ctx, replaced)
        rows.emitted[out] = rows.count[out]

    def _send(
        self,
        rows: Partials,
        ctx: TableContext,
        replaced: Replaced | None = None,
        failures: Failures | None = None,
    ) -> None:
        """Sends results as rows: key columns, window, aggregates. Withdrawn rows come first."""
        rows = rows.take(np.lexsort((rows.key, rows.start, rows.end)))
        rows, columns = self._results(rows, ctx, failures or {})
        times, keys = self._times(rows, ctx), rows.key
        if replaced is not None:
            gone = self._key_and_window(replaced.gone, ctx)
            columns = replaced.before(columns, gone, len(rows))
            times = np.concatenate([self._times(replaced.instead, ctx), times])
            keys = np.concatenate([replaced.gone.key, keys])
        if len(times):
            send(ctx, columns, to="", timestamp=times, key_index=keys)

    def _results(
        self, rows: Partials, ctx: TableContext, failures: Failures
    ) -> tuple[Partials, dict[str, Column]]:
        """The rows that have results, and the columns. Other rows become dead letters."""
        made, at = [], 0
        for aggregate in self.aggregates[: len(self.names)]:
            made.append(aggregate.finish(rows.parts[at : at + aggregate.parts]))
            at += aggregate.parts
        bad = {
            row: cell.error
            for column in reversed(made)
            if isinstance(column, list)
            for row, cell in enumerate(column)
            if type(cell) is Unfinished
        }
        if bad:
            for row in sorted(bad):
                # Without a reason: it was reported when the accumulators were merged.
                error = bad[row] or failures.get(int(rows.key[row]))
                if error is not None:
                    self._unfinished(rows, row, error, ctx)
            ctx.count("unfinished", len(bad))
            kept = np.delete(np.arange(len(rows)), list(bad))
            return self._results(rows.take(kept), ctx, failures)
        named = dict(zip(self.names, made, strict=True))
        return rows, {**self._key_and_window(rows, ctx), **named}

    def _key_and_window(self, rows: Partials, ctx: TableContext) -> dict[str, Column]:
        columns = key_columns(self.key_columns, ctx.keys(), rows.key)
        if not self.window.endless:
            columns["window_start"] = pa.array(rows.start)
            columns["window_end"] = pa.array(rows.end)
        return columns

    def _times(self, rows: Partials, ctx: TableContext) -> Ints:
        if not self.by_event:
            if ctx.watermark == END:
                return np.maximum(rows.newest, ctx.watermark_before)
            return np.full(len(rows), ctx.watermark)
        if not self.window.endless:
            return rows.end - 1
        if self.emit in ("final", "on_time"):
            return rows.newest
        # Not late for the next step, even at the end of the input; after it no record is late.
        before = ctx.watermark_before
        return np.maximum(rows.newest, before if before < END else 0)


class CombinedAggregate(WindowAggregate):
    """`WindowAggregate` that creates partials before the shuffle."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.combined = True

    def combine_rows(self, records: Records, refuse: Refuse) -> tuple[Ints, Rows]:
        """Combines a task's records to one row per (key, window); returns keys and rows."""
        rows, _, _ = partials.start(self.aggregates, self.window, records, self.by_event, refuse)
        return rows.to_rows()
