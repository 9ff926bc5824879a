"""The part of the ledger about rings: their versions, wanted ones, and the manifests of all slots.

Nothing here is kept per interval, and no commit looks at slots that it does not change (J13).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.limits import Limits
from headrace.plan.epoch import Commit, Plan
from headrace.plan.rings.announced import Announced, announced_after
from headrace.plan.rings.changes import RingChange
from headrace.plan.rings.classes import SlotLedger
from headrace.plan.rings.folding import SlotManifests
from headrace.plan.rings.manifest import first_slot
from headrace.plan.rings.refs import RingRef, RingStep, even_slots
from headrace.plan.rings.shards import ShardIndex, Shards, due_shards
from headrace.plan.rings.sums import ManifestSums
from headrace.plan.rings.wanted import Wanted


class RingLedger(msgspec.Struct, dict=True):
    """Rings and manifests after the last commit."""

    rings: dict[str, RingRef] = {}
    slots: dict[str, dict[int, SlotLedger]] = {}
    """Computation -> slot -> its manifest. Commits carry snapshots of it by shards (J12)."""
    shards: ShardIndex = {}
    configured: dict[str, int] = {}
    """Computation -> `slots=` of the last start that was carried out."""
    wanted: dict[str, Wanted] = {}
    """Computation -> the ring that a later plan is to bring."""
    announced: dict[str, Announced] = {}
    """Computation -> since when its next ring is announced (J7)."""

    # The fold -------------------------------------------------------------

    def turn(
        self,
        commit: Commit,
        plan: Plan | None,
        position: int,
        limits: Limits,
        changes: Mapping[str, RingChange],
        shards: Shards,
    ) -> None:
        """Applies what a commit says about rings and manifests."""
        bases = plan.ring_bases if plan is not None else {}
        for name in commit.rings:
            number = even_slots(bases.get(name, ""))
            if name not in self.rings and number is not None:
                self.rings[name] = RingRef.even(number)
                self.slots[name] = {slot: first_slot(slot) for slot in range(number)}
        for name, classes in commit.steps.items():
            step = RingStep(plan.moves[name] if plan is not None else (), classes)
            self.rings[name] = self.rings[name].then(step, bases.get(name))
        self.manifests.committed(commit, position, limits, changes, shards)
        self.configured = {**self.configured, **(plan.configured if plan is not None else {})}
        later = plan.announced if plan is not None else {}
        self.announced = announced_after(self.announced, later, commit.epoch)
        for name, wanted in list(self.wanted.items()):
            if name in self.rings and self._is_settled(name, wanted, name in commit.steps):
                del self.wanted[name]

    def _is_settled(self, name: str, wanted: Wanted, changed: bool) -> bool:
        """Whether a wanted ring is there, or was computed from a ring that is no more."""
        if wanted.expects not in (0, self.rings[name].version):
            return True
        return changed if wanted.moves else wanted.slots == len(self.slots[name])

    def carried(self, commit: Commit, changes: Mapping[str, RingChange], limits: Limits) -> Shards:
        """The shards that the entry of the last commit is to carry.

        A shard that a ring change has emptied is carried too, as empty: without it, whoever folds
        the entry would keep its slots.
        """
        touched = {name: set(change.slots) for name, change in changes.items()}
        for name in self.slots.keys() - self.shards.keys():
            touched.setdefault(name, set()).update(self.slots[name])
        return due_shards(self.slots, touched, commit.epoch, limits)

    def carries(self, shards: Shards, position: int) -> None:
        """The entry at this log position carries shards: these are their newest snapshots."""
        for name, of_name in shards.items():
            index = self.shards.setdefault(name, {})
            for number, content in of_name.items():
                if content:
                    index[number] = position
                else:
                    index.pop(number, None)

    def rename_rings(self, old: str, new: str) -> None:
        """Moves the ring and the manifests of a computation to another name."""
        mappings: list[dict[str, Any]] = [
            self.slots, self.rings, self.wanted, self.configured, self.announced,
        ]  # fmt: skip
        for mapping in mappings:
            if old in mapping:
                mapping[new] = mapping.pop(old)
                self.shards.pop(new, None)  # the commit that says so carries them all
        self.shards.pop(old, None)
        self.__dict__.pop("_manifests", None)

    def forget_ring(self, name: str) -> None:
        """Forgets the ring and the manifests of a computation."""
        of_rings = (self.slots, self.rings, self.shards, self.wanted, self.configured)
        for mapping in (*of_rings, self.announced):
            mapping.pop(name, None)
        self.__dict__.pop("_manifests", None)

    # Queries --------------------------------------------------------------

    @property
    def manifests(self) -> SlotManifests:
        """The manifests of all slots, with sums that are kept in step."""
        found: SlotManifests | None = self.__dict__.get("_manifests")
        if found is None or found.slots is not self.slots:
            found = self.__dict__["_manifests"] = SlotManifests(self.slots)
        return found

    @property
    def tally(self) -> ManifestSums:
        """Sums over all manifests."""
        return self.manifests.tally

    def bases(
        self, plan: Plan, changes: Mapping[str, RingChange]
    ) -> dict[str, dict[int, SlotLedger]]:
        """What each slot starts from under the rings of a plan."""
        found: dict[str, dict[int, SlotLedger]] = {}
        for name in plan.rings:
            if name in changes:
                found[name] = changes[name].after(self.slots[name])
            elif name in self.rings:
                found[name] = self.slots[name].copy()
            else:
                number = even_slots(plan.ring_bases[name]) or 0
                found[name] = {slot: first_slot(slot) for slot in range(number)}
        return found

    def refs(self, plan: Plan, changes: Mapping[str, RingChange]) -> dict[str, RingRef]:
        """The rings of a plan."""
        found: dict[str, RingRef] = {}
        for name in plan.rings:
            base = plan.ring_bases.get(name)
            if name not in self.rings:
                found[name] = RingRef.even(even_slots(base or "") or 0)
            elif name in changes:
                found[name] = self.rings[name].then(changes[name].step, base)
            else:
                found[name] = self.rings[name]
        return found

    def segments(self) -> set[str]:
        """Every segment that is part of the state."""
        return set(self.tally.files)

    def ring_objects(self) -> set[str]:
        """Every object that a ring is based on."""
        found = {ref.base for ref in self.rings.values()}
        return {base for base in found if even_slots(base) is None}

    def state_bytes(self) -> int:
        """About how large the state is."""
        return self.tally.bytes

    def next_wall_timer(self) -> int | None:
        """When the earliest wall-time timer is due."""
        return self.tally.next_wall_timer(self.slots)
