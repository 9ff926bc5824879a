"""Merges cold intervals: those with little load go to the slot of a neighbouring interval.

Splits and isolated keys leave a ring with many intervals. When there are more than a few per slot,
the coldest are joined with their neighbours, so that the number of intervals follows the load and
not the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.plan.elastic.sketch import Sketch
from headrace.plan.elastic.view import Floats, RingView, joined, lengths_of
from headrace.plan.rings.wanted import Move

COLD = 16
"""An interval is cold if it has less than this part of a slot's fair share."""
LOOKED_AT = 8
"""So many cold intervals are looked at for each one that may move, the shortest first."""


def merge_cold(
    view: RingView,
    load: Mapping[int, int],
    sketches: Mapping[int, Sketch],
    fair: int,
    intervals_max: int,
    moves_max: int,
    besides: Sequence[Move] = (),
) -> tuple[Move, ...]:
    """Moves of cold intervals to the slots beside them, until few enough are left.

    Intervals that other moves of the same decision (`besides`) touch, or lie beside, stay.
    """
    too_many = len(view) - intervals_max
    if too_many <= 0 or moves_max <= 0:
        return ()
    load = dict(load)
    moves: list[Move] = []
    gone = _touched(view, besides)
    for weight, index in _cold_intervals(view, load, sketches, fair, LOOKED_AT * moves_max):
        if too_many <= 0 or len(moves) >= moves_max:
            break
        if gone & {index - 1, index, index + 1}:
            continue  # a neighbour moves too: where it goes is not yet in force
        low, last, slot = view.interval(index)
        beside = [i for i in (index - 1, index + 1) if 0 <= i < len(view)]
        takers = {int(view.owners[i]) for i in beside} & set(load) - {slot}
        if not takers:
            continue
        taker = min(takers, key=lambda s: (load[s], s))
        if load[taker] + weight > fair + fair // 16:
            continue
        both = len(beside) == 2 and view.owners[beside[0]] == view.owners[beside[1]]
        moves.append(Move(low, last, taker))
        gone.add(index)
        load[taker] += weight
        load[slot] = load.get(slot, 0) - weight
        too_many -= 2 if both else 1
    return joined(moves)


def _touched(view: RingView, moves: Sequence[Move]) -> set[int]:
    """The intervals of which some moves take a part."""
    found: set[int] = set()
    for move in moves:
        first, last = np.searchsorted(
            view.lows, np.array([move.low, move.last], np.uint64), side="right"
        ).tolist()
        found.update(range(first - 1, last))
    return found


def _cold_intervals(
    view: RingView, load: Mapping[int, int], sketches: Mapping[int, Sketch], fair: int, number: int
) -> list[tuple[int, int]]:
    """(load, index) of cold intervals of slots whose sketch is known, the shortest first."""
    found: list[tuple[float, int, int]] = []
    for slot, sketch in sorted(sketches.items()):
        mine = np.flatnonzero(view.owners == slot)
        if slot not in load or len(mine) < 2:
            continue  # its last interval stays: a slot is removed by the scaler alone
        following = np.minimum(mine + 1, len(view) - 1)
        lasts = np.where(mine + 1 < len(view), view.lows[following] - np.uint64(1), _LAST)
        lengths = lengths_of(view.lows[mine], lasts)
        loads = _loads(view.lows[mine], lasts, lengths, sketch, load[slot])
        order = np.lexsort((mine, lengths))
        cold = [i for i in order[: number + 1].tolist() if loads[i] * COLD <= fair]
        kept = cold[: len(mine) - 1]
        found += [(float(lengths[i]), int(loads[i]), int(mine[i])) for i in kept]
    return [(weight, index) for _, weight, index in sorted(found)[:number]]


_LAST = np.uint64(2**64 - 1)


def _loads(lows: Any, lasts: Any, lengths: Floats, sketch: Sketch, load: int) -> Floats:
    """The load of each interval of a slot: its part of the bins, and its heavy hashes."""
    total = max(sketch.total, 1)
    found = np.zeros(len(lows))
    bins = sketch.bins
    if bins:
        starts = np.array([low for low, _ in bins], np.uint64)
        records = np.array([n for _, n in bins], np.float64)
        # Most intervals lie in one bin; one that lies in several counts for the bin of its middle.
        middle = lows + (lasts - lows) // np.uint64(2)
        at = np.searchsorted(starts, middle, side="right") - 1
        inside = at >= 0
        shares = np.bincount(at[inside], lengths[inside], len(bins))
        density = np.divide(records, shares, out=np.zeros(len(bins)), where=shares > 0)
        found[inside] = density[at[inside]] * lengths[inside]
    for key, records_of_key in sketch.heavy:
        at_key = int(np.searchsorted(lows, np.uint64(key), side="right")) - 1
        if at_key >= 0 and key <= int(lasts[at_key]):
            found[at_key] += records_of_key
    return found * (load / total)
