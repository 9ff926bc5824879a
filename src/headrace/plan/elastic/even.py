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

from headrace.plan.elastic.sketch import Sketch
from headrace.plan.elastic.view import Piece, RingView, joined, pieces_of
from headrace.plan.rings.wanted import Move

NEAR = 33
"""A slot is near its share if it has at most this many thirty-seconds of it."""
BESIDE_A_KEY = 1.08
"""A slot with a key that exceeds the fair share may have this times the load of that key."""
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
        self.load = {s: load.get(s, 0) for s in slots if s in load or s not in present}
        self._pieces: dict[int, list[Piece]] = {}
        """Giver -> its pieces that have not moved, in the order of hashes."""
        for slot, sketch in sketches.items():
            if slot in load and slot in present and sketch.total:
                self._pieces[slot] = pieces_of(view.runs(slot), sketch, load[slot])
        for slot in self._leaving:
            if slot not in self._pieces:
                self._pieces[slot] = _by_length(view.spans(slot), load.get(slot, 0))
        heavy = [p.load for pieces in self._pieces.values() for p in pieces if p.heavy]
        leaving = sum(load.get(slot, 0) for slot in self._leaving)
        shares = sorted(self.load.values())
        if shares:  # what leaves counts for the average, wherever it goes
            shares[0] += leaving
        self._fair = fair_share(shares, heavy)
        self._moves: list[Move] = []
        self._heaviest = {slot: _heaviest(pieces) for slot, pieces in self._pieces.items()}
        self._least_busy = [(figure, slot) for slot, figure in self.load.items()]
        """A heap; what it says of a slot that has changed since is out of date."""
        heapify(self._least_busy)

    def moves(self, moves_max: int) -> tuple[Move, ...]:
        if not self.load:
            return ()
        for slot in self._leaving:
            self._empty(slot)
        stuck: set[int] = set()
        for _ in range(ROUNDS_MAX):
            if len(self._moves) >= moves_max:
                break
            givers = [s for s in self.load if s in self._pieces and s not in stuck]
            if not givers:
                break
            giver = max(givers, key=lambda s: (self._excess(s), -s))
            if self._excess(giver) <= self._fair // 32:
                break
            if not self._give(giver):
                stuck.add(giver)
        return joined(self._moves)

    def _excess(self, slot: int) -> int:
        """What a slot has above its fair share, or above its heaviest key if that is more."""
        return self.load[slot] - max(self._fair, self._heaviest[slot])

    def _empty(self, slot: int) -> None:
        """Gives all of a slot away: runs of hashes, each to the slot with the most room."""
        taker, taken = self._least(), 0
        for piece in self._pieces.pop(slot):
            room = self._fair - self.load[taker]
            if taken and piece.load > room:
                taker, taken = self._least(), 0
            self._move(piece.low, piece.last, piece.load, taker)
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

    def _give(self, giver: int) -> bool:
        """Moves one key or one run of hashes from a slot to the least busy one."""
        if len(self.load) < 2:
            return False
        taker = self._least(giver)
        need = min(self._excess(giver), self._fair * NEAR // 32 - self.load[taker])
        pieces = self._pieces[giver]
        first, end = _best_run(pieces, need)
        if first == end:
            first, end = self._too_heavy(giver, taker)
        if first == end:
            return False
        run = pieces[first:end]
        del pieces[first:end]
        for piece in run:
            self._move(piece.low, piece.last, piece.load, taker)
        self._changed(giver, -sum(piece.load for piece in run))
        self._heaviest[giver] = _heaviest(pieces)
        return True

    def _too_heavy(self, giver: int, taker: int) -> tuple[int, int]:
        """The lightest heavy key beside the heaviest, if its move helps though it does not fit.

        The taker then has too much, and gives of its own in a later round.
        """
        pieces = self._pieces[giver]
        heavy = sorted((p.load, i) for i, p in enumerate(pieces) if p.heavy and p.load)
        if len(heavy) < 2 or taker not in self._pieces:
            return 0, 0
        load, index = heavy[0]
        helps = self.load[taker] + load < self.load[giver] - self._fair // 32
        return (index, index + 1) if helps else (0, 0)

    def _move(self, low: int, last: int, load: int, taker: int) -> None:
        self._moves.append(Move(low, last, taker))
        self._changed(taker, load)


def _heaviest(pieces: list[Piece]) -> int:
    return max((piece.load for piece in pieces if piece.heavy), default=0)


def _best_run(pieces: list[Piece], need: int) -> tuple[int, int]:
    """The run of neighbouring pieces that moves the most load per key, without exceeding `need`.

    It has at least half of what is needed, if any run has; otherwise the run with the most load.
    Returns (first, end); they are equal if every piece with load is too heavy.
    """
    best: tuple[int, int] = (0, 0)
    if need <= 0:
        return best
    best_cost: tuple[int, float] | None = None
    first, load, length = 0, 0, 0
    for end, piece in enumerate(pieces):
        if first < end and pieces[end - 1].last + 1 != piece.low:
            first, load, length = end, 0, 0
        load += piece.load
        length += piece.length
        while first <= end and (load > need or (first < end and pieces[first].load == 0)):
            load -= pieces[first].load
            length -= pieces[first].length
            first += 1
        # Runs that end here: each suffix may be the cheapest one that has half of the need.
        at, part, size = first, load, length
        while at <= end and part > 0:
            enough = 2 * part >= need
            if not enough and best_cost is not None and best_cost[0] == 0:
                break
            cost = (0, size / part) if enough else (1, -part)
            if best_cost is None or cost < best_cost:
                best, best_cost = (at, end + 1), cost
            part -= pieces[at].load
            size -= pieces[at].length
            at += 1
    return best


def _by_length(spans: list[tuple[int, int]], load: int) -> list[Piece]:
    """The pieces of a slot without a sketch: its spans, each cut into sixteen."""
    total = sum(last - low + 1 for low, last in spans) or 1
    found = []
    for low, last in spans:
        cuts = sorted({low + (last + 1 - low) * i // 16 for i in range(17)})
        for start, end in pairwise(cuts):
            found.append(Piece(start, end - 1, load * (end - start) // total))
    return found
