"""The balancer and the scaler as one pure function: load and rings in, wanted rings out (K4).

It has no clock, no memory and no random numbers: periods are counted in reports and in the wall
time of plans, and all that it knows is in the ledger. So a new leader decides as the old one would.

Rules of quiet (K5):
- A computation whose wanted ring is not yet committed is left alone.
- A new ring makes its figures unknown: only reports under that ring count for the next decision.
- Load moves only if a slot exceeds its fair share in two reports in a row, by a fifth; and then
  until all are within a thirty-second of it. Between the two nothing happens.
- A slot that exceeds it by three tenths is not left alone so long: one report is enough, if the
  records of its own epoch show the same as the busy time of the epochs before it. This holds under
  a new ring too. Where only the records show it, the next epoch reports as well.
- A decision that would not make the busiest slot clearly lighter is not taken. If decisions do not
  help (a slot is slow for another reason than its records), each needs twice as many reports.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import NamedTuple

from headrace.plan.elastic.cascade import Bounds, Step, cascade
from headrace.plan.elastic.cold import merge_cold
from headrace.plan.elastic.decision import BALANCER, SCALER, Decided, Decision
from headrace.plan.elastic.even import (
    by_records,
    fair_share,
    heaviest_of,
    heavy_keys,
    hot_by_records,
    hot_slots,
    spread,
)
from headrace.plan.elastic.figures import ComputationLoad
from headrace.plan.elastic.scale import figure_of
from headrace.plan.elastic.scaler import SECOND_US, Target, Use, room_of, targets
from headrace.plan.elastic.settings import EVEN, RING, Elasticity, Scale
from headrace.plan.elastic.sketch import Sketch
from headrace.plan.elastic.view import SPANS_MAX, RingView, joined
from headrace.plan.rings.wanted import Move, Wanted

FLOE = Scale(above=0.7, aim=0.6, below=0.45)
"""When a slot is overloaded and when it has room, where `scale=` does not say it."""
WORTH = 32
"""A decision must make the busiest slot lighter by this part of the fair share."""


def decide_rings(
    loads: Mapping[str, ComputationLoad],
    rings: Mapping[str, RingView],
    wanted: Container[str],
    settings: Elasticity,
    *,
    epoch: int,
    wall: int,
    tasks: int = 0,
    early: bool = False,
    overhead: int = 0,
) -> Decided:
    """What to want after the report of this epoch, whose plan has this wall time.

    `early`: it is a report that the one before has asked for. It does not ask for another.
    `overhead`: how many microseconds an epoch takes besides its records.
    """
    rings = {name: ring for name, ring in rings.items() if name in loads}
    if not settings.is_on or not rings:
        return Decided()
    found: dict[str, Wanted] = {}
    asked: dict[str, tuple[int, ...]] = {}
    decisions: list[Decision] = []
    soon = False
    counts: dict[str, int] = {name: len(ring.slots) for name, ring in rings.items()}
    goals: dict[str, Target] = {}
    if settings.scale is not None and settings.policy != RING:
        uses = {name: _use(loads[name], ring, wall) for name, ring in rings.items()}
        balances = settings.policy == EVEN
        room = room_of(overhead, settings.epoch_us) if settings.epoch_us else 1.0
        goals = targets(uses, settings.scale, settings.slots_max, balances=balances, room=room)
    for name, ring in sorted(rings.items()):
        if name in wanted:
            continue
        load, slots = loads[name], len(ring.slots)
        by, after, reason = BALANCER, slots, ""
        want: Wanted | None = None
        evening = _Evening()
        if name in goals:
            by, after, reason = SCALER, goals[name].slots, goals[name].reason
            want = _resized(ring, load, after, settings, reason)
        elif settings.policy == EVEN:
            evening = _evened(ring, load, settings, early=early)
            reason, soon = evening.reason, soon or evening.soon
            if evening.moves:
                want = Wanted(moves=evening.moves, expects=ring.version, reason=reason, by=by)
        elif settings.policy == RING:
            step = _stepped(ring, load, settings)
            reason = step.reason or "the cascade has ended"
            if step.asked != load.asked:
                asked[name] = step.asked
            if step.moves:
                after = slots + step.slots
                want = Wanted(moves=step.moves, expects=ring.version, reason=reason, by=by)
        counts[name] = after
        if want is not None:
            found[name] = want
        if want is not None or name in asked:
            moved = len(want.moves) if want is not None else 0
            figures = evening.busiest, evening.promised
            decisions.append(Decision(epoch, wall, name, by, reason, slots, after, moved, *figures))
    wants_tasks = _tasks(counts, settings, tasks) if found else 0
    return Decided(found, wants_tasks, asked, tuple(decisions), soon)


class _Hot(NamedTuple):
    """What is known of load when a slot has too much."""

    load: Mapping[int, int]
    """Of every slot: what the moves are chosen by."""
    fair: int
    reason: str
    """Empty if no slot has too much."""


class _Evening(NamedTuple):
    """What the policy `even` decides for a computation."""

    moves: tuple[Move, ...] = ()
    """None if the load is even enough."""
    reason: str = ""
    busiest: int = 0
    """The figure of the busiest slot, if that is to fall."""
    promised: int = 0
    """What it is to fall to."""
    soon: bool = False
    """Whether the next epoch should report too: records are uneven, and busy time does not show
    it yet."""


def _evened(
    ring: RingView, load: ComputationLoad, settings: Elasticity, *, early: bool
) -> _Evening:
    slots = set(ring.slots)
    known = {slot: figure for slot, figure in load.averages().items() if slot in slots}
    if len(known) < 2:
        return _Evening()
    hot = _urgent(load, known, settings)
    if hot is not None and not hot.reason and not early:
        # The sketches are newer than the busy times, and show another slot to be hot: moves that
        # are chosen from both would be wrong.
        return _Evening(soon=True)
    if hot is None or not hot.reason:
        if load.reports < load.reports_needed:
            return _Evening()
        hot = _twice(load, known, settings)
    moves: tuple[Move, ...] = ()
    reason, after, busiest = hot.reason, dict(hot.load), max(hot.load.values())
    if reason:
        found = spread(ring, hot.load, load.sketches, slots, settings.moves_max)
        if (busiest - max(found.load.values())) * WORTH >= hot.fair:
            moves, after = found.moves, dict(found.load)  # otherwise it would not help enough
    most = settings.intervals_per_slot * len(slots)
    merges = merge_cold(
        ring, after, load.sketches, hot.fair, most, settings.moves_max - len(moves), besides=moves
    )
    if moves:
        return _Evening(joined([*moves, *merges]), reason, busiest, max(after.values()))
    return _Evening(merges, f"{len(ring)} intervals are more than {most}: cold ones are merged")


def _twice(load: ComputationLoad, known: Mapping[int, int], settings: Elasticity) -> _Hot:
    """A slot has more than its share in two reports in a row."""
    fair = fair_share(known.values(), heavy_keys(known, load.sketches))
    twice = {slot: figure for slot in known if (figure := load.twice(slot)) is not None}
    heaviest = {slot: heaviest_of(load.sketches.get(slot), twice[slot]) for slot in twice}
    hot = hot_slots(twice, fair, heaviest, settings.uneven)
    if not hot or twice[hot[0]] < settings.busy_min * SECOND_US:
        return _Hot(known, fair, "")
    times = f"{twice[hot[0]] / max(fair, 1):.1f}"
    return _Hot(known, fair, f"slot {hot[0]} has {times} times its share in two reports in a row")


def _urgent(load: ComputationLoad, known: Mapping[int, int], settings: Elasticity) -> _Hot | None:
    """A slot has far more than its share in its last figure and in the records of the epoch after.

    These are two different epochs, and records are counted and not measured; so this is as much
    as two reports say, but earlier. None if the records are even enough. Without a reason if the
    records show a slot to be hot, but no slot is hot by both.
    """
    last = {slot: figure_of(load.busy[slot]) for slot in known}
    if not load.sketches or load.futile or max(last.values()) < settings.busy_min * SECOND_US:
        return None
    now = by_records(last, load.sketches)
    fair = fair_share(now.values(), heavy_keys(now, load.sketches))
    by_now = hot_by_records(now, load.sketches, fair, settings.urgent)
    if not by_now:
        return None
    hot = [slot for slot in by_now if last[slot] > settings.urgent * fair]
    reason = ""
    if hot:
        times = f"{now[hot[0]] / max(fair, 1):.1f}"
        reason = f"slot {hot[0]} has {times} times its share in a report and the records after it"
    return _Hot(now, fair, reason)


def _stepped(ring: RingView, load: ComputationLoad, settings: Elasticity) -> Step:
    """One step of the policy `ring`. Without `scale=` no slot is added and none leaves."""
    scale = settings.scale or FLOE
    slots = len(ring.slots)
    known = load.averages()
    hot = {
        slot: int(figure / _chance(load.sketches.get(slot)))
        for slot in known
        if (figure := load.twice(slot)) is not None
    }
    # Rows that wait for a slot are a queue: with one, a slot is overloaded whatever its figure.
    high = int(scale.above * SECOND_US)
    hot |= {slot: max(hot[slot], high + 1) for slot in load.carried if slot in hot}
    bounds = Bounds(
        high=high,
        low=int(scale.aim * SECOND_US),
        slots_min=slots if settings.scale is None else scale.slots_min,
        slots_max=slots if settings.scale is None else max(settings.slots_max, slots),
    )
    if load.reports < 2:
        return Step(asked=load.asked)
    return cascade(ring, known, hot, load.sketches, load.asked, bounds)


def _chance(sketch: Sketch | None) -> float:
    """By how much a figure is rarely too high by chance, as a factor: few records say little."""
    return 1 + 2 / math.sqrt(sketch.total) if sketch is not None and sketch.total else 1.0


def _use(load: ComputationLoad, ring: RingView, wall: int) -> Use:
    slots = set(ring.slots)
    known = {slot: figure_of(step) for slot, step in load.busy.items() if slot in slots}
    heaviest = max(heavy_keys(known, load.sketches), default=0)
    if heaviest and load.demands:  # of the time for records, not of all that the slot does
        heaviest = heaviest * load.demands[-1].busiest // max(known.values())
    since = wall - load.decided_wall if load.decided else None
    return Use(len(slots), load.demands, heaviest, since, load.used)


def _resized(
    ring: RingView, load: ComputationLoad, count: int, settings: Elasticity, reason: str
) -> Wanted:
    """A ring with another number of slots: by load where sketches are known, or just the number."""
    present = set(ring.slots)
    known = {slot: figure for slot, figure in load.averages().items() if slot in present}
    by_number = Wanted(slots=count, reason=reason, by=SCALER)
    if len(known) < len(ring.slots):
        return by_number
    slots = list(ring.slots)
    if count > len(slots):
        free = (number for number in range(count + len(slots)) if number not in present)
        slots += [next(free) for _ in range(count - len(slots))]
    else:
        least = set(sorted(slots, key=lambda slot: (known[slot], -slot))[: len(slots) - count])
        slots = [slot for slot in slots if slot not in least]
    if any(ring.count(slot) > SPANS_MAX for slot in present - set(slots)):
        return by_number  # what leaves would need too many moves
    moves = spread(ring, known, load.sketches, slots, settings.moves_max).moves
    if not set(slots) - present <= {move.to for move in moves}:
        return by_number  # a new slot got nothing: without sketches nothing can be divided
    return Wanted(moves=moves, expects=ring.version, reason=reason, by=SCALER)


def _tasks(slots: Mapping[str, int], settings: Elasticity, tasks: int) -> int:
    """How many tasks a level needs for the wanted rings, on a cluster that can grow; else 0."""
    needed = max(slots.values())
    return needed if settings.sets_tasks and needed != (tasks or settings.tasks) else 0
