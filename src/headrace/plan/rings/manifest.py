"""The manifest of a slot: which segments count, in which classes, and the chain of deltas.

All of it is pure, and every function sees one slot alone: so a driver that folds only some slots
has the same manifests for them as the leader (J12).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from headrace.plan.epoch import Adoption, SlotDelta
from headrace.plan.rings.chains import last_chain, next_chain, only_chain, with_segment
from headrace.plan.rings.classes import (
    SegmentSlice,
    SlotClass,
    SlotLedger,
    joined,
)


def first_slot(slot: int) -> SlotLedger:
    """A slot of the first ring of a computation."""
    return SlotLedger(classes=(SlotClass(slot, 0),))


class FoldedDeltas(NamedTuple):
    """What the deltas of a commit have brought to the slots of a computation."""

    entries: list[SegmentSlice]
    timers: list[int]
    """Slots with another earliest wall-time timer."""


def fold_deltas(
    slots: dict[int, SlotLedger],
    deltas: Mapping[int, SlotDelta],
    epoch: int,
    position: int,
    chains_kept: int,
) -> FoldedDeltas:
    """Adds the deltas of a commit at a log position to the slots of a computation.

    There may be ten thousand, so this is one loop.
    """
    added: list[SegmentSlice] = []
    timers: list[int] = []
    for slot, delta in deltas.items():
        before = slots[slot]
        entries, chains, segment = before.entries, before.chains, delta.segment
        if segment is not None:
            at = position if delta.rides else 0
            entry = SegmentSlice(
                segment, epoch, delta.rows, delta.bytes, False, at, None, delta.written
            )
            added.append(entry)
            entries = (entry, *entries)
            chains = with_segment(chains, epoch, segment, chains_kept)
        timer = delta.next_wall_timer
        if timer is not None and timer != before.next_wall_timer:
            timers.append(slot)
        slots[slot] = SlotLedger(entries, chains, delta.next_event_timer, timer, before.classes)
    return FoldedDeltas(added, timers)


def adopts(run: Iterable[SegmentSlice], slot: SlotLedger) -> bool:
    """Whether the merge of a run can still be adopted by a slot (J5).

    Entries of a class that has left went with it; all others must be there, unchanged.
    """
    live = {one.id for one in slot.classes}
    there = set(slot.entries)
    return all(entry in there for entry in run if entry.of is None or entry.of in live)


def with_adoption(slot: SlotLedger, adoption: Adoption, position: int) -> SlotLedger:
    """A slot after a merge result has replaced a run of its entries (J5).

    The result stands as own where some class has `since` up to its last epoch, and under every
    later class in which an entry of the run counted.
    """
    result = adoption.entry
    if adoption.rides:
        result = msgspec.structs.replace(result, at=position)
    replaced = set(adoption.replaces)
    kept = [e for e in slot.entries if (e.segment, e.of) not in replaced]
    if any(one.since <= result.last_epoch for one in slot.classes):
        kept.append(result)
    live = {one.id for one in slot.classes}
    kept += [msgspec.structs.replace(result, of=c) for c in adoption.classes if c in live]
    entries = newest_first(kept)
    return msgspec.structs.replace(slot, entries=entries, classes=joined(slot.classes, entries))


def with_entries(
    slot: SlotLedger, entries: tuple[SegmentSlice, ...], epoch: int, why: str
) -> SlotLedger:
    """A slot whose entries a person has replaced; no cache of it stays valid."""
    chain = next_chain(last_chain(slot.chains), why)
    return msgspec.structs.replace(slot, entries=entries, chains=only_chain(epoch, chain))


def newest_first(entries: Iterable[SegmentSlice]) -> tuple[SegmentSlice, ...]:
    """Entries in the order in which they are read."""
    return tuple(sorted(entries, key=lambda e: -e.last_epoch))


def earliest(times: Iterable[int | None]) -> int | None:
    """The earliest of some times, or None if there is none."""
    return min((t for t in times if t is not None), default=None)
