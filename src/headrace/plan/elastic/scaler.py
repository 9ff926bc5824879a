"""The scaler: how many slots a computation should have, from what its records take.

Tasks of one level run at the same time, and levels one after the other. So records take up the sum,
over the pipeline's computations, of what those of the busiest slot of each take. If that is more
than `above` of the time in `reports` reports in a row, as SEEP decides it, there is a bottleneck:
each computation that takes at least its share of the sum. It gets as many slots as bring it down
to `aim`.

What counts is the *demand*: the time for records as they arrive, and for those that wait, so that
they are done after `drain`. What a slot needs in every epoch besides its records is not part of it,
because more slots do not divide that. It leaves less *room* for records, though: where an epoch of
its target length would not have enough of it, there are more slots too.

A source that cannot say how much input waits shows no more than what is processed. If tasks are
then busy nearly all the time, the number of slots is doubled, and the next reports decide further.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.plan.elastic.load import Demand
from headrace.plan.elastic.settings import REPORTS_MAX, Scale
from headrace.plan.progress import counted

SECOND_US = 1_000_000
SATURATED = 0.9
"""Above this part of the time the input is probably held back."""
BEHIND_S = 1.0
"""No slots are removed where those that there are would work for longer on what waits."""
URGENT = 1.25
"""Where records need this times the threshold, slots are added at once."""
ROOM_USED = 0.95
"""Slots are meant to need at most this part of the room that there is for records."""


@dataclass(frozen=True)
class Use:
    """How busy one computation is."""

    slots: int
    demands: Sequence[Demand]
    """What its records take, report by report, the last one at the end."""
    heaviest: int = 0
    """Its heaviest key, in microseconds per second, as far as it is known: no number of slots
    divides that."""
    since_us: int | None = None
    """How long ago, by the wall time of plans, its slots last changed; None: never."""
    busy: Sequence[int] = field(default=())
    """Its busiest slot with all that it does, in microseconds per second, report by report."""


@dataclass(frozen=True)
class Target:
    """A number of slots, and why."""

    slots: int
    reason: str


@dataclass(frozen=True)
class _Needs:
    """What a computation needs, with the input that waits, in microseconds per second."""

    all: float
    """All slots together: the average of the reports, or the last one where it rises or falls."""
    busiest: Sequence[float]
    """The busiest slot, report by report, the last one at the end."""


def room_of(overhead_us: int, epoch_us: int) -> float:
    """The part of the time that is left for records when epochs are as long as they may be.

    Epochs are meant to take `epoch_us`, but never less than twice their overhead (see `pace`).
    """
    return 1 - overhead_us / max(epoch_us, 2 * overhead_us, 1)


def targets(
    uses: Mapping[str, Use],
    scale: Scale,
    slots_max: int,
    *,
    balances: bool = True,
    room: float = 1.0,
) -> dict[str, Target]:
    """Computation -> how many slots it should have, where that is another number.

    With `balances`, load that only lies in the wrong slots is left to the balancer. `room` is the
    part of the time that is left for records.
    """
    if not uses or any(len(use.demands) < scale.reports for use in uses.values()):
        return {}  # unknown is not zero: all computations share the time
    # Halfway to the threshold is still well below it: a small part of a slot is not worth one more.
    aim = min((scale.aim + scale.above) / 2, ROOM_USED * room)
    above = min(scale.above, room)
    needs, sums = _needs_of(uses, scale, scale.reports)
    if min(sums) > above * SECOND_US or _is_saturated(uses, scale):
        if sums[-1] < URGENT * above * SECOND_US and not _is_saturated(uses, scale):
            # They keep up, more or less: whether it is more is seen in a longer time.
            needs, sums = _needs_of(uses, scale, longer(scale.reports))
            if not sums or sum(sums) < above * SECOND_US * len(sums):
                return {}
        evened = sum(max(needs[name].all / use.slots, use.heaviest) for name, use in uses.items())
        if balances and evened < aim * SECOND_US and not _is_saturated(uses, scale):
            return {}
        return _more(uses, needs, aim, above, scale, slots_max)
    needs, sums = _needs_of(uses, scale, longer(scale.reports))
    if sums and max(sums) < scale.below * SECOND_US:
        return _fewer(uses, needs, aim, scale)
    return {}


def longer(reports: int) -> int:
    """How many reports a decision needs that is not urgent."""
    return min(2 * reports, REPORTS_MAX)


def _needs_of(
    uses: Mapping[str, Use], scale: Scale, reports: int
) -> tuple[dict[str, _Needs], list[float]]:
    """What each computation needs, and what all do, report by report; nothing if unknown."""
    if any(len(use.demands) < reports for use in uses.values()):
        return {}, []
    needs = {name: _needs(use, scale, reports) for name, use in uses.items()}
    return needs, [sum(each.busiest[at] for each in needs.values()) for at in range(reports)]


def _needs(use: Use, scale: Scale, reports: int) -> _Needs:
    last = use.demands[-reports:]
    every = [each.all + (each.waiting or 0) * SECOND_US / scale.drain_us for each in last]
    busiest = [
        each.busiest * needed / each.all if each.all else needed / use.slots
        for each, needed in zip(last, every, strict=True)
    ]
    average = sum(every) / len(every)
    changes = len(every) == scale.reports and 8 * abs(every[-1] - average) > average
    return _Needs(every[-1] if changes else average, busiest)


def _is_saturated(uses: Mapping[str, Use], scale: Scale) -> bool:
    """Whether tasks are busy nearly all the time, and how much input waits is unknown."""
    if all(use.demands[-1].waiting is not None for use in uses.values()):
        return False
    if any(len(use.busy) < scale.reports for use in uses.values()):
        return False
    sums = (sum(use.busy[-back] for use in uses.values()) for back in range(1, scale.reports + 1))
    return min(sums) > SATURATED * SECOND_US


def _more(
    uses: Mapping[str, Use],
    needs: Mapping[str, _Needs],
    aim: float,
    above: float,
    scale: Scale,
    slots_max: int,
) -> dict[str, Target]:
    found: dict[str, Target] = {}
    total = sum(each.busiest[-1] for each in needs.values())
    for name, use in uses.items():
        mine = needs[name].busiest[-1]
        if mine * len(uses) < total:
            continue  # others take more of the time
        if 10 * use.heaviest >= 9 * mine:
            continue  # its busiest slot has one heavy key, which more slots do not divide
        slots = max(_needed(use, needs[name], aim * mine / total), use.slots + 1)
        reason = f"records need {_percent(total)} of the time, above {above:.0%}"
        if _is_saturated(uses, scale):
            slots = max(slots, 2 * use.slots)
            reason = f"tasks were busy for more than {SATURATED:.0%} of the time"
        slots = min(slots, slots_max)
        if slots > use.slots:
            in_a_row = f"in {counted(scale.reports, 'report')} in a row"
            found[name] = Target(slots, f"{reason}, {in_a_row}")
    return found


def _fewer(
    uses: Mapping[str, Use], needs: Mapping[str, _Needs], aim: float, scale: Scale
) -> dict[str, Target]:
    found: dict[str, Target] = {}
    total = sum(each.busiest[-1] for each in needs.values())
    for name, use in uses.items():
        if use.since_us is not None and use.since_us < scale.cooldown_us:
            continue
        if (use.demands[-1].waiting or 0) > BEHIND_S * SECOND_US * use.slots:
            continue  # with fewer slots it would be behind for longer
        share = needs[name].busiest[-1] / total if total else 1 / len(uses)
        slots = max(_needed(use, needs[name], aim * share), scale.slots_min)
        if slots < use.slots:
            found[name] = Target(
                slots,
                f"records need {_percent(total)} of the time, below {scale.below:.0%}, in "
                f"{counted(scale.reports, 'report')} in a row",
            )
    return found


def _needed(use: Use, needs: _Needs, aim: float) -> int:
    """How many slots bring a computation's busiest slot down to `aim`.

    A key that takes more by itself gets a slot, and the others are for the rest.
    """
    each = max(1.0, aim * SECOND_US)
    if use.heaviest > each:
        return 1 + math.ceil(max(0.0, needs.all - use.heaviest) / each)
    return max(1, math.ceil(needs.all / each))


def _percent(share: float) -> str:
    return f"{share / SECOND_US:.0%}"
