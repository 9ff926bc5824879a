"""The interval join: `left.time + lower <= right.time <= left.time + upper`.

State is bounded. A row's last possible partner is known, and when the watermark
has passed that, the row goes:

- which rows of an outer side are unmatched stands beside them. The key has a timer for
  the first of those to go, which holds the output watermark at the oldest one's time;
- all other rows go by sweeps, at most `SWEEPS` to the length of the interval.

Everything is in columns. A chunk holds a key's rows of one side, epoch and sweep. Under the
final watermark everything is due at once, so that no timer need set another.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.model.map import Map
from headrace.model.state import state
from headrace.model.values.time import END
from headrace.operators.columns.groups import Groups, Ints, group, runs
from headrace.operators.joins.bounds import Interval
from headrace.operators.joins.chunked import NONE, ChunkedJoin
from headrace.operators.joins.combine import Pairing
from headrace.operators.joins.rows import SideRows, expand, new_pairs

if TYPE_CHECKING:
    from headrace.model.context import TableContext

SWEEPS = 8
SWEEP, LEAVE = "sweep", "leave"
"""Tags: chunks are past; an unmatched row has no partner to come."""
_PLACE = struct.Struct(">qq")
"""Entries: when the chunk is swept, and its epoch."""

Chunk = tuple[int, int, bytes]
"""A chunk's key, side and place."""


class UnmatchedRows(msgspec.Struct, array_like=True):
    """The rows of a chunk that have no partner yet: their positions in it, and their times."""

    rows: list[int]
    times: list[int]


_decode = msgspec.msgpack.Decoder(UnmatchedRows).decode


class IntervalJoin(ChunkedJoin):
    """Keeps rows of both sides until their last possible partner is in.

    The place of a chunk is (sweep, epoch).
    """

    waiting: Map[bytes, bytes] = state()
    """Of an outer side, the side in one byte and the place of the chunk -> `UnmatchedRows`."""

    def __init__(self, pairing: Pairing, left_stream: str, within: Interval, how: str) -> None:
        super().__init__(pairing, left_stream, how)
        self.lower_us, self.upper_us = within.lower_us, within.upper_us
        self.sweep_us = max(1, (within.upper_us - within.lower_us) // SWEEPS)
        self.last_us = (within.upper_us, -within.lower_us)
        """How long after a row of either side its last partner may be."""

    # Records --------------------------------------------------------------

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Pairs an epoch's rows with the partners that are here, and keeps them for others."""
        new = self.pairing.new_rows(ctx, self.left_stream, self.outer)
        stored, chunks = [], []
        for i in (0, 1):
            rows, found = self._stored(ctx, i, np.unique(new[1 - i].key))
            stored.append(rows)
            chunks.append(found)
        both = (SideRows.concat([stored[0], new[0]]), SideRows.concat([stored[1], new[1]]))
        sizes = [(len(stored[i]), len(new[i])) for i in (0, 1)]
        left, right = new_pairs(lambda a, b: self._find(both, a, b), sizes[0], sizes[1])
        if any((side.time < ctx.watermark_before).any() for side in new):
            left, right = self._here(ctx, both, sizes, left, right)
        times = np.maximum(both[0].time[left], both[1].time[right])
        self.pairing.produce(ctx, both, (left, right), times)
        waiting: dict[Chunk, UnmatchedRows] = {}
        touched = np.unique(np.concatenate((new[0].key, new[1].key)))
        if self.outer[0]:
            waiting = self._waiting(ctx, touched)
        kept: list[tuple[Ints, Ints]] = []
        for i, of in ((0, left), (1, right)):
            matched = np.zeros(sum(sizes[i]), np.bool_)
            matched[of] = True
            if self.outer[i]:
                self._met(ctx, waiting, chunks[i], matched[: sizes[i][0]])
            kept.append(self._keep(ctx, i, both, matched, sizes[i][0], waiting))
        key, sweep = (np.concatenate(columns) for columns in zip(*kept, strict=True))
        if len(key):
            self._set_sweeps(ctx, key, sweep)
        if self.outer[0]:
            self._set_leaving(ctx, touched, waiting)

    def _find(
        self, both: tuple[SideRows, SideRows], lefts: Ints, rights: Ints
    ) -> tuple[Ints, Ints]:
        """Pairs of a key whose times lie within the interval."""
        key, time = both[1].key[rights], both[1].time[rights]
        times = np.unique(time)
        size = len(times) + 1
        codes = key * size + np.searchsorted(times, time)
        order = np.argsort(codes, kind="stable")
        at, base = both[0].time[lefts], both[0].key[lefts] * size
        low = base + np.searchsorted(times, _later(at, self.lower_us), "left")
        high = base + np.searchsorted(times, _later(at, self.upper_us), "right")
        ordered = codes[order]
        return expand(np.searchsorted(ordered, low), np.searchsorted(ordered, high), order)

    def _here(
        self,
        ctx: TableContext,
        both: tuple[SideRows, SideRows],
        sizes: list[tuple[int, int]],
        left: Ints,
        right: Ints,
    ) -> tuple[Ints, Ints]:
        """Those pairs of which neither was past when the other came.

        Only a late row can meet a past one, in a chunk that has not been swept yet; whether it
        has must not show.
        """
        kept = np.ones(len(left), np.bool_)
        for i, of in ((0, left), (1, right)):
            past = self._expires(i, both[i].time) <= ctx.watermark_before
            past[sizes[i][0] :] = False
            kept &= ~past[of]
        return left[kept], right[kept]

    def _expires(self, side: int, time: Ints) -> Ints:
        """From which watermark on nobody can match the rows of these times any more."""
        return np.minimum(_later(time, self.last_us[side]), END - 1) + 1

    def _stored(
        self, ctx: TableContext, side: int, keys: Ints
    ) -> tuple[SideRows, list[tuple[Chunk, int, int]]]:
        """A side's rows of these keys, and the chunks in which they lie, with their spans."""
        if not len(keys):
            return SideRows.empty(), []
        owners, places, data = self._chunks(ctx, side, keys)
        rows, of = SideRows.of_chunks(owners, data.to_pylist())
        starts = runs(of)
        ends = [*starts[1:].tolist(), len(of)][: len(starts)]
        return rows, [
            ((owners[chunk], side, places[chunk]), start, end)
            for chunk, start, end in zip(of[starts].tolist(), starts.tolist(), ends, strict=True)
        ]

    def _keep(
        self,
        ctx: TableContext,
        side: int,
        both: tuple[SideRows, SideRows],
        matched: Any,
        stored: int,
        waiting: dict[Chunk, UnmatchedRows],
    ) -> tuple[Ints, Ints]:
        """Keeps new rows for whom somebody may still come; sends the others out, if alone.

        Gives keys, and when their chunks are swept.
        """
        rows = both[side]
        expires = self._expires(side, rows.time)
        # All that comes on time up to the new watermark is in this very table.
        stays = expires > ctx.watermark_after
        new = np.arange(len(rows)) >= stored
        if self.outer[side]:
            alone = np.flatnonzero(new & ~stays & ~matched)
            self.pairing.produce_alone(ctx, both, side, alone)
        kept = np.flatnonzero(new & stays)
        if not len(kept):
            return NONE, NONE
        rows, expires, matched = rows.take(kept), expires[kept], matched[kept]
        sweep = -(-expires // self.sweep_us)
        sweeps = np.where(sweep > END // self.sweep_us, END, sweep * self.sweep_us)
        groups = group([rows.key, sweeps])

        def places_of(first: Ints) -> list[bytes]:
            return [_PLACE.pack(at, ctx.epoch) for at in sweeps[first].tolist()]

        first, places = self._store(ctx, side, rows, groups, places_of)
        if self.outer[side]:
            self._wait(ctx, side, rows, groups, matched, first, places, waiting)
        return rows.key[first], sweeps[first]

    # Rows of an outer side that have no partner yet -----------------------

    def _waiting(self, ctx: TableContext, keys: Ints) -> dict[Chunk, UnmatchedRows]:
        """Who waits, of these keys."""
        found = ctx.entries("waiting", keys)
        columns = [found.column(name).to_pylist() for name in ("key_index", "entry", "value")]
        return {
            (key, entry[0], entry[1:]): _decode(data)
            for key, entry, data in zip(*columns, strict=True)
        }

    def _wait(
        self,
        ctx: TableContext,
        side: int,
        rows: SideRows,
        groups: Groups,
        matched: Any,
        first: Ints,
        places: list[bytes],
        waiting: dict[Chunk, UnmatchedRows],
    ) -> None:
        """Notes which rows of new chunks have no partner."""
        order = np.argsort(groups.of, kind="stable")
        starts = runs(groups.of[order])
        number = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
        lonely = ~matched[order]
        of = groups.of[order][lonely].tolist()
        numbers, times = number[lonely].tolist(), rows.time[order][lonely].tolist()
        keys = rows.key[first].tolist()
        changed: dict[Chunk, UnmatchedRows] = {}
        for chunk, position, time in zip(of, numbers, times, strict=True):
            place = (keys[chunk], side, places[chunk])
            found = changed.setdefault(place, UnmatchedRows([], []))
            found.rows.append(position)
            found.times.append(time)
        waiting.update(changed)
        self._put_waiting(ctx, changed)

    def _met(
        self,
        ctx: TableContext,
        waiting: dict[Chunk, UnmatchedRows],
        chunks: list[tuple[Chunk, int, int]],
        matched: Any,
    ) -> None:
        """Stored rows that have found somebody wait no more."""
        changed: dict[Chunk, UnmatchedRows] = {}
        for chunk, start, end in chunks:
            found = waiting.get(chunk)
            if found is None or not matched[start:end].any():
                continue
            left = [
                (row, time)
                for row, time in zip(found.rows, found.times, strict=True)
                if not matched[start + row]
            ]
            changed[chunk] = UnmatchedRows([row for row, _ in left], [time for _, time in left])
        self._change(ctx, waiting, changed)

    def _change(
        self,
        ctx: TableContext,
        waiting: dict[Chunk, UnmatchedRows],
        changed: dict[Chunk, UnmatchedRows],
    ) -> None:
        for chunk, left in changed.items():
            if left.rows:
                waiting[chunk] = left
            else:
                del waiting[chunk]
        self._put_waiting(ctx, changed)

    def _put_waiting(self, ctx: TableContext, changed: dict[Chunk, UnmatchedRows]) -> None:
        data = [msgspec.msgpack.encode(w) if w.rows else None for w in changed.values()]
        places = [bytes((side,)) + place for _, side, place in changed]
        ctx.put_entries("waiting", [key for key, _, _ in changed], places, data)

    def _set_leaving(
        self, ctx: TableContext, keys: Ints, waiting: dict[Chunk, UnmatchedRows]
    ) -> None:
        """When the first row of each key leaves unmatched, and the time of the oldest."""
        first: dict[int, tuple[int, int]] = {}
        for (key, side, _), found in waiting.items():
            oldest = min(found.times)
            at, hold = first.get(key, (END, END))
            leaves = min(oldest + self.last_us[side], END - 1) + 1
            first[key] = min(at, leaves), min(hold, oldest)
        done = [key for key in keys.tolist() if key not in first]
        ctx.cancel_timers(done, tag=LEAVE)
        ats, holds = [at for at, _ in first.values()], [hold for _, hold in first.values()]
        ctx.set_timers(list(first), ats, tag=LEAVE, hold=holds)

    # Timers ---------------------------------------------------------------

    def _set_sweeps(self, ctx: TableContext, key: Ints, sweep: Ints) -> None:
        owners, at = self._earliest(ctx, SWEEP, key, sweep)
        ctx.set_timers(owners, at, tag=SWEEP, hold=np.full(len(at), END))

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """The watermark has passed somebody's last possible partner."""
        keys, tags = table.column("key_index").to_numpy(), table.column("tag").to_pylist()
        leaving = np.unique(keys[np.array(tags) == LEAVE])
        if len(leaving):
            self._leave(ctx, leaving)
        sweeping = np.unique(keys[np.array(tags) == SWEEP])
        if len(sweeping):
            self._sweep(ctx, sweeping)

    def _leave(self, ctx: TableContext, keys: Ints) -> None:
        """Rows that stay alone come out."""
        waiting = self._waiting(ctx, keys)
        changed: dict[Chunk, UnmatchedRows] = {}
        gone: dict[Chunk, list[int]] = {}
        for chunk, found in waiting.items():
            before = ctx.watermark - self.last_us[chunk[1]]
            due = [row for row, t in zip(found.rows, found.times, strict=True) if t < before]
            if due or ctx.final:
                gone[chunk] = found.rows if ctx.final else due
                left = [] if ctx.final else _but(found, due)
                changed[chunk] = UnmatchedRows([row for row, _ in left], [time for _, time in left])
        sides, places = [], []
        for i in (0, 1):
            mine = np.unique(np.array([key for key, side, _ in gone if side == i], np.int64))
            rows, chunks = self._stored(ctx, i, mine)
            sides.append(rows)
            places.append([start + row for c, start, _ in chunks for row in gone.get(c, ())])
            # Where all of a chunk leaves, it need not wait for the sweep.
            empty = [c for c, start, end in chunks if len(gone.get(c, ())) == end - start]
            self._drop(ctx, i, [c[0] for c in empty], [c[2] for c in empty])
        for i in (0, 1):
            rows_out = np.array(sorted(places[i]), np.int64)
            self.pairing.produce_alone(ctx, (sides[0], sides[1]), i, rows_out)
        self._change(ctx, waiting, changed)
        if not ctx.final:
            self._set_leaving(ctx, keys, waiting)

    def _sweep(self, ctx: TableContext, keys: Ints) -> None:
        """Chunks go that nobody can match any more."""
        left: list[tuple[int, int]] = []
        for i in (0, 1):
            owners, places, _ = self._chunks(ctx, i, keys)
            gone = []
            for key, place in zip(owners, places, strict=True):
                sweep = _PLACE.unpack(place)[0]
                if sweep <= ctx.watermark:
                    gone.append((key, place))
                else:
                    left.append((key, sweep))
            self._drop(ctx, i, [k for k, _ in gone], [p for _, p in gone])
        if left and not ctx.final:
            owners_left, sweeps = np.array(left, np.int64).T
            self._set_sweeps(ctx, owners_left, sweeps)


def _later(time: Ints, by: int) -> Ints:
    """Times so much later, as far as time goes: a production may have any time of 64 bits."""
    return np.minimum(time, END - by) + by if by > 0 else np.maximum(time, -END - by) + by


def _but(found: UnmatchedRows, gone: Iterable[int]) -> list[tuple[int, int]]:
    """Who waits on, when these have left."""
    left = set(gone)
    return [(r, t) for r, t in zip(found.rows, found.times, strict=True) if r not in left]
