"""The manifests of all slots: how commits and drops change them.

The leader carries out moves; whoever reads the log takes the shards that the entry carries instead
(J12). Everything else is local to a slot, so both have the same manifests afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from headrace.limits import Limits
from headrace.plan.epoch import Adoption, Commit, Drop, SlotDelta
from headrace.plan.rings.changes import RingChange
from headrace.plan.rings.classes import joined
from headrace.plan.rings.manifest import (
    SlotLedger,
    entry_of,
    with_adoption,
    with_delta,
    with_entries,
)
from headrace.plan.rings.shards import Shards, shard_of
from headrace.plan.rings.sums import ManifestSums

Slots = dict[str, dict[int, SlotLedger]]
Skip = Callable[[str, int], bool]
"""Whether a slot's manifest comes from elsewhere."""


class SlotManifests:
    """The manifests of a ledger, and the sums over them."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.tally = ManifestSums(slots)

    def committed(
        self,
        commit: Commit,
        position: int,
        limits: Limits,
        changes: Mapping[str, RingChange],
        shards: Shards,
    ) -> None:
        """Applies a commit: ring changes, then deltas, then merges; carried shards as they are."""
        for name, change in changes.items():
            for slot, state in change.slots.items():
                self._set(name, slot, state)

        def skip(name: str, slot: int) -> bool:
            return name in shards and shard_of(slot, limits) in shards[name]

        self.fold(commit, position, limits, skip)
        for name, change in changes.items():
            for slot in change.slots:
                self._join(name, slot)
        for name, of_name in shards.items():
            for number, content in of_name.items():
                self.install(name, number, content, limits)

    def fold(self, commit: Commit, position: int, limits: Limits, skip: Skip) -> None:
        """Applies the deltas and merges of a commit, except in slots to skip."""
        for name, deltas in commit.deltas.items():
            for slot, delta in deltas.items():
                if not skip(name, slot):
                    self._delta(name, slot, delta, commit.epoch, position, limits)
        for adoption in commit.adoptions:
            if not skip(adoption.computation, adoption.slot):
                self._adopt(adoption, position)

    def dropped(
        self, drop: Drop, epoch: int, position: int, skip: Skip = lambda name, slot: False
    ) -> None:
        """Applies a drop by a person."""
        for slot, entries in drop.slots.items():
            if not skip(drop.computation, slot):
                before = self.slots[drop.computation][slot]
                why = f"dropped at log position {position}"
                after = with_entries(before, entries, epoch, why)
                self._set(drop.computation, slot, after)

    def install(
        self, name: str, number: int, content: Mapping[int, SlotLedger], limits: Limits
    ) -> None:
        """Replaces a shard by its snapshot."""
        known = self.slots.setdefault(name, {})
        first = number * limits.shard_slots
        for slot in [s for s in known if first <= s < first + limits.shard_slots]:
            if slot not in content:
                self._set(name, slot, None)
        for slot, state in content.items():
            self._set(name, slot, state)

    def _delta(
        self, name: str, slot: int, delta: SlotDelta, epoch: int, position: int, limits: Limits
    ) -> None:
        before = self.slots[name][slot]
        entry = entry_of(delta, epoch, position)
        after = with_delta(before, delta, epoch, entry, limits.chains_kept)
        self.slots[name][slot] = after
        if entry is not None:
            self.tally.add(entry)
        if after.next_wall_timer != before.next_wall_timer:
            self.tally.timer(name, slot, after.next_wall_timer)

    def _adopt(self, adoption: Adoption, position: int) -> None:
        before = self.slots[adoption.computation][adoption.slot]
        after = with_adoption(before, adoption, position)
        self._set(adoption.computation, adoption.slot, after)

    def _join(self, name: str, slot: int) -> None:
        state = self.slots[name].get(slot)
        if state is not None and len(state.classes) > 1:
            classes = joined(state.classes, state.entries)
            self.slots[name][slot] = msgspec.structs.replace(state, classes=classes)

    def _set(self, name: str, slot: int, state: SlotLedger | None) -> None:
        known = self.slots[name]
        self.tally.replaced(name, slot, known.get(slot), state)
        if state is None:
            known.pop(slot, None)
        else:
            known[slot] = state
