"""The policy `even`: any slot may give to any other, and the fewest keys move.

1. The fair share of a slot is the load of all slots over their number, after keys that are heavier
   than that were set aside: such a key gets a slot for itself, and no policy can do better.
2. Slots that leave give everything away.
3. Then the busiest slot gives to the least busy one, until all are near their share. What moves
   is a single heavy key if one fits, because it moves much load with little state; otherwise the
   shortest run of hashes that has the load.

A slot without a figure neither gives nor takes (K5). The result is a list of net moves: each hash
moves at most once, from its owner to its new slot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np

from headrace.plan.elastic.sketch import Sketch
from headrace.plan.elastic.view import Pieces, RingView, joined, pieces_of
from headrace.plan.rings.wanted import Move

NEAR = 33
"""A slot is near its share if it has at most this many thirty-seconds of it."""
BESIDE_A_KEY = 1.08
"""A slot with a key that exceeds the fair share may have this times the load of that key."""
SMALL = 256
"""A move of less than this part of the fair share is not worth its place in a decision."""
ROUNDS_MAX = 4096


@dataclass(frozen=True)
class Spread:
    """Moves, and the load of each slot after them, as far as sketches show."""

    moves: tuple[Move, ...]
    load: dict[int, int]


def spread(
    view: RingView,
    load: Mapping[int, int],
    sketches: Mapping[int, Sketch],
    slots: Collection[int],
    moves_max: int,
) -> Spread:
    """The moves that spread the load over `slots`: of the ring's slots others leave, new ones join.

    `load` has a figure for each slot that may give or take; new slots need none.
    """
    spreading = _Spreading(view, load, sketches, slots)
    return Spread(spreading.moves(moves_max), spreading.load)


def hot_slots(
    figures: Mapping[int, int], fair: int, heaviest: Mapping[int, int], uneven: float
) -> list[int]:
    """The slots that have clearly more than their share, the busiest first.

    A key that exceeds the share by itself needs a slot; what lies beside it should be little.
    """
    hot = [
        slot
        for slot, figure in figures.items()
        if figure > uneven * fair and figure > BESIDE_A_KEY * heaviest.get(slot, 0)
    ]
    return sorted(hot, key=lambda slot: (-figures[slot], slot))


def hot_by_records(
    figures: Mapping[int, int], sketches: Mapping[int, Sketch], fair: int, limit: float
) -> list[int]:
    """The hot slots by figures that follow from records, as far as these are more than chance.

    Of n records that fall anywhere, a slot gets its share give or take the root of it. Four times
    that is no chance.
    """
    known = {slot: figures[slot] for slot, sketch in sketches.items() if slot in figures}
    heaviest = {slot: heaviest_of(sketches[slot], known[slot]) for slot in known}
    return [
        slot
        for slot in hot_slots(known, fair, heaviest, limit)
        if sketches[slot].total * (known[slot] - fair) ** 2 > 16 * fair * known[slot]
    ]


def fair_share(load: Collection[int], heavy: Collection[int]) -> int:
    """The load of a slot if all were even, not counting keys that exceed it by themselves."""
    rest, slots = sum(load), len(load)
    for weight in sorted(heavy, reverse=True):
        if slots <= 1 or weight * slots <= rest:
            break
        rest, slots = rest - weight, slots - 1
    return rest // max(slots, 1)


def heaviest_of(sketch: Sketch | None, load: int) -> int:
    """The load of a slot's heaviest key, as far as its sketch shows."""
    if sketch is None or not sketch.heavy:
        return 0
    return load * sketch.heavy[0][1] // max(sketch.total, 1)


def heavy_keys(load: Mapping[int, int], sketches: Mapping[int, Sketch]) -> list[int]:
    """The load of every heavy key that a sketch shows."""
    found: list[int] = []
    for slot, sketch in sketches.items():
        if slot in load:
            total = max(sketch.total, 1)
            found += [load[slot] * records // total for _, records in sketch.heavy]
    return found


def by_records(load: Mapping[int, int], sketches: Mapping[int, Sketch]) -> dict[int, int]:
    """The load of slots, shared out by their records in the epoch of their sketches.

    Busy time is known of the epochs before that one. A slot without a sketch keeps its figure.
    """
    records = {slot: sketch.total for slot, sketch in sketches.items() if slot in load}
    total = max(sum(records.values()), 1)
    busy = sum(load[slot] for slot in records)
    return {**load, **{slot: busy * each // total for slot, each in records.items()}}


class _Spreading:
    def __init__(
        self,
        view: RingView,
        load: Mapping[int, int],
        sketches: Mapping[int, Sketch],
        slots: Collection[int],
    ) -> None:
        self._view = view
        present = set(view.slots)
        self._leaving = sorted(present - set(slots))
        self._before = load
        self.load = {s: load.get(s, 0) for s in slots if s in load or s not in present}
        self._sketches = {
            slot: sketch
            for slot, sketch in sketches.items()
            if slot in load and slot in present and sketch.total
        }
        """Of slots that can give."""
        self._pieces: dict[int, Pieces] = {}
        """Giver -> its pieces that have not moved. They are made when it first gives."""
        heavy = heavy_keys(load, self._sketches)
        leaving = sum(load.get(slot, 0) for slot in self._leaving)
        shares = sorted(self.load.values())
        if shares:  # what leaves counts for the average, wherever it goes
            shares[0] += leaving
        self._fair = fair_share(shares, heavy)
        self._moves: list[Move] = []
        self._heaviest = {s: heaviest_of(each, load[s]) for s, each in self._sketches.items()}
        # Two heaps; what they say of a slot that has changed since is out of date.
        self._least_busy = [(figure, slot) for slot, figure in self.load.items()]
        heapify(self._least_busy)
        self._most_busy = [(-self._excess(s), s) for s in self.load if s in self._sketches]
        heapify(self._most_busy)

    def moves(self, moves_max: int) -> tuple[Move, ...]:
        if not self.load:
            return ()
        for slot in self._leaving:
            self._empty(slot)
        for _ in range(ROUNDS_MAX):
            if not self._most_busy or len(self._moves) >= moves_max:
                break
            excess, giver = self._most_busy[0]
            if -excess != self._excess(giver):
                heappop(self._most_busy)
            elif -excess <= self._fair // 32:
                break
            elif not self._give(giver):
                self._stuck(giver)
        return joined(self._moves)

    def _excess(self, slot: int) -> int:
        """What a slot has above its fair share, or above its heaviest key if that is more."""
        return self.load[slot] - max(self._fair, self._heaviest[slot])

    def _empty(self, slot: int) -> None:
        """Gives all of a slot away: runs of hashes, each to the slot with the most room."""
        load, sketch = self._before.get(slot, 0), self._sketches.get(slot)
        if sketch is None:
            pieces = _by_length(self._view.spans(slot), load)
        else:
            pieces = pieces_of(self._view.runs(slot), sketch, load)
        taker, taken = self._least(), 0
        for index, part in enumerate(pieces.loads.tolist()):
            if taken and part > self._fair - self.load[taker]:
                taker, taken = self._least(), 0
            self._moves.append(pieces.take(index, index + 1, taker))
            self._changed(taker, part)
            taken += 1

    def _least(self, besides: int | None = None) -> int:
        """The least busy slot; there is one `besides` another."""
        aside = None
        while True:
            figure, slot = self._least_busy[0]
            if self.load[slot] == figure and slot != besides:
                break
            heappop(self._least_busy)
            if self.load[slot] == figure:
                aside = (figure, slot)
        if aside is not None:
            heappush(self._least_busy, aside)
        return slot

    def _changed(self, slot: int, more: int) -> None:
        self.load[slot] += more
        heappush(self._least_busy, (self.load[slot], slot))
        if slot in self._sketches:
            heappush(self._most_busy, (-self._excess(slot), slot))

    def _stuck(self, slot: int) -> None:
        """A slot that can give nothing is not asked again."""
        del self._sketches[slot]
        self._most_busy = [each for each in self._most_busy if each[1] != slot]
        heapify(self._most_busy)

    def _give(self, giver: int) -> bool:
        """Moves one key or one run of hashes from a slot to the least busy one."""
        if len(self.load) < 2:
            return False
        if giver not in self._pieces:
            runs = self._view.runs(giver)
            self._pieces[giver] = pieces_of(runs, self._sketches[giver], self._before[giver])
        taker = self._least(giver)
        need = min(self._excess(giver), self._fair * NEAR // 32 - self.load[taker])
        pieces = self._pieces[giver]
        first, end = _best_run(pieces, need)
        moved = int(pieces.loads[first:end].sum())
        if moved * SMALL < self._fair:
            first, end = self._too_heavy(giver, taker)
            moved = int(pieces.loads[first:end].sum())
        if first == end:
            return False
        self._moves.append(pieces.take(first, end, taker))
        self._heaviest[giver] = pieces.heaviest
        self._changed(taker, moved)
        self._changed(giver, -moved)
        return True

    def _too_heavy(self, giver: int, taker: int) -> tuple[int, int]:
        """The lightest heavy key beside the heaviest, if its move helps though it does not fit.

        The taker then has too much, and gives of its own in a later round.
        """
        pieces = self._pieces[giver]
        heavy = np.flatnonzero(pieces.heavy & (pieces.loads * SMALL >= max(self._fair, 1)))
        if len(heavy) < 2 or taker not in self._sketches:
            return 0, 0
        index = int(heavy[np.argmin(pieces.loads[heavy])])
        load = int(pieces.loads[index])
        helps = self.load[taker] + load < self.load[giver] - self._fair // 32
        return (index, index + 1) if helps else (0, 0)


def _best_run(pieces: Pieces, need: int) -> tuple[int, int]:
    """The run of neighbouring pieces that moves the most load per key, without exceeding `need`.

    It has at least half of what is needed, if any run has; otherwise the run with the most load.
    Returns (first, end); they are equal if every piece with load is too heavy.
    """
    if need <= 0 or not len(pieces):
        return 0, 0
    lows, lasts = pieces.lows, pieces.lasts
    ends = np.arange(len(pieces))
    before = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum(pieces.loads, out=before[1:])
    upto = before[1:]
    # Of the runs that end at a piece, the longest that fits, and the shortest that has half.
    longest = np.maximum(np.searchsorted(before, upto - need, side="left"), pieces.run_starts)
    shortest = np.searchsorted(before, upto - (need + 1) // 2, side="right") - 1
    shortest = np.minimum(shortest, ends)
    counts = np.maximum(shortest - longest + 1, 0)
    if counts.any():
        end = np.repeat(ends, counts)
        nth = np.arange(len(end)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = longest[end] + nth
        size = (lasts[end] - lows[first]).astype(np.float64) + 1.0
        best = int(np.argmin(size / (upto[end] - before[first])))
        return int(first[best]), int(end[best]) + 1
    loads = np.where(longest <= ends, upto - before[longest], 0)
    best = int(np.argmax(loads))
    if not loads[best]:
        return 0, 0
    # Pieces without load at the beginning of the run stay where they are.
    first_with_load = int(np.searchsorted(before, before[longest[best]], side="right")) - 1
    return first_with_load, best + 1


def _by_length(spans: list[tuple[int, int]], load: int) -> Pieces:
    """The pieces of a slot without a sketch: its spans, each cut into sixteen."""
    total = sum(last - low + 1 for low, last in spans) or 1
    cut = [
        (start, end - 1, load * (end - start) // total)
        for low, last in spans
        for start, end in pairwise(sorted({low + (last + 1 - low) * i // 16 for i in range(17)}))
    ]
    return Pieces(
        np.array([low for low, _, _ in cut], np.uint64),
        np.array([last for _, last, _ in cut], np.uint64),
        np.array([part for _, _, part in cut], np.int64),
        np.zeros(len(cut), np.bool_),
    )
