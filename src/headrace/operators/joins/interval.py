"""The interval join: `left.time + lower <= right.time <= left.time + upper`.

State is bounded. The time of a row's last possible partner is known. When the watermark has passed
it, the row is removed:

- For an outer side, the state also has the positions of unmatched rows. The key has a timer for the
  first of them that must be sent. This timer holds the output watermark at the time of the oldest
  unmatched row.
- All other rows are removed by sweeps, at most `SWEEPS` in the length of the interval.

Everything is in columns. A chunk has a key's rows of one side, epoch and sweep. Under the final
watermark all rows are due at once, so that no timer has to set another timer.
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
"""Tags of timers: chunks have expired; an unmatched row can have no partner any more."""
_PLACE = struct.Struct(">qq")
"""The place of a chunk: when it is swept, and its epoch."""

Chunk = tuple[int, int, bytes]
"""A chunk's key, side and place."""


class UnmatchedRows(msgspec.Struct, array_like=True):
    """The rows of a chunk that have no partner yet: their positions in it, and their times."""

    rows: list[int]
    times: list[int]


_decode = msgspec.msgpack.Decoder(UnmatchedRows).decode


class IntervalJoin(ChunkedJoin):
    """Keeps rows of both sides until their last possible partner has arrived.

    The place of a chunk is (sweep, epoch).
    """

    waiting: Map[bytes, bytes] = state()
    """For outer sides: the side in one byte and the place of the chunk -> `UnmatchedRows`."""

    def __init__(self, pairing: Pairing, left_stream: str, within: Interval, how: str) -> None:
        super().__init__(pairing, left_stream, how)
        self.lower_us, self.upper_us = within.lower_us, within.upper_us
        self.sweep_us = max(1, (within.upper_us - within.lower_us) // SWEEPS)
        self.last_us = (within.upper_us, -within.lower_us)
        """For each side: how long after a row its last partner may be."""

    # Records --------------------------------------------------------------

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Pairs an epoch's rows with partners that have arrived, and keeps them for later ones."""
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
        """The pairs of rows of one key whose times are within the interval."""
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
        """The pairs in which neither row had expired when the other one arrived.

        Only a late row can find an expired row, in a chunk that was not swept yet. The result must
        not depend on whether the sweep has run.
        """
        kept = np.ones(len(left), np.bool_)
        for i, of in ((0, left), (1, right)):
            past = self._expires(i, both[i].time) <= ctx.watermark_before
            past[sizes[i][0] :] = False
            kept &= ~past[of]
        return left[kept], right[kept]

    def _expires(self, side: int, time: Ints) -> Ints:
        """The watermark from which on no row can match the rows of these times."""
        return np.minimum(_later(time, self.last_us[side]), END - 1) + 1

    def _stored(
        self, ctx: TableContext, side: int, keys: Ints
    ) -> tuple[SideRows, list[tuple[Chunk, int, int]]]:
        """A side's rows of these keys, and their chunks, each with its range of rows."""
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
        """Keeps new rows whose partner may still arrive; sends other rows that are unmatched.

        Returns keys, and the times at which their chunks are swept.
        """
        rows = both[side]
        expires = self._expires(side, rows.time)
        # This table has all rows on time up to the new watermark.
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
        """The unmatched rows of these keys, by chunk."""
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
        """Removes stored rows that now have a partner from the unmatched rows."""
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
        """Sets each key's timer for its first unmatched row; it holds at the oldest row's time."""
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
        """Handles rows whose last possible partner the watermark has passed."""
        keys, tags = table.column("key_index").to_numpy(), table.column("tag").to_pylist()
        leaving = np.unique(keys[np.array(tags) == LEAVE])
        if len(leaving):
            self._leave(ctx, leaving)
        sweeping = np.unique(keys[np.array(tags) == SWEEP])
        if len(sweeping):
            self._sweep(ctx, sweeping)

    def _leave(self, ctx: TableContext, keys: Ints) -> None:
        """Sends the unmatched rows that can have no partner any more."""
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
            # If all rows of a chunk are sent, the chunk need not wait for the sweep.
            empty = [c for c, start, end in chunks if len(gone.get(c, ())) == end - start]
            self._drop(ctx, i, [c[0] for c in empty], [c[2] for c in empty])
        for i in (0, 1):
            rows_out = np.array(sorted(places[i]), np.int64)
            self.pairing.produce_alone(ctx, (sides[0], sides[1]), i, rows_out)
        self._change(ctx, waiting, changed)
        if not ctx.final:
            self._set_leaving(ctx, keys, waiting)

    def _sweep(self, ctx: TableContext, keys: Ints) -> None:
        """Removes the chunks whose rows can have no partner any more."""
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
    """Times plus an offset, without overflow: a production may have any 64-bit time."""
    return np.minimum(time, END - by) + by if by > 0 else np.maximum(time, -END - by) + by


def _but(found: UnmatchedRows, gone: Iterable[int]) -> list[tuple[int, int]]:
    """The unmatched rows without these rows."""
    left = set(gone)
    return [(r, t) for r, t in zip(found.rows, found.times, strict=True) if r not in left]
