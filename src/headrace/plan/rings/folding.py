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
from headrace.plan.rings.classes import SegmentSlice, joined
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
Timer = tuple[int, str, int]
"""(when a slot's earliest wall-time timer is due, computation, slot)."""


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

        self.fold(commit, position, limits, skip if shards else None)
        for name, change in changes.items():
            for slot in change.slots:
                self._join(name, slot)
        for name, of_name in shards.items():
            for number, content in of_name.items():
                self.install(name, number, content, limits)

    def fold(self, commit: Commit, position: int, limits: Limits, skip: Skip | None) -> None:
        """Applies the deltas and merges of a commit, except in slots to skip."""
        for name, deltas in commit.deltas.items():
            if skip is not None:
                deltas = {s: delta for s, delta in deltas.items() if not skip(name, s)}
            self._deltas(name, deltas, commit.epoch, position, limits.chains_kept)
        for adoption in commit.adoptions:
            if skip is None or not skip(adoption.computation, adoption.slot):
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

    def _deltas(
        self,
        name: str,
        deltas: Mapping[int, SlotDelta],
        epoch: int,
        position: int,
        chains_kept: int,
    ) -> None:
        """The deltas of one computation; the sums get them all at once."""
        known = self.slots[name] if deltas else {}
        added: list[SegmentSlice] = []
        timers: list[Timer] = []
        for slot, delta in deltas.items():
            before = known[slot]
            entry = entry_of(delta, epoch, position)
            known[slot] = with_delta(before, delta, epoch, entry, chains_kept)
            if entry is not None:
                added.append(entry)
            timer = delta.next_wall_timer
            if timer is not None and timer != before.next_wall_timer:
                timers.append((timer, name, slot))
        self.tally.add(added)
        self.tally.timers(timers, len(known))

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
