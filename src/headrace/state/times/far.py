"""Timed cells that are not in memory: found in the orders of a slot's segments, from a place on.

A version of a cell counts if no newer segment of the slot has the cell. Candidates come from the
orders of all segments, and are checked together against the newer segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.values.keys import HASH_SPACE
from headrace.state.segment import HOLD, TIMER, WAITING, Segment
from headrace.state.times.timeindex import Timed
from headrace.state.view import CellId, SlotView, counting, rows_and_owners

Place = tuple[int, int]
"""A place in an order: (time or hold, hash)."""

FIRST: Place = (-(2**63), -1)
"""Before every cell."""

_KINDS = {"event": TIMER, "wall": TIMER, "hold": HOLD, "waiting": WAITING}


def after_all(value: int) -> Place:
    """The place behind all cells of this time."""
    return value, HASH_SPACE


class Found(NamedTuple):
    """Live cells of a part of an order, and how far that part goes; None: to the end."""

    cells: list[tuple[CellId, Timed]]
    reached: Place | None


def cells_until(view: SlotView, name: str, after: Place, until: int) -> Found:
    """The live cells of an index behind a place, up to a time."""
    chosen = []
    for segment, lows, highs in view.segments:
        rows = segment.index.by_time(name)
        first = _behind(segment, rows, segment.times, after)
        last = _behind(segment, rows, segment.times, after_all(until))
        chosen.append(_inside(rows[first:last], lows, highs))
    return Found(list(_live(view, chosen)), after_all(until))


def next_cells(view: SlotView, name: str, after: Place, count: int, *, by_hold: bool) -> Found:
    """The first live cells of an index behind a place: about `count`, of all segments together."""
    count = max(1, count // max(len(view.segments), 1))
    while True:
        taken: list[Any] = []
        reached: Place | None = None
        for segment, lows, highs in view.segments:
            rows = segment.index.by_hold(name) if by_hold else segment.index.by_time(name)
            values = segment.expires if by_hold else segment.times
            first = _behind(segment, rows, values, after)
            end = len(rows)
            if first + count < end:
                last = _place(segment, values, rows[first + count - 1])
                end = _behind(segment, rows, values, last)  # a key may have several cells there
                if end < len(rows):
                    reached = last if reached is None else min(reached, last)
            taken.append((segment, rows[first:end], lows, highs))
        chosen = []
        for segment, rows, lows, highs in taken:
            if reached is not None:  # behind this place another segment may have earlier cells
                values = segment.expires if by_hold else segment.times
                rows = rows[: _behind(segment, rows, values, reached)]
            chosen.append(_inside(rows, lows, highs))
        found = list(_live(view, chosen))
        if found or reached is None:
            return Found(found, reached)
        after, count = reached, min(2 * count, 1 << 16)


def cells_of_keys(
    view: SlotView, keys: Sequence[bytes], hashes: np.ndarray[Any, Any]
) -> dict[bytes, dict[tuple[int, CellId], Timed | None]]:
    """The timers and holds of some keys, by key: (kind, cell) -> its times, or None if deleted."""
    found: dict[bytes, dict[tuple[int, CellId], Timed | None]] = {key: {} for key in keys}
    for segment, owners, lows, highs in view.ranges(hashes):
        if not segment.has(TIMER) and not segment.has(HOLD):
            continue
        rows, _ = rows_and_owners(owners, lows, highs)
        kinds = segment.kinds[rows]
        rows = rows[(kinds == TIMER) | (kinds == HOLD)]
        columns = segment.rows(
            rows, "kind", "key", "field", "entry", "time", "expires", "tombstone"
        )
        for kind, key, field, entry, time, hold, gone in zip(*columns, strict=True):
            of_key = found.get(key)  # another key may have the same hash
            if of_key is not None:
                of_key.setdefault((kind, (key, field, entry)), None if gone else (time, hold))
    return found


def kind_of(name: str) -> int:
    """The kind of the cells of an index."""
    return _KINDS[name]


def _place(segment: Segment, values: Any, row: Any) -> Place:
    return int(values[row]), int(segment.hashes[row])


def _behind(segment: Segment, rows: Any, values: Any, place: Place) -> int:
    """The position of the first row of an order that lies behind a place."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if _place(segment, values, rows[middle]) <= place:
            low = middle + 1
        else:
            high = middle
    return low


def _inside(rows: Any, lows: Any, highs: Any) -> Any:
    """Those rows of an order that count in the slot, as its ranges say."""
    return rows[counting(rows, lows, highs)].astype(np.int64)


def _live(view: SlotView, chosen: Sequence[Any]) -> Iterator[tuple[CellId, Timed]]:
    """The cells of some rows of each segment, newest first, that no newer segment has."""
    for age, ((segment, _, _), rows) in enumerate(zip(view.segments, chosen, strict=True)):
        live = rows
        for newer, lows, highs in view.segments[:age]:
            if not len(live):
                break
            if newer.index.timed and _share_hashes(segment, newer):
                live = live[~_superseded(segment, live, newer, lows, highs)]
        columns = segment.rows(live, "key", "field", "entry", "time", "expires")
        for key, field, entry, time, hold in zip(*columns, strict=True):
            yield (key, field, entry), (time, hold)


def _share_hashes(one: Segment, other: Segment) -> bool:
    """Whether two segments may have cells of one key: those of pieces of one merge do not."""
    return bool(one.hashes[0] <= other.hashes[-1] and other.hashes[0] <= one.hashes[-1])


def _superseded(segment: Segment, rows: Any, newer: Segment, lows: Any, highs: Any) -> Any:
    """A mask of rows whose cells a newer segment has, deleted or not."""
    mask = np.zeros(len(rows), np.bool_)
    owners, firsts, lasts = newer.find(segment.hashes[rows], lows, highs)
    if not len(owners):
        return mask
    others, mine = rows_and_owners(owners, firsts, lasts)
    alike = newer.kinds[others] == segment.kinds[rows[mine]]
    others, mine = pa.array(others[alike]), mine[alike]
    own = pa.array(rows[mine])
    same = np.ones(len(mine), np.bool_)
    for column in ("key", "field", "entry"):
        equal = pc.equal(newer.column(column).take(others), segment.column(column).take(own))
        same &= equal.to_numpy(zero_copy_only=False)
    mask[mine[same]] = True
    return mask
