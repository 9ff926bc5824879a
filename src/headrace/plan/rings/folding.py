"""The manifests of all slots: how commits and drops change them.

The leader carries out moves; whoever reads the log takes the shards that the entry carries instead
(J12). Everything else is local to a slot, so both have the same manifests afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count

import msgspec

from headrace.limits import Limits
from headrace.plan.epoch import Adoption, Commit, Drop, SlotDelta, SlotsStep
from headrace.plan.rings.changes import RingChange
from headrace.plan.rings.classes import SlotLedger, joined
from headrace.plan.rings.manifest import (
    fold_deltas,
    with_adoption,
    with_entries,
)
from headrace.plan.rings.shards import Shards, shard_of
from headrace.plan.rings.sums import ManifestSums

Slots = dict[str, dict[int, SlotLedger]]
Skip = Callable[[str, int], bool]
"""Whether a slot's manifest comes from elsewhere."""

_numbers = count(1)
"""Tells the manifests of this process apart."""


class SlotManifests:
    """The manifests of a ledger, and the sums over them."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.tally = ManifestSums(slots)
        self._state = (next(_numbers), 0)
        self._last: Commit | None = None
        self._position = self._chains_kept = 0
        self._changed: dict[str, set[int]] = {}
        """Slots that the last commit has changed in another way than by a delta."""

    def step(self, changes: Mapping[str, RingChange]) -> SlotsStep:
        """What the last commit has changed; `changes` are those of the open plan."""
        slots = {name: list(change.slots) for name, change in changes.items()}
        if self._last is None:
            return SlotsStep(self._state, 0, 0, {}, None, self.slots, 0, slots)
        epoch, deltas = self._last.epoch, self._last.deltas
        return SlotsStep(
            self._state,
            epoch,
            self._position,
            deltas,
            self._changed,
            self.slots,
            self._chains_kept,
            slots,
        )

    def _begin(self, commit: Commit | None, position: int) -> None:
        """The manifests change once more."""
        self._state = (self._state[0], self._state[1] + 1)
        self._last, self._position, self._changed = commit, position, {}

    def committed(
        self,
        commit: Commit,
        position: int,
        limits: Limits,
        changes: Mapping[str, RingChange],
        shards: Shards,
    ) -> None:
        """Applies a commit: ring changes, then deltas, then merges; carried shards as they are."""
        self._begin(None if shards else commit, position)
        self._chains_kept = limits.chains_kept
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
        self.adopted(commit.adoptions, position, skip)

    def adopted(
        self, adoptions: Iterable[Adoption], position: int, skip: Skip | None = None
    ) -> None:
        """Applies merges that the entry at a log position adopts, except in slots to skip."""
        for adoption in adoptions:
            if skip is None or not skip(adoption.computation, adoption.slot):
                self._adopt(adoption, position)

    def kept(self, adoptions: Iterable[Adoption], position: int) -> None:
        """Applies the merges of an entry that is no commit."""
        self._begin(None, position)
        self.adopted(adoptions, position)

    def dropped(
        self, drop: Drop, epoch: int, position: int, skip: Skip = lambda name, slot: False
    ) -> None:
        """Applies a drop by a person."""
        self._begin(None, position)
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
        folded = fold_deltas(known, deltas, epoch, position, chains_kept)
        self.tally.add(folded.entries)
        self.tally.timers(name, folded.timers, known)

    def _adopt(self, adoption: Adoption, position: int) -> None:
        before = self.slots[adoption.computation][adoption.slot]
        after = with_adoption(before, adoption, position)
        self._set(adoption.computation, adoption.slot, after)

    def _join(self, name: str, slot: int) -> None:
        state = self.slots[name].get(slot)
        if state is not None and len(state.classes) > 1:
            classes = joined(state.classes, state.entries)
            self.slots[name][slot] = msgspec.structs.replace(state, classes=classes)
            self._changed.setdefault(name, set()).add(slot)

    def _set(self, name: str, slot: int, state: SlotLedger | None) -> None:
        known = self.slots[name]
        self.tally.replaced(name, slot, known.get(slot), state)
        self._changed.setdefault(name, set()).add(slot)
        if state is None:
            known.pop(slot, None)
        else:
            known[slot] = state
