"""The scaler: how many slots a computation should have, as SEEP decides it.

Tasks of one level run at the same time, and levels one after the other. So the pipeline's tasks
are busy for the sum, over its computations, of what the busiest slot of each takes. If that is more
than `above` of the time in `reports` reports in a row, there is a bottleneck: each computation that
takes at least its share of the sum. It gets as many slots as bring it down to `aim`.

If tasks are busy nearly all the time, the input is held back, and how much more there is cannot be
seen: then the number of slots is doubled, and the next reports decide further.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.plan.elastic.settings import Scale
from headrace.plan.progress import counted

SECOND_US = 1_000_000
SATURATED = 0.9
"""Above this part of the time the input is probably held back."""


@dataclass(frozen=True)
class Use:
    """How busy one computation is, in microseconds per second."""

    slots: int
    busy: int
    """All its slots together, in the last report."""
    reports: Sequence[int]
    """Its busiest slot, report by report, the last one at the end."""
    heaviest: int = 0
    """Its heaviest key, as far as it is known: no number of slots divides that."""
    since_us: int | None = None
    """How long ago, by the wall time of plans, its slots last changed; None: never."""


@dataclass(frozen=True)
class Target:
    """A number of slots, and why."""

    slots: int
    reason: str


def targets(
    uses: Mapping[str, Use], scale: Scale, slots_max: int, *, balances: bool = True
) -> dict[str, Target]:
    """Computation -> how many slots it should have, where that is another number.

    With `balances`, load that only lies in the wrong slots is left to the balancer.
    """
    known = {name: use for name, use in uses.items() if len(use.reports) >= scale.reports}
    if not known or len(known) < len(uses):
        return {}  # unknown is not zero: all computations share the time
    sums = [
        sum(use.reports[-back] for use in known.values()) for back in range(1, scale.reports + 1)
    ]
    if min(sums) > scale.above * SECOND_US:
        evened = sum(max(use.busy // use.slots, use.heaviest) for use in known.values())
        if balances and evened < scale.aim * SECOND_US:
            return {}
        return _more(known, sums[0], scale, slots_max)
    if max(sums) < scale.below * SECOND_US:
        return _fewer(known, sums[0], scale)
    return {}


def _more(uses: Mapping[str, Use], total: int, scale: Scale, slots_max: int) -> dict[str, Target]:
    found: dict[str, Target] = {}
    for name, use in uses.items():
        mine = use.reports[-1]
        if mine * len(uses) < total:
            continue  # others take more of the time
        if 10 * use.heaviest >= 9 * mine:
            continue  # its busiest slot has one heavy key, which more slots do not divide
        slots = max(_needed(use, mine / total, scale.aim), use.slots + 1)
        if total > SATURATED * SECOND_US:
            slots = max(slots, 2 * use.slots)
        slots = min(slots, slots_max)
        if slots > use.slots:
            found[name] = Target(
                slots,
                f"tasks were busy for {_percent(total)} of the time, above {scale.above:.0%}, in "
                f"{counted(scale.reports, 'report')} in a row",
            )
    return found


def _fewer(uses: Mapping[str, Use], total: int, scale: Scale) -> dict[str, Target]:
    found: dict[str, Target] = {}
    for name, use in uses.items():
        if use.since_us is not None and use.since_us < scale.cooldown_us:
            continue
        mine = use.reports[-1]
        share = mine / total if total else 1 / len(uses)
        slots = max(_needed(use, share, scale.aim), scale.slots_min)
        if slots < use.slots:
            found[name] = Target(
                slots,
                f"tasks were busy for {_percent(total)} of the time, below {scale.below:.0%}, in "
                f"{counted(scale.reports, 'report')} in a row",
            )
    return found


def _needed(use: Use, share: float, aim: float) -> int:
    """How many slots bring a computation's busiest slot down to its share of the aim.

    A small part of a slot more is not worth another one: the aim is well below the threshold.
    """
    exact = use.busy / max(1.0, aim * share * SECOND_US)
    return max(1, math.ceil(exact - 0.15))


def _percent(busy: int) -> str:
    return f"{busy / SECOND_US:.0%}"
