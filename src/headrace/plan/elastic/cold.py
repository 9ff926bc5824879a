"""Merges cold intervals: those with little load go to the slot of a neighbouring interval.

Splits and isolated keys leave a ring with many intervals. When there are more than a few per slot,
the coldest are joined with their neighbours, so that the number of intervals follows the load and
not the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headrace.plan.elastic.sketch import Sketch
from headrace.plan.elastic.view import Piece, RingView, joined, pieces_of
from headrace.plan.rings.wanted import Move

COLD = 16
"""An interval is cold if it has less than this part of a slot's fair share."""


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
    if too_many <= 0:
        return ()
    load = dict(load)
    moves: list[Move] = []
    gone = _touched(view, besides)
    for weight, index in _cold_intervals(view, load, sketches, fair):
        if too_many <= 0 or len(moves) >= moves_max:
            break
        if gone & {index - 1, index, index + 1}:
            continue  # a neighbour moves too: where it goes is not yet in force
        low, last, slot = view.interval(index)
        beside = [i for i in (index - 1, index + 1) if 0 <= i < len(view)]
        takers = {view.interval(i)[2] for i in beside} & set(load) - {slot}
        if not takers:
            continue
        taker = min(takers, key=lambda s: (load[s], s))
        if load[taker] + weight > fair + fair // 16:
            continue
        both = len(beside) == 2 and view.interval(beside[0])[2] == view.interval(beside[1])[2]
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
    view: RingView, load: Mapping[int, int], sketches: Mapping[int, Sketch], fair: int
) -> list[tuple[int, int]]:
    """(load, index) of cold intervals of slots whose sketch is known, the shortest first."""
    found: list[tuple[int, int, int]] = []
    for slot, sketch in sorted(sketches.items()):
        if slot not in load:
            continue
        indices = np.flatnonzero(view.owners == slot).tolist()
        if len(indices) < 2:
            continue  # its last interval stays: a slot is removed by the scaler alone
        pieces = pieces_of(view.spans(slot), sketch, load[slot])
        kept = len(indices)
        for index in indices:
            low, last, _ = view.interval(index)
            weight = _within(pieces, low, last)
            if weight * COLD <= fair and kept > 1:
                found.append((last - low, weight, index))
                kept -= 1
    return [(weight, index) for _, weight, index in sorted(found)]


def _within(pieces: list[Piece], low: int, last: int) -> int:
    """The load of the pieces between two hashes; pieces never cross the end of an interval."""
    return sum(piece.load for piece in pieces if low <= piece.low and piece.last <= last)
