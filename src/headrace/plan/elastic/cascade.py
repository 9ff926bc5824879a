"""The policy `ring`: each slot deals with its clockwise neighbour alone, as in Floe.

A slot that is overloaded asks its neighbour on the ring. A neighbour that has room accepts, and
the token between the two, the first hash of the neighbour, moves by half of the difference of load.
A neighbour without room first asks its own neighbour, and so on: that is a cascade. If the question
comes back to the slot that began, nobody has room, and a new slot is placed in the middle of that
slot's load. A slot leaves when it and its neighbour both have little to do.

One step is one report. A step looks at the figures of one slot and its neighbour. Who has asked
whom is in the ledger, so a new leader continues a cascade where the old one stopped (K4).
"""

from __future__ import annotations

from collections.abc import Mapping
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
    if not asked:
        overloaded = [slot for slot in arcs if hot.get(slot, 0) > bounds.high]
        if not overloaded:
            return _leave(arcs, load, bounds)
        asked = (max(overloaded, key=lambda slot: (hot[slot], -slot)),)
    return _ask(view, arcs, load, sketches, asked, bounds)


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
    if load[taker] > bounds.low:
        return Step((), (*asked, taker), f"slot {giver} asks slot {taker}, which has no room")
    moves = _tail(arc, sketches.get(giver), load[giver], (load[giver] - load[taker]) // 2, taker)
    if not moves:
        return Step(reason=f"slot {giver} has one key that cannot be divided")
    return Step(moves, asked[:-1], f"slot {giver} gives to slot {taker}, which has room")


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
    moves = _tail(arcs[giver], sketches.get(giver), load[giver], load[giver] // 2, new)
    reason = f"no slot has room: slot {new} is new" if moves else "no slot has room for one key"
    return Step(moves, (), reason, len(moves))


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


def _tail(arc: _Arc, sketch: Sketch | None, load: int, amount: int, taker: int) -> tuple[Move, ...]:
    """The end of an arc, next to its neighbour, that has about `amount` of the slot's load."""
    if sketch is None or not sketch.total or amount <= 0:
        return ()
    run = np.array([arc.low], np.uint64), np.array([arc.last], np.uint64)
    pieces = pieces_of(run, sketch, load)
    taken, low = 0, arc.last + 1
    for first, part in zip(pieces.lows[::-1].tolist(), pieces.loads[::-1].tolist(), strict=True):
        if taken + part > amount * 17 // 16:
            break
        taken, low = taken + part, first
    if not taken or low == arc.low:
        return ()
    return (Move(low, arc.last, taker),)


def _arcs(view: RingView) -> dict[int, _Arc]:
    """Each slot's longest run of hashes, and the slot behind it; the last run's is the first's.

    Under this policy a slot has one run, or two around the end of the key space.
    """
    found: dict[int, _Arc] = {}
    for slot, index in view.longest.items():
        low, last, _ = view.interval(index)
        found[slot] = _Arc(low, last, slot, int(view.owners[(index + 1) % len(view)]))
    return found
