"""The rings of a checkpoint in the driver: decoded, changed by plans, written as objects.

Invariant: a plan that names a ring object is written after the object (J1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headrace.failpoints import reach
from headrace.log.content import write_named
from headrace.log.rings import keep, resolve, ring_object
from headrace.plan.epoch import Plan
from headrace.plan.ledger import Ledger
from headrace.plan.rings.changes import RingChange, change_ring, normal
from headrace.plan.rings.classes import SlotLedger
from headrace.plan.rings.refs import Reclassed, RingRef, RingStep
from headrace.plan.rings.ring import Ring
from headrace.plan.rings.wanted import Move
from headrace.store.store import Store


def changes_of(store: Store, ledger: Ledger, plan: Plan) -> dict[str, RingChange]:
    """The ring changes that a plan makes, by computation; `ledger` is that of the last commit."""
    kept = store.system.limits.chains_kept
    return {
        name: change_ring(
            ledger.rings[name],
            resolve(store, ledger.rings[name]),
            ledger.slots[name],
            moves,
            plan.epoch,
            kept,
        )
        for name, moves in plan.moves.items()
    }


class Rings:
    """The rings of the ledger that a driver leads with, and of its open plan."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store, self._ledger = store, ledger
        self._made_for: tuple[int, Mapping[str, Sequence[Move]]] = (0, {})
        """Epoch and moves of the plan whose changes these are. An epoch can be planned again with
        other moves, and while the clock stands, even at the same wall time."""
        self._changes: dict[str, RingChange] = {}

    def ring_of(self, computation: str) -> Ring:
        """The ring that a computation has since the last commit."""
        return resolve(self._store, self._ledger.rings[computation])

    def changes(self, plan: Plan) -> Mapping[str, RingChange]:
        """The ring changes of the open plan."""
        if not plan.moves:
            return {}
        if self._made_for != (plan.epoch, plan.moves):
            self._changes = changes_of(self._store, self._ledger, plan)
            self._made_for = (plan.epoch, plan.moves)
        return self._changes

    def forget(self) -> None:
        """Forgets the changes of the open plan: manifests have changed since they were made."""
        self._made_for, self._changes = (0, {}), {}

    def steps(self, plan: Plan) -> dict[str, Reclassed]:
        """What the commit of the open plan says about its ring changes."""
        return {name: change.step.classes for name, change in self.changes(plan).items()}

    def slot(self, plan: Plan, computation: str, slot: int) -> SlotLedger | None:
        """The manifest of a slot under the rings of the open plan."""
        known = self._ledger.slots.get(computation, {})
        change = self.changes(plan).get(computation)
        return change.slots.get(slot, known.get(slot)) if change else known.get(slot)

    def prepare(self, plan: Plan) -> Plan:
        """Writes the ring objects that a new plan is to name, and names them in it."""
        bases: dict[str, str] = {}
        for name, change in self.changes(plan).items():
            if not self._is_long(self._ledger.rings[name], change.step, change.ring):
                continue
            known = self._ledger.slots[name]
            slots = {s: t for s, t in {**known, **change.slots}.items() if t is not None}
            whole = normal(change.ring, slots)
            object_name, data = ring_object(plan.epoch, name, whole)
            reach("before-ring-write")
            write_named(self._store, object_name, data)
            reach("after-ring-write")
            keep(object_name, whole)
            bases[name] = object_name
        if not bases:
            return plan
        return msgspec.structs.replace(plan, ring_bases={**plan.ring_bases, **bases})

    def _is_long(self, ref: RingRef, step: RingStep, ring: Ring) -> bool:
        """Whether the moves since the last object have become too many."""
        limit = self._store.system.limits.ring_steps_max
        moves = ref.moves + len(step.moves)
        return len(ref.steps) + 1 >= limit or moves > max(limit, len(ring) // 8)
