"""Which slots of a plan have a limit, and how limits change (P1, P2, P7). Pure.

A slot that is much slower than the others holds up its epoch. The driver notices that by its own
clock, voids the plan, and the next plan has a limit for the slot. Limits stand in the ledger, so a
new driver plans alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.plan.overload import SlotLimit
from headrace.plan.units import slot_label


def limits_of_plan(
    known: Mapping[str, SlotLimit], limited: Mapping[str, int], slots: Mapping[str, Iterable[int]]
) -> dict[str, int]:
    """Label -> limit, for the slots that a plan has."""
    if not known and not limited:
        return {}
    wanted = {**{label: limit.records for label, limit in known.items()}, **limited}
    labels = {slot_label(name, slot) for name, each in slots.items() for slot in each}
    return {label: wanted[label] for label in sorted(labels & wanted.keys())}
