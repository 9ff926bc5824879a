"""The policy `ring`: each slot deals with its clockwise neighbour alone, as in Floe.

A slot that is overloaded asks its neighbour on the ring. A neighbour that has room accepts, and
the token between the two, the first hash of the neighbour, moves by half of the difference of load.
A neighbour without room first asks its own neighbour, and so on: that is a cascade. It has no room
either if the key next to it is too heavy to be taken in addition to what it has. If the question
comes back to the slot that began, nobody has room, and a new slot is placed in the middle of that
slot's load. A slot leaves when it and its neighbour both have little to do.

Of several overloaded slots the one with the most load asks first; but one that can give at once
goes before those that must wait for others, and one that can never give is passed over.
A cascade that came round in vain stands, without a further decision, until a slot has room.

One step is one report. A step looks at the figures of one slot and its neighbour. Who has asked
whom is in the ledger, so a new leader continues a cascade where the old one stopped (K4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.plan.elastic.sketch import Sketch
from headrace.plan.elastic.view import RingView, pieces_of
from headrace.plan.rings.wanted import Move


@dataclass(frozen=True)
class Bounds:
    """Figures of a slot, in busy microseconds per second, and how many slots there may be."""

    high: int
    """A slot above this in two reports in a row is overloaded."""
    low: int
    """A slot below this has room; two neighbours below it have little to do."""
    slots_min: int
    slots_max: int


@dataclass(frozen=True)
class Step:
    """What one step of the policy decides."""

    moves: tuple[Move, ...] = ()
    asked: tuple[int, ...] = ()
    """The cascade after the step: each slot has asked the next one; empty if there is none."""
    reason: str = ""
    """Why; empty if nothing was decided."""
    slots: int = 0
    """How many slots more there are after it."""


@dataclass(frozen=True)
class _Arc:
    """A run of hashes of one slot, and the slot behind it."""

    low: int
    last: int
    slot: int
    following: int


def cascade(
    view: RingView,
    load: Mapping[int, int],
    hot: Mapping[int, int],
    sketches: Mapping[int, Sketch],
    asked: tuple[int, ...],
    bounds: Bounds,
) -> Step:
    """The next step, from the average `load` and the lower of the last two figures, `hot`."""
    arcs = _arcs(view)
    asked = tuple(slot for slot in asked if slot in arcs)
    if asked and hot.get(asked[0], bounds.high + 1) <= bounds.high and asked[0] in hot:
        return Step(reason=f"slot {asked[0]} is no longer overloaded")
    overloaded = [slot for slot in arcs if hot.get(slot, 0) > bounds.high]
    overloaded.sort(key=lambda slot: (-hot[slot], slot))
    if not asked and not overloaded:
        return _leave(arcs, load, bounds)
    if not asked:
        return _begin(view, arcs, load, sketches, overloaded, bounds)
    step = _ask(view, arcs, load, sketches, asked, bounds)
    if step.moves or step.asked:
        return step
    # It came round in vain. It stands until one of its slots can give after all.
    for number in range(1, len(asked)):
        again = _ask(view, arcs, load, sketches, asked[:number], bounds)
        if again.moves:
            return again
    others = [slot for slot in overloaded if slot != asked[0]]
    begun = _begin(view, arcs, load, sketches, others, bounds)
    return begun if begun.moves else Step((), asked, step.reason)


def _begin(
    view: RingView,
    arcs: Mapping[int, _Arc],
    load: Mapping[int, int],
    sketches: Mapping[int, Sketch],
    overloaded: Sequence[int],
    bounds: Bounds,
) -> Step:
    """The first of these slots that can give at once, or else the first that can ask."""
    steps = [_ask(view, arcs, load, sketches, (slot,), bounds) for slot in overloaded]
    giving = [step for step in steps if step.moves]
    asking = [step for step in steps if step.asked]
    return next(iter((*giving, *asking, *steps)), Step())


def _ask(
    view: RingView,
    arcs: Mapping[int, _Arc],
    load: Mapping[int, int],
    sketches: Mapping[int, Sketch],
    asked: tuple[int, ...],
    bounds: Bounds,
) -> Step:
    """The last slot of the cascade asks its neighbour."""
    giver = asked[-1]
    arc, taker = arcs[giver], arcs[giver].following
    if taker in asked:
        return _new_slot(view, arcs, load, sketches, asked, bounds)
    if giver not in load or taker not in load:
        # Unknown is not zero: it waits for their figures.
        return Step((), asked, f"slot {giver} asks slot {taker}; not both figures are known")
    own = _Tails.of(arc, sketches.get(giver), load[giver])
    if len(asked) == 1 and own.evenly(0, worth=4) is None:
        return Step(reason=f"slot {giver} has little beside a key that cannot be divided")
    if load[taker] > bounds.low:
        return Step((), (*asked, taker), f"slot {giver} asks slot {taker}, which has no room")
    low = own.evenly(load[taker])
    if low is None and len(asked) > 1:  # it is asked for room, and not for what is fair
        low = own.at_most(bounds.low - load[taker])
    if low is None:
        reason = f"slot {giver} asks slot {taker}, which has no room for its last key"
        return Step((), (*asked, taker), reason)
    move = Move(low, arc.last, taker)
    return Step((move,), asked[:-1], f"slot {giver} gives to slot {taker}, which has room")


def _new_slot(
    view: RingView,
    arcs: Mapping[int, _Arc],
    load: Mapping[int, int],
    sketches: Mapping[int, Sketch],
    asked: tuple[int, ...],
    bounds: Bounds,
) -> Step:
    """Nobody has room: half of the load of the slot that began goes to a new slot."""
    giver = asked[0]
    slots = set(view.slots)
    if len(slots) >= bounds.slots_max:
        return Step(reason="no slot has room, and there may be no more slots")
    if giver not in load:
        return Step((), asked, f"no slot has room; the figure of slot {giver} is not known")
    new = next(number for number in range(len(slots) + 1) if number not in slots)
    arc = arcs[giver]
    low = _Tails.of(arc, sketches.get(giver), load[giver]).evenly(0)
    if low is None:
        return Step(reason="no slot has room for one key")
    return Step((Move(low, arc.last, new),), (), f"no slot has room: slot {new} is new", 1)


def _leave(arcs: Mapping[int, _Arc], load: Mapping[int, int], bounds: Bounds) -> Step:
    """A slot that has little to do, beside a neighbour with little to do, gives all to it."""
    if len(arcs) <= bounds.slots_min:
        return Step()
    for slot, arc in sorted(arcs.items()):
        if slot not in load or arc.following not in load or arc.following == slot:
            continue
        if load[slot] + load[arc.following] <= bounds.low:
            reason = f"slots {slot} and {arc.following} have little to do: slot {slot} leaves"
            return Step((Move(arc.low, arc.last, arc.following),), (), reason, -1)
    return Step()


@dataclass(frozen=True, eq=False)
class _Tails:
    """The parts of an arc that its slot can give away: each reaches to the end of the arc."""

    load: int
    """Of the slot."""
    lows: tuple[int, ...] = ()
    """Where each part begins, the smallest part first."""
    loads: tuple[int, ...] = ()
    """How much of the load each part has."""

    @classmethod
    def of(cls, arc: _Arc, sketch: Sketch | None, load: int) -> _Tails:
        """Cut where the sketch allows it. Something always stays."""
        if sketch is None or not sketch.total:
            return cls(load)
        run = np.array([arc.low], np.uint64), np.array([arc.last], np.uint64)
        pieces = pieces_of(run, sketch, load)
        lows, loads = pieces.lows[:0:-1], np.cumsum(pieces.loads[:0:-1])
        return cls(load, tuple(lows.tolist()), tuple(loads.tolist()))

    def evenly(self, besides: int, worth: int = 16) -> int | None:
        """Where the part begins after whose move the heavier of giver and taker has the least.

        `besides` is what the taker has. None if that is not less than the giver has now by one
        `worth`-th.
        """
        heavier = [max(self.load - part, besides + part) for part in self.loads]
        least = min(heavier, default=self.load)
        return self.lows[heavier.index(least)] if least <= self.load - self.load // worth else None

    def at_most(self, amount: int) -> int | None:
        """Where the largest part begins that has no more load; None if that is hardly any."""
        fitting = [at for at, part in enumerate(self.loads) if self.load // 16 < part <= amount]
        return self.lows[fitting[-1]] if fitting else None


def _arcs(view: RingView) -> dict[int, _Arc]:
    """Each slot's longest run of hashes, and the slot behind it; the last run's is the first's.

    Under this policy a slot has one run, or two around the end of the key space.
    """
    found: dict[int, _Arc] = {}
    for slot, index in view.longest.items():
        low, last, _ = view.interval(index)
        found[slot] = _Arc(low, last, slot, int(view.owners[(index + 1) % len(view)]))
    return found
