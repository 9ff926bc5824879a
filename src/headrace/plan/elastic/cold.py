"""Merges cold intervals: those with little load go to the slot of a neighbouring interval.

Splits and isolated keys leave a ring with many intervals. When there are more than a few per slot,
the coldest are joined with their neighbours, so that the number of intervals follows the load and
not the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headrace.plan.elastic.sketch import Sketch
from headrace.plan.elastic.view import (
    Floats,
    Hashes,
    RingView,
    bin_edges,
    joined,
    lengths_of,
    shortest_of,
)
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
    left: dict[int, int] = {}
    ends = len(view) - 1
    for weight, index in _cold_intervals(view, load, sketches, fair, LOOKED_AT * moves_max):
        if too_many <= 0 or len(moves) >= moves_max:
            break
        if index in gone or index - 1 in gone or index + 1 in gone:
            continue  # a neighbour moves too: where it goes is not yet in force
        low, last, slot = view.interval(index)
        if left.setdefault(slot, view.count(slot)) < 2:
            continue  # its last interval stays: a slot is removed by the scaler alone
        beside = [int(view.owners[i]) for i in (index - 1, index + 1) if 0 <= i <= ends]
        takers = [(load[taker], taker) for taker in beside if taker in load and taker != slot]
        if not takers:
            continue
        taker = min(takers)[1]
        if load[taker] + weight > fair + fair // 16:
            continue
        moves.append(Move(low, last, taker))
        gone.add(index)
        left[slot] -= 1
        load[taker] += weight
        load[slot] -= weight
        too_many -= 2 if beside.count(taker) == 2 else 1
    return joined(moves)


def _touched(view: RingView, moves: Sequence[Move]) -> set[int]:
    """The intervals of which some moves take a part."""
    found: set[int] = set()
    firsts = np.searchsorted(view.lows, np.array([m.low for m in moves], np.uint64), side="right")
    lasts = np.searchsorted(view.lows, np.array([m.last for m in moves], np.uint64), side="right")
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        found.update(range(first - 1, last))
    return found


def _cold_intervals(
    view: RingView, load: Mapping[int, int], sketches: Mapping[int, Sketch], fair: int, number: int
) -> list[tuple[int, int]]:
    """(load, index) of cold intervals of slots whose sketch is known, the shortest first."""
    known = [slot for slot in sorted(sketches) if slot in load and view.count(slot) > 1]
    lengths = view.lasts - view.lows
    if len(known) < len(view.slots):
        of_known = np.isin(view.owners, known)
        among = np.flatnonzero(of_known)
        chosen = among[shortest_of(lengths[among], number)]
    else:
        chosen = shortest_of(lengths, number)
    owners = view.owners[chosen]
    loads = np.zeros(len(chosen))
    for slot in known:
        mine = np.flatnonzero(owners == slot)
        if len(mine):
            at = chosen[mine]
            lows, lasts = view.lows[at], view.lasts[at]
            loads[mine] = _loads(lows, lasts, view.runs(slot), sketches[slot], load[slot])
    cold = np.flatnonzero(loads * COLD <= fair)
    cold = cold[np.lexsort((chosen[cold], lengths[chosen[cold]]))]
    return list(zip(loads[cold].astype(np.int64).tolist(), chosen[cold].tolist(), strict=True))


def _loads(
    lows: Hashes, lasts: Hashes, runs: tuple[Hashes, Hashes], sketch: Sketch, load: int
) -> Floats:
    """The load of some intervals of a slot: their part of the bins, and their heavy hashes."""
    bins = len(sketch.records)
    places = bin_edges(*runs, np.append(sketch.starts, lows))
    edges, begins = np.append(places[:bins], places[-1]), places[bins:-1]
    records = np.append(0.0, np.cumsum(np.array(sketch.records, np.float64)))
    ends = begins + lengths_of(lows, lasts)
    found = np.interp(ends, edges, records) - np.interp(begins, edges, records)
    for key, records_of_key in sketch.heavy:
        found[(lows <= np.uint64(key)) & (np.uint64(key) <= lasts)] += records_of_key
    return found * (load / max(sketch.total, 1))
