"""A ring as the policies see it: intervals with their slots, and pieces with their load."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from headrace.model.values.keys import HASH_SPACE
from headrace.plan.elastic.sketch import Sketch
from headrace.plan.rings.wanted import Move

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

SPANS_MAX = 128
"""How many runs of one slot a decision looks at, the longest first."""

Interval = tuple[int, int, int]
"""(first hash, last hash, slot)."""


@dataclass(frozen=True, eq=False)
class RingView:
    """The intervals of a ring: where each begins, and which slot owns it."""

    lows: Hashes
    owners: np.ndarray[Any, np.dtype[np.int64]]
    version: int = 0
    slots: tuple[int, ...] = ()
    """The slots that own an interval, in order."""

    @staticmethod
    def of(lows: Sequence[int], owners: Sequence[int], version: int = 0) -> RingView:
        """A view of a ring that is given by its lower bounds and their slots."""
        slots = tuple(sorted(set(owners)))
        return RingView(np.array(lows, np.uint64), np.array(owners, np.int64), version, slots)

    def __len__(self) -> int:
        return len(self.lows)

    def interval(self, index: int) -> Interval:
        """The interval at an index."""
        high = int(self.lows[index + 1]) if index + 1 < len(self.lows) else HASH_SPACE
        return int(self.lows[index]), high - 1, int(self.owners[index])

    def runs(self, slot: int) -> tuple[Hashes, Hashes]:
        """(first, last hash) of each run of intervals of a slot, as arrays."""
        mine = np.flatnonzero(self.owners == slot)
        if not len(mine):
            return self.lows[:0], self.lows[:0]
        begins = np.append(True, np.diff(mine) > 1)
        ends = np.append(begins[1:], True)
        following = mine[ends] + 1
        lasts = np.full(len(following), np.uint64(HASH_SPACE - 1))
        inside = following < len(self.lows)
        lasts[inside] = self.lows[following[inside]] - np.uint64(1)
        return self.lows[mine[begins]], lasts

    def spans(self, slot: int) -> list[tuple[int, int]]:
        """(first, last hash) of each run of intervals of a slot."""
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
        kept = [i for i in range(len(lows)) if i == 0 or owners[i] != owners[i - 1]]
        return RingView.of([lows[i] for i in kept], [owners[i] for i in kept], self.version + 1)


@dataclass
class Piece:
    """A part of a slot that can move: hashes from `low` to `last`, and their load."""

    low: int
    last: int
    load: int
    heavy: bool = False
    """Whether it is a single hash that the sketch lists as heavy."""

    @property
    def length(self) -> int:
        """How many hashes it has: keys in state are spread evenly over them."""
        return self.last - self.low + 1


def lengths_of(lows: Hashes, lasts: Hashes) -> Floats:
    """How many hashes each run has."""
    return (lasts - lows).astype(np.float64) + 1.0


def spans_of(lows: Hashes, lasts: Hashes) -> list[tuple[int, int]]:
    """The longest runs, in order: with thousands of them, the others matter little."""
    if len(lows) > SPANS_MAX:
        chosen = np.sort(np.lexsort((lows, lows - lasts))[:SPANS_MAX])
        lows, lasts = lows[chosen], lasts[chosen]
    return list(zip(lows.tolist(), lasts.tolist(), strict=True))


def pieces_of(runs: tuple[Hashes, Hashes], sketch: Sketch, load: int) -> list[Piece]:
    """A slot's runs cut at the bins of its sketch, in order, with its load spread over them.

    A heavy hash is a piece of its own. What lies before the first bin, and in no bin, has no load.
    Of a slot with very many runs, only the longest are cut; the load of the others is left out.
    """
    heavy = dict(sketch.heavy)
    bins = sketch.bins
    edges = sorted({low for low, _ in bins} | {*heavy} | {h + 1 for h in heavy})
    starts = [low for low, _ in bins]
    lengths = _bin_lengths(*runs, starts) if len(runs[0]) > SPANS_MAX else None
    found: list[Piece] = []
    shares: list[list[Piece]] = [[] for _ in bins]
    total = max(sketch.total, 1)
    for first, last in spans_of(*runs):
        cuts = [first, *edges[bisect_right(edges, first) : bisect_right(edges, last)], last + 1]
        for low, high in pairwise(cuts):
            piece = Piece(low, high - 1, 0, low in heavy)
            found.append(piece)
            if piece.heavy:
                piece.load = load * heavy[low] // total
            elif (index := bisect_right(starts, low) - 1) >= 0:
                shares[index].append(piece)
    for index, ((_, records), mine) in enumerate(zip(bins, shares, strict=True)):
        length = sum(piece.length for piece in mine)
        if lengths is not None:
            length = max(length, lengths[index])
        for piece in mine:
            piece.load = load * records * piece.length // (total * length)
    return found


def _bin_lengths(lows: Hashes, lasts: Hashes, starts: Sequence[int]) -> list[int]:
    """How many hashes of the runs lie in each bin."""
    before = np.concatenate(([0.0], np.cumsum(lengths_of(lows, lasts))))
    at = np.searchsorted(lows, np.array(starts, np.uint64), side="right")
    inside = np.maximum(at - 1, 0)
    reached = np.minimum(np.array(starts, np.float64), lasts[inside].astype(np.float64) + 1.0)
    part = np.where(at > 0, np.maximum(reached - lows[inside].astype(np.float64), 0.0), 0.0)
    covered = before[inside] + part
    ends = np.append(covered[1:], before[-1])
    return [max(int(each), 1) for each in (ends - covered).tolist()]


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
