"""A ring change: the moves of a plan, carried out on a ring and on the manifests of its slots.

Rescale, split, merge, move and the recovery of a lost slot are all the same: net moves between
the ring of the last commit and the ring of the plan (J1, J3). The cost is that of what moves: no
segment is written, and only the slots that give or get an interval change (J6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import xxhash

from headrace.plan.rings.chains import last_chain, next_chain, only_chain, with_chain
from headrace.plan.rings.classes import Came, SlotClass, SlotLedger, inherited, pruned
from headrace.plan.rings.manifest import earliest, newest_first
from headrace.plan.rings.refs import RingRef, RingStep
from headrace.plan.rings.ring import Ring
from headrace.plan.rings.wanted import Move


class RingChange(NamedTuple):
    """What a plan's moves make of one computation."""

    step: RingStep
    ring: Ring
    slots: dict[int, SlotLedger | None]
    """The slots that give or get intervals; None if a slot has none left."""
    came: dict[int, tuple[Came, ...]]
    """Slot -> the classes that it gets."""

    def after(self, before: Mapping[int, SlotLedger]) -> dict[int, SlotLedger]:
        """The manifests of all slots of the new ring."""
        found: dict[int, SlotLedger | None] = {**before, **self.slots}
        return {slot: state for slot, state in sorted(found.items()) if state is not None}


def change_ring(
    ref: RingRef,
    ring: Ring,
    slots: Mapping[int, SlotLedger],
    moves: Sequence[Move],
    epoch: int,
    chains_kept: int,
) -> RingChange:
    """Carries out the moves of the plan of an epoch."""
    whole, goes = ring.cut(moves)
    moved = np.flatnonzero(goes != whole.owners)
    parts = np.stack((goes[moved], whole.owners[moved], whole.classes[moved]))
    groups = np.unique(parts, axis=1).T.tolist() if len(moved) else []
    class_of = {
        (slot, each): one
        for slot in {slot for _, slot, _ in groups}
        for one in slots[slot].classes
        for each in one.ids
    }
    made: dict[tuple[int, int, int], int] = {}
    renumbered: list[tuple[int, int, int]] = []
    came: dict[int, tuple[Came, ...]] = {}
    gained: dict[int, list[tuple[SlotLedger, SlotClass, int]]] = {}
    for to, slot, each in groups:
        one = class_of[slot, each]
        new = made.get((to, slot, one.id))
        if new is None:  # two classes never move as one, but a joined class is one class
            new = made[to, slot, one.id] = ref.next_class + len(made)
            gained.setdefault(to, []).append((slots[slot], one, new))
            came[to] = (*came.get(to, ()), Came(new, slot, one.since, slots[slot].chains))
        renumbered.append((to, each, new))
    step = RingStep(tuple(moves), tuple(renumbered))
    after = step.apply(ring)
    touched = sorted({slot for to, slot, _ in groups for slot in (to, slot)})
    found: dict[int, SlotLedger | None] = {
        slot: _changed(
            slots.get(slot), gained.get(slot, []), slot, after, ref.version + 1, epoch, chains_kept
        )
        for slot in touched
    }
    return RingChange(step, after, found, came)


def _changed(
    before: SlotLedger | None,
    gained: Sequence[tuple[SlotLedger, SlotClass, int]],
    slot: int,
    ring: Ring,
    version: int,
    epoch: int,
    chains_kept: int,
) -> SlotLedger | None:
    """A slot after it has got some classes and has lost what the ring no longer gives it."""
    records = ring.records(slot)
    if not len(records.lows):
        return None
    state = _new_slot(slot, epoch) if before is None else before
    live = set(np.unique(records.classes).tolist())
    classes = [_living(one, live) for one in state.classes if not live.isdisjoint(one.ids)]
    classes += [SlotClass(new, epoch) for _, _, new in gained]
    more = tuple(e for giver, one, new in gained for e in inherited(giver.entries, one, new))
    entries = newest_first(pruned((*state.entries, *more), classes))
    digest = xxhash.xxh3_128(f"{last_chain(state.chains)}\nring {version} at {epoch}\n".encode())
    for column in records:
        digest.update(column.tobytes())
    digest.update(msgspec.msgpack.encode(more))
    chains = with_chain(state.chains, epoch - 1, digest.hexdigest(), chains_kept)
    givers = [giver for giver, _, _ in gained]
    return SlotLedger(
        entries,
        chains,
        earliest((state.next_event_timer, *(giver.next_event_timer for giver in givers))),
        earliest((state.next_wall_timer, *(giver.next_wall_timer for giver in givers))),
        tuple(classes),
    )


def _new_slot(slot: int, epoch: int) -> SlotLedger:
    """A slot that takes a number: its chain says so, in case a cache knows an older owner of it."""
    return SlotLedger(
        chains=only_chain(epoch - 1, next_chain("", f"slot {slot} begins at {epoch}"))
    )


def _living(one: SlotClass, live: set[int]) -> SlotClass:
    """A class without the ids that no interval names any more.

    Its own id stays: entries may name it.
    """
    kept = tuple(each for each in one.joined if each in live)
    return one if kept == one.joined else SlotClass(one.id, one.since, kept)


def normal(ring: Ring, slots: Mapping[int, SlotLedger]) -> Ring:
    """The ring with one id per class, as a new ring object is to have it."""
    names = {
        each: one.id for state in slots.values() for one in state.classes for each in one.joined
    }
    if not names:
        return ring.with_classes(ring.owners, ring.classes)
    old = np.array(sorted(names), np.int64)
    new = np.array([names[each] for each in sorted(names)], np.int64)
    at = np.minimum(np.searchsorted(old, ring.classes), len(old) - 1)
    classes = np.where(old[at] == ring.classes, new[at], ring.classes)
    return ring.with_classes(ring.owners, classes)
