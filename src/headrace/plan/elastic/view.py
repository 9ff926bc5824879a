"""A ring as the policies see it: runs of hashes with their slots, and pieces with their load.

A view depends on its ring alone, and so does all that it keeps: one view serves all decisions under
one version of a ring. Neighbouring intervals of one slot are one run, whatever their classes are.
With hundreds of thousands of runs everything here is done on whole arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headrace.model.values.keys import HASH_SPACE
from headrace.plan.elastic.sketch import Sketch
from headrace.plan.rings.ring import with_cuts
from headrace.plan.rings.wanted import Move

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

SPANS_MAX = 128
"""How many runs of one slot a decision looks at: the longest, and those with a heavy hash."""
SAMPLE = 8192
"""So many of very many lengths are looked at, to find about where the smallest end."""

_ONE = np.uint64(1)
_LAST = np.uint64(HASH_SPACE - 1)

Interval = tuple[int, int, int]
"""(first hash, last hash, slot)."""


@dataclass(frozen=True, eq=False)
class RingView:
    """The runs of a ring: where each begins, and which slot owns it."""

    lows: Hashes
    owners: Numbers
    version: int = 0
    slots: tuple[int, ...] = ()
    """The slots that own a run, in order."""

    @staticmethod
    def of(lows: Any, owners: Any, version: int = 0, slots: tuple[int, ...] = ()) -> RingView:
        """A view of a ring that is given by its lower bounds and their slots."""
        lows, owners = np.asarray(lows, np.uint64), np.asarray(owners, np.int64)
        begins = np.append(True, owners[1:] != owners[:-1])
        if not begins.all():
            lows, owners = lows[begins], owners[begins]
        return RingView(lows, owners, version, slots or tuple(np.unique(owners).tolist()))

    def __len__(self) -> int:
        return len(self.lows)

    @cached_property
    def lasts(self) -> Hashes:
        """The last hash of each run."""
        return np.append(self.lows[1:] - _ONE, _LAST)

    @cached_property
    def _by_slot(self) -> tuple[Numbers, Hashes, Hashes, dict[int, slice]]:
        """Indexes, first and last hashes of runs, slot by slot, and where those of a slot are."""
        owners = self.owners.astype(np.uint16) if self.slots[-1] < 2**16 else self.owners
        order = np.argsort(owners, kind="stable")  # of small numbers this takes linear time
        counts = np.bincount(self.owners)
        ends = np.cumsum(counts).tolist()
        where = {slot: slice(ends[slot] - int(counts[slot]), ends[slot]) for slot in self.slots}
        return order, self.lows[order], self.lasts[order], where

    @cached_property
    def longest(self) -> dict[int, int]:
        """Slot -> the index of its longest run; of equal ones, the first.

        The last run goes on in the first one: it does not count if both are of one slot.
        """
        order, lows, lasts, where = self._by_slot
        lengths = lasts - lows
        if len(self.slots) > 1 and self.owners[0] == self.owners[-1]:
            lengths[where[int(self.owners[-1])].stop - 1] = 0
        starts = np.array([each.start for each in where.values()])
        most = np.maximum.reduceat(lengths, starts)
        is_most = lengths == np.repeat(most, np.diff(np.append(starts, len(lengths))))
        found = np.flatnonzero(is_most)
        firsts = order[found[np.searchsorted(found, starts)]]
        return dict(zip(where, firsts.tolist(), strict=True))

    def interval(self, index: int) -> Interval:
        """The run at an index."""
        return int(self.lows[index]), int(self.lasts[index]), int(self.owners[index])

    def runs(self, slot: int) -> tuple[Hashes, Hashes]:
        """(first, last hash) of each run of a slot, as arrays."""
        _, lows, lasts, where = self._by_slot
        mine = where.get(slot, slice(0))
        return lows[mine], lasts[mine]

    def count(self, slot: int) -> int:
        """How many runs a slot has."""
        return len(self.runs(slot)[0])

    def spans(self, slot: int) -> list[tuple[int, int]]:
        """(first, last hash) of each run of a slot."""
        lows, lasts = self.runs(slot)
        return list(zip(lows.tolist(), lasts.tolist(), strict=True))

    def after(self, moves: Iterable[Move]) -> RingView:
        """The ring after some moves, neighbours of one slot joined."""
        lows, owners = self.lows.tolist(), self.owners.tolist()
        for move in moves:
            first = bisect_right(lows, move.low) - 1
            if lows[first] < move.low:
                first += 1
                lows.insert(first, move.low)
                owners.insert(first, owners[first - 1])
            end = bisect_right(lows, move.last)
            high = lows[end] if end < len(lows) else HASH_SPACE
            if move.last + 1 < high:
                lows.insert(end, move.last + 1)
                owners.insert(end, owners[end - 1])
            lows[first:end], owners[first:end] = [move.low], [move.to]
        return RingView.of(lows, owners, self.version + 1)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Parts of a slot that can move, in the order of hashes, each with its load.

    One that was taken stays in the list, without load.
    """

    lows: Hashes
    lasts: Hashes
    loads: Numbers
    heavy: Flags
    """Whether a piece is a single hash that the sketch lists as heavy."""

    def __len__(self) -> int:
        return len(self.lows)

    @cached_property
    def run_starts(self) -> Numbers:
        """For each piece, the first one of the run of neighbours that it is in."""
        apart = np.append(True, self.lasts[:-1] + _ONE != self.lows[1:])
        return np.maximum.accumulate(np.where(apart, np.arange(len(apart)), 0))

    @property
    def heaviest(self) -> int:
        """The load of the heaviest hash."""
        return int(self.loads[self.heavy].max(initial=0))

    def take(self, first: int, end: int, to: int) -> Move:
        """Takes neighbouring pieces away: their move to a slot."""
        self.loads[first:end] = 0
        self.heavy[first:end] = False
        self.run_starts[first:] = np.maximum(self.run_starts[first:], end)
        return Move(int(self.lows[first]), int(self.lasts[end - 1]), to)


def lengths_of(lows: Hashes, lasts: Hashes) -> Floats:
    """How many hashes each run has."""
    return (lasts - lows).astype(np.float64) + 1.0


def pieces_of(runs: tuple[Hashes, Hashes], sketch: Sketch, load: int) -> Pieces:
    """A slot's runs cut at the bins of its sketch, in order, with its load spread over them.

    A heavy hash is a piece of its own. What lies before the first bin, and in no bin, has no load.
    Of a slot with very many runs, only some are cut; the load of the others is left out.
    """
    total = max(sketch.total, 1)
    hot = np.array([key for key, _ in sketch.heavy], np.uint64)
    edges = np.concatenate((sketch.starts, hot, hot[hot != _LAST] + _ONE))
    lows, lasts = _chosen(*runs, hot)
    if not len(lows):
        return Pieces(lows, lasts, np.zeros(0, np.int64), np.zeros(0, np.bool_))
    at = np.searchsorted(lows, edges, side="right") - 1
    inside = (at >= 0) & (edges <= lasts[np.maximum(at, 0)])
    firsts = with_cuts(lows, edges[inside])
    of_run = np.searchsorted(lows, firsts, side="right") - 1
    ends = np.minimum(np.append(firsts[1:] - _ONE, _LAST), lasts[of_run])
    loads = np.zeros(len(firsts), np.int64)
    heavy = np.isin(firsts, hot)
    records = dict(sketch.heavy)
    for index in np.flatnonzero(heavy).tolist():
        loads[index] = load * records[int(firsts[index])] // total
    of_bin = np.searchsorted(sketch.starts, firsts, side="right") - 1
    spread = (of_bin >= 0) & ~heavy
    lengths = lengths_of(firsts, ends)
    bins = np.bincount(of_bin[spread], lengths[spread], len(sketch.records))
    if len(lows) < len(runs[0]):
        bins = np.maximum(bins, np.diff(bin_edges(*runs, sketch.starts)))
    per_hash = np.array(sketch.records, np.float64) * (load / total) / np.maximum(bins, 1.0)
    loads[spread] = (per_hash[of_bin[spread]] * lengths[spread]).astype(np.int64)
    return Pieces(firsts, ends, loads, heavy)


def _chosen(lows: Hashes, lasts: Hashes, hot: Hashes) -> tuple[Hashes, Hashes]:
    """The longest runs, and those with a heavy hash, in order: the others matter little."""
    if len(lows) <= SPANS_MAX:
        return lows, lasts
    lengths = lasts - lows
    longest = shortest_of(~lengths, SPANS_MAX)
    at = np.searchsorted(lows, hot, side="right") - 1
    chosen = np.union1d(longest, at[(at >= 0) & (hot <= lasts[np.maximum(at, 0)])])
    return lows[chosen], lasts[chosen]


def shortest_of(lengths: Hashes, number: int) -> Numbers:
    """The indexes of the smallest of some lengths, in order; of equal ones the first count.

    A partial sort is slow where many are equal, and which of them it takes depends on the
    processor. So a sample gives a limit, and what lies below it is sorted.
    """
    if len(lengths) <= number:
        return np.arange(len(lengths))
    sample = np.sort(lengths[:: max(1, len(lengths) // SAMPLE)])
    at = 2 * number * len(sample) // len(lengths) + 8
    limit = sample[min(at, len(sample) - 1)]
    below = np.flatnonzero(lengths < limit)
    if len(below) < number:
        below = np.append(below, np.flatnonzero(lengths == limit)[: number - len(below)])
    if len(below) < number:  # the sample has missed the others
        below = np.arange(len(lengths))
    return np.sort(below[np.argsort(lengths[below], kind="stable")[:number]])


def bin_edges(lows: Hashes, lasts: Hashes, starts: Hashes) -> Floats:
    """How many hashes of a slot's runs lie before each bin; at the end, how many it has at all."""
    before = np.concatenate(([0.0], np.cumsum(lengths_of(lows, lasts))))
    at = np.searchsorted(lows, starts, side="right")
    inside = np.maximum(at - 1, 0)
    reached = np.minimum(starts.astype(np.float64), lasts[inside].astype(np.float64) + 1.0)
    part = np.where(at > 0, np.maximum(reached - lows[inside].astype(np.float64), 0.0), 0.0)
    return np.append(before[inside] + part, before[-1])


def joined(moves: Iterable[Move]) -> tuple[Move, ...]:
    """Moves in the order of hashes, with neighbours that go to the same slot as one."""
    found: list[Move] = []
    for move in sorted(moves, key=lambda move: move.low):
        before = found[-1] if found else None
        if before is not None and before.last + 1 == move.low and before.to == move.to:
            found[-1] = Move(before.low, move.last, move.to)
        else:
            found.append(move)
    return tuple(found)
