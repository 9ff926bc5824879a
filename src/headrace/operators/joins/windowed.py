"""The window join: rows of one key match if they are in the same window.

Joined rows have the timestamp `window_end - 1`, as all rows of windows. Pairs are sent at once.
Unmatched rows of an outer side are sent when the window closes: when the watermark passes its end
plus the grace.

Everything is in columns: an epoch's rows of all keys of a slot are paired at once, with each other
and with the stored chunks of their windows. One timer per key fires when its next window closes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import InvalidRecord
from headrace.model.values.arrow import python_list
from headrace.model.values.time import END, oldest_on_time
from headrace.operators.columns.groups import Ints, group
from headrace.operators.joins.chunked import NONE, ChunkedJoin, Chunks
from headrace.operators.joins.combine import Pairing
from headrace.operators.joins.rows import SideRows, matching, new_pairs
from headrace.operators.windows.same_window import is_time
from headrace.operators.windows.window import Window

if TYPE_CHECKING:
    from headrace.model.context import TableContext

CLOSE = "close"
FAR = 2**62
"""A produced record may have any 64-bit time; windows start at minus this number."""
_PLACE = struct.Struct(">qqq")
"""The place of a chunk: (end, start) of the window, and the epoch."""


class WindowJoin(ChunkedJoin):
    """Keeps the rows of open windows; the place of a chunk is (end, start, epoch)."""

    def __init__(
        self,
        pairing: Pairing,
        left_stream: str,
        window: Window,
        how: str,
        grace_us: int,
        late_port: str | None,
    ) -> None:
        super().__init__(pairing, left_stream, how)
        self.window = window
        self.grace_us = self.lag_us = grace_us
        self.late_port = late_port
        self.port = None if late_port is None else "joined"

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Pairs the rows of an epoch within each of their windows that is still open."""
        new, starts, ends = [SideRows.empty()] * 2, [NONE] * 2, [NONE] * 2
        for given in ctx.inputs():
            rows = self.pairing.side_rows(ctx, given)
            if self.window.columns:
                rows = self._with_windows(ctx, given.stream, rows)
            at, start, end = self._windows(rows)
            before = 0 if given.feedback else oldest_on_time(ctx.watermark_before)
            kept = (rows.time[at] >= before) | (self._closes(end) > before)
            if not kept.all():
                lost = np.ones(len(rows), np.bool_)
                lost[at[kept]] = False
                ctx.count("late", int(lost.sum()))
                if self.late_port is not None:
                    ctx.pass_on(np.flatnonzero(lost) + given.first, to=self.late_port)
                at, start, end = at[kept], start[kept], end[kept]
            i = 0 if given.stream == self.left_stream else 1
            new[i], starts[i], ends[i] = rows.take(at), start, end
        unequal = self.pairing.unequal(ctx)
        for i in (0, 1):
            if unequal is not None and (alone := unequal[new[i].key]).any():
                if self.outer[i]:
                    self._produce_alone(
                        ctx, i, new[i].take(alone), starts[i][alone], ends[i][alone]
                    )
                new[i], starts[i], ends[i] = new[i].take(~alone), starts[i][~alone], ends[i][~alone]
        stored = [self._stored(ctx, i, new[1 - i], starts[1 - i], ends[1 - i]) for i in (0, 1)]
        both = tuple(SideRows.concat([stored[i][0], new[i]]) for i in (0, 1))
        windows = [
            [np.concatenate((stored[i][1], starts[i])), np.concatenate((stored[i][2], ends[i]))]
            for i in (0, 1)
        ]
        self._pair(ctx, (both[0], both[1]), windows, [len(s[0]) for s in stored])
        open_ones = [self._keep(ctx, i, new[i], starts[i], ends[i]) for i in (0, 1)]
        key, end = (np.concatenate(columns) for columns in zip(*open_ones, strict=True))
        if len(key):
            self._set_timers(ctx, key, end)

    def _windows(self, rows: SideRows) -> tuple[Ints, Ints, Ints]:
        """(position of the row, start, end) for each window of each row."""
        if self.window.columns:
            start, end = (np.array(_cells(rows, name), np.int64) for name in self.window.columns)
            return np.arange(len(rows)), start, end
        return self.window.windows_of(np.clip(rows.time, -FAR, END))

    def _with_windows(self, ctx: TableContext, stream: str, rows: SideRows) -> SideRows:
        """The rows that have a window in their columns. Other rows go by the error policy."""
        cells = zip(*(_cells(rows, name) for name in self.window.columns), strict=True)
        good = np.array([is_time(a) and is_time(b) for a, b in cells], np.bool_)
        if good.all():
            return rows
        for i in np.flatnonzero(~good).tolist():
            row = rows.take(np.array([i])).dicts()[0]
            error = InvalidRecord(
                f"{self.pairing.where}, stream {stream!r}: same_window() needs the columns "
                f"window_start and window_end, whole numbers; there are: {', '.join(row)}. For a "
                'stream that has none: window=tumbling("...")'
            )
            ctx.set_aside(error, int(rows.key[i]), row, int(rows.time[i]), stream)
        return rows.take(good)

    def _pair(
        self,
        ctx: TableContext,
        both: tuple[SideRows, SideRows],
        windows: list[list[Ints]],
        stored: list[int],
    ) -> None:
        count = len(both[0])
        codes = group(
            [
                np.concatenate((both[0].key, both[1].key)),
                np.concatenate((windows[0][0], windows[1][0])),
                np.concatenate((windows[0][1], windows[1][1])),
            ]
        ).of
        mine, theirs = codes[:count], codes[count:]
        left, right = new_pairs(
            lambda a, b: matching(mine[a], theirs[b]),
            (stored[0], count - stored[0]),
            (stored[1], len(theirs) - stored[1]),
        )
        self._produce(ctx, both, (left, right), windows[0][0][left], windows[0][1][left])

    def _produce(
        self,
        ctx: TableContext,
        both: tuple[SideRows, SideRows],
        at: tuple[Ints | None, Ints | None],
        start: Ints,
        end: Ints,
    ) -> None:
        window = {"window_start": start, "window_end": end}
        self.pairing.produce(ctx, both, at, end - 1, to=self.port, more=window)

    def _produce_alone(
        self, ctx: TableContext, side: int, rows: SideRows, start: Ints, end: Ints
    ) -> None:
        every, none = np.arange(len(rows)), SideRows.empty()
        both, at = ((rows, none), (every, None)) if side == 0 else ((none, rows), (None, every))
        self._produce(ctx, both, at, start, end)

    def _stored(
        self, ctx: TableContext, side: int, others: SideRows, start: Ints, end: Ints
    ) -> tuple[SideRows, Ints, Ints]:
        """The stored rows of a side in the windows of the other side's new rows."""
        if not len(others):
            return SideRows.empty(), NONE, NONE
        wanted = set(zip(others.key.tolist(), end.tolist(), start.tolist(), strict=True))
        found = self._chunks(ctx, side, np.unique(others.key))
        return _decoded(found, lambda key, end, start: (key, end, start) in wanted)

    def _keep(
        self, ctx: TableContext, side: int, rows: SideRows, start: Ints, end: Ints
    ) -> tuple[Ints, Ints]:
        """Stores rows; returns the keys and ends of their windows."""
        if not self.outer[0]:
            # Windows that this epoch closes need no storage: their pairs were sent.
            stays = self._closes(end) > ctx.watermark_after
            if not stays.all():
                rows, start, end = rows.take(stays), start[stays], end[stays]
        if not len(rows):
            return NONE, NONE

        def places_of(first: Ints) -> list[bytes]:
            windows = zip(end[first].tolist(), start[first].tolist(), strict=True)
            return [_PLACE.pack(*window, ctx.epoch) for window in windows]

        first, _ = self._store(ctx, side, rows, group([rows.key, end, start]), places_of)
        return rows.key[first], end[first]

    def _set_timers(self, ctx: TableContext, key: Ints, end: Ints) -> None:
        """Sets each key's timer for its next window. Other windows of the key may close earlier."""
        owners, at = self._earliest(ctx, CLOSE, key, self._closes(end))
        # The window that closes first has the earliest timestamp.
        ctx.set_timers(owners, at, tag=CLOSE, hold=np.maximum(at - self.grace_us - 1, 0))

    def _closes(self, end: Ints) -> Ints:
        return self.window.closes(end, self.grace_us)

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """Closes windows: sends their unmatched rows, and removes their chunks."""
        keys = np.unique(table.column("key_index").to_numpy())
        found = [self._chunks(ctx, i, keys) for i in (0, 1)]
        closing: list[set[tuple[int, int, int]]] = []
        left_key: list[int] = []
        left_end: list[int] = []
        for i, (owners, places, _) in enumerate(found):
            seen, gone = set(), []
            ends = np.array([_PLACE.unpack(place)[0] for place in places], np.int64)
            closed = (self._closes(ends) <= ctx.watermark).tolist()
            for key, place, is_closed in zip(owners, places, closed, strict=True):
                end, start, _ = _PLACE.unpack(place)
                if is_closed:
                    seen.add((key, end, start))
                    gone.append((key, place))
                else:
                    left_key.append(key)
                    left_end.append(end)
            closing.append(seen)
            self._drop(ctx, i, [k for k, _ in gone], [p for _, p in gone])
        none = (SideRows.empty(), NONE, NONE)
        alone = [none, none]
        for i in (0, 1):
            if self.outer[i] and (lonely := closing[i] - closing[1 - i]):
                alone[i] = _decoded(found[i], lambda *window, of=lonely: window in of)
        for i in (0, 1):
            self._produce_alone(ctx, i, *alone[i])
        if left_key and not ctx.final:
            self._set_timers(ctx, np.array(left_key), np.array(left_end))


def _cells(rows: SideRows, name: str) -> list[Any]:
    """The cells with the starts or ends of rows' windows."""
    if rows.columns is not None:
        column = rows.columns.get(name)
        return [None] * len(rows) if column is None else python_list(column)
    return [row.get(name) for row in rows.objects]


def _decoded(chunks: Chunks, wanted: Any) -> tuple[SideRows, Ints, Ints]:
    """The rows of the chunks with a wanted (key, end, start), and their starts and ends."""
    owners, places, column = chunks
    keys, windows, chosen = [], [], []
    for i, (key, place) in enumerate(zip(owners, places, strict=True)):
        end, start, _ = _PLACE.unpack(place)
        if wanted(key, end, start):
            keys.append(key)
            windows.append((start, end))
            chosen.append(i)
    data = column.take(pa.array(chosen, pa.int64())).to_pylist()
    rows, of = SideRows.of_chunks(keys, data)
    bounds = np.array(windows, np.int64).reshape(-1, 2)[of]
    return rows, bounds[:, 0], bounds[:, 1]
