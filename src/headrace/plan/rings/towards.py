"""Which moves lead from a ring to a wanted one: rescale, scale out, split, merge, move. Pure.

Every function returns net moves, in order of hashes: each hash at most once, and none that stays
where it is. They move the fewest keys that reach the goal: a slot that stays gives only what it has
too much of, and a new slot takes the lowest free number.

`figures` say how heavy slots are. Without them the length of a slot's intervals counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.model.values.keys import HASH_SPACE
from headrace.plan.rings.ring import Ring, SlotRecords, with_cuts
from headrace.plan.rings.wanted import Move, Wanted

Figures = Mapping[int, float]
"""Slot -> its load, in any unit."""

Moves = tuple[Move, ...]


def moves_towards(ring: Ring, wanted: Wanted, figures: Figures | None = None) -> Moves:
    """The moves that bring a ring to a wanted one."""
    if wanted.moves:
        return net_moves(ring, wanted.moves)
    return rescale(ring, wanted.slots, figures)


def rescale(ring: Ring, slots: int, figures: Figures | None = None) -> Moves:
    """Moves to another number of slots, of about equal load."""
    if slots < 1:
        raise ValueError(f"a ring has at least 1 slot, not {slots}")
    if slots > len(ring.slots):
        return scale_out(ring, ring.slots, slots, figures)
    weights = _weights(ring, figures)
    target = sum(weights.values()) / slots
    # The lightest leave, as that moves the fewest keys; of equal ones, the highest numbers.
    order = sorted(ring.slots, key=lambda slot: (-weights[slot], slot))
    staying, leaving = sorted(order[:slots]), sorted(order[slots:])
    needs = {slot: max(target - weights[slot], 0.0) for slot in staying}
    return _deal(ring, weights, {slot: weights[slot] for slot in leaving}, needs)


def scale_out(
    ring: Ring, slots: Sequence[int], number: int, figures: Figures | None = None
) -> Moves:
    """Moves that turn some slots into `number` slots of about equal load.

    It serves a rescale (all slots), the split of a slot that is too heavy, and the recovery of a
    large slot as several.
    """
    if number < len(slots):
        raise ValueError(f"{len(slots)} slots cannot be scaled out to {number}")
    weights = _weights(ring, figures)
    target = sum(weights[slot] for slot in slots) / number
    gives = {slot: max(weights[slot] - target, 0.0) for slot in slots}
    new = free_slots(ring.slots, number - len(slots))
    return _deal(ring, weights, gives, dict.fromkeys(new, target))


def split(ring: Ring, slot: int, figures: Figures | None = None) -> Moves:
    """Moves that turn a slot into two."""
    return scale_out(ring, (slot,), 2, figures)


def merge(ring: Ring, slot: int, into: int) -> Moves:
    """Moves that give all of a slot to another one."""
    records = ring.records(slot)
    return net_moves(ring, [Move(*each, into) for each in _pairs(records)])


def net_moves(ring: Ring, moves: Iterable[Move]) -> Moves:
    """Any moves, carried out one after the other, as net moves (J1)."""
    moves = list(moves)
    for each in moves:
        if not 0 <= each.low <= each.last < HASH_SPACE or each.to < 0:
            raise ValueError(f"{each} is no move: hashes are from 0 to 2**64 - 1")
    ends = [each.last + 1 for each in moves if each.last + 1 < HASH_SPACE]
    cuts = np.array([*(each.low for each in moves), *ends], np.uint64)
    lows = with_cuts(ring.lows, cuts)
    owners = ring.place(lows)
    goal = owners.copy()
    for each in moves:
        first = np.searchsorted(lows, np.uint64(each.low), side="left")
        goal[first : np.searchsorted(lows, np.uint64(each.last), side="right")] = each.to
    return _runs(lows, owners, goal)


def free_slots(taken: Iterable[int], number: int) -> list[int]:
    """The lowest numbers that no slot has."""
    known, found, each = set(taken), list[int](), 0
    while len(found) < number:
        if each not in known:
            found.append(each)
        each += 1
    return found


def _weights(ring: Ring, figures: Figures | None) -> dict[int, float]:
    """The load of each slot."""
    if figures is not None and all(figures.get(slot, 0.0) > 0 for slot in ring.slots):
        return {slot: float(figures[slot]) for slot in ring.slots}
    lengths = _lengths(ring.lows, ring.lasts)
    totals = np.bincount(ring.owners, weights=lengths)
    return {slot: float(totals[slot]) for slot in ring.slots}


def _lengths(lows: Any, lasts: Any) -> Any:
    return (lasts - lows).astype(np.float64) + 1.0


def _deal(
    ring: Ring,
    weights: Mapping[int, float],
    gives: Mapping[int, float],
    needs: Mapping[int, float],
) -> Moves:
    """Gives the ends of some slots' intervals to others, in proportion to what they need.

    All that one slot gives lies together in the order of its intervals, so that at most one
    interval is cut for each slot that gets something from it.
    """
    total, wanted = sum(gives.values()), sum(needs.values())
    if total <= 0 or not needs:
        return ()
    shares = needs if wanted > 0 else dict.fromkeys(needs, 1.0)
    scale = total / sum(shares.values())
    left = [(slot, share * scale) for slot, share in sorted(shares.items()) if share > 0]
    found: list[Move] = []
    for slot, weight in sorted(gives.items()):
        if weight <= 0:
            continue
        records = ring.records(slot)
        ends = np.cumsum(_lengths(records.lows, records.lasts))
        length = float(ends[-1])
        unit = length / weights[slot]
        at = 0.0 if weight >= weights[slot] else length - weight * unit
        while weight > 0:
            to, need = left[0]
            last = len(left) == 1
            taken = weight if last else min(weight, need)
            end = length if taken >= weight else at + taken * unit
            found += _between(records, ends, at, end, to)
            weight, at = (0.0, at) if taken >= weight else (weight - taken, end)
            if taken >= need and not last:
                left.pop(0)
            else:
                left[0] = (to, need - taken)
    return net_moves(ring, found) if len(found) < 1000 else _net_of_many(ring, found)


def _between(records: SlotRecords, ends: Any, begin: float, end: float, to: int) -> list[Move]:
    """Moves of what lies from `begin` to `end`, counted in hashes along a slot's intervals."""
    starts = np.concatenate(([0.0], ends[:-1]))
    first = int(np.searchsorted(ends, begin, side="right"))
    found = []
    for i in range(first, len(ends)):
        if starts[i] >= end:
            break
        low, last = int(records.lows[i]), int(records.lasts[i])
        if begin > starts[i]:
            low = min(low + int(begin - starts[i]), last)
        if end < ends[i]:
            last = min(int(records.lows[i]) + int(end - starts[i]) - 1, last)
        if low <= last:
            found.append(Move(low, last, to))
    return found


def _net_of_many(ring: Ring, moves: Sequence[Move]) -> Moves:
    """As `net_moves`, for moves that do not overlap."""
    whole, goes = ring.cut(sorted(moves, key=lambda each: each.low))
    return _runs(whole.lows, whole.owners, goes)


def _runs(lows: Any, owners: Any, goal: Any) -> Moves:
    """One move for each run of intervals that go to the same slot and do not lie there already."""
    moving = goal != owners
    begins = moving.copy()
    begins[1:] &= (~moving[:-1]) | (goal[1:] != goal[:-1])
    firsts = np.flatnonzero(begins)
    stops = np.ones(len(lows), np.bool_)
    stops[:-1] = (~moving[1:]) | (goal[1:] != goal[:-1])
    lasts = np.flatnonzero(moving & stops)
    highs = np.append(lows[1:] - np.uint64(1), np.uint64(HASH_SPACE - 1))
    return tuple(
        Move(*each)
        for each in zip(
            lows[firsts].tolist(), highs[lasts].tolist(), goal[firsts].tolist(), strict=True
        )
    )


def _pairs(records: SlotRecords) -> list[tuple[int, int]]:
    return list(zip(records.lows.tolist(), records.lasts.tolist(), strict=True))
