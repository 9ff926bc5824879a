"""Classes of a slot, and the manifest entries that count in them (J2 to J4).

A class is a set of intervals that came to one slot in one ring change from one class of one slot.
It knows the first epoch, `since`, that ran under this ownership. A segment is named once per slot,
not once per interval: as *own*, it counts in every class whose `since` is at most its last epoch;
as *inherited*, it counts in one class. So a ring change rewrites no segment and cuts no entry.

All of it is pure and knows one slot at a time. A driver holds hundreds of thousands of these
structures and none refers back, so Python's cyclic collector does not look at them (`gc=False`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from headrace.plan.rings.chains import FIRST


class SegmentSlice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A manifest entry: a segment, and in which classes of its slot it counts."""

    segment: str
    last_epoch: int
    rows: int
    bytes: int
    bottom: bool = False
    """Whether rows were dropped from it: deletions, because no older segment lies beneath it, or
    cells that a state store has. A cache from before it cannot be brought up to date."""
    at: int = 0
    """The log position in whose entry the segment rides (M1); 0 if it is a file of its own."""
    of: int | None = None
    """The class that inherited it; None if it is the slot's own."""
    written: bool = False
    """Whether it may be lost: it was written without a sync, and no checkpoint has it (M2)."""


class SlotClass(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A class of a slot."""

    id: int
    since: int
    """The first epoch that ran under this ownership."""
    joined: tuple[int, ...] = ()
    """Ids of classes that were joined with it; intervals of the ring may still name them."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids by which intervals of the ring name it."""
        return (self.id, *self.joined)


class Came(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where a class of a slot came from in the ring change of this epoch (J7)."""

    id: int
    slot: int
    """The slot that it left."""
    since: int
    """Since when that slot had owned it."""
    chains: str
    """The last chains of that slot, up to the ring change."""


class SlotLedger(msgspec.Struct, frozen=True, gc=False):
    """A slot's manifest, its classes, its chain of deltas, its earliest timers."""

    entries: tuple[SegmentSlice, ...] = ()
    """Newest first."""
    chains: str = FIRST
    """The chains of the last commits (`rings/chains`)."""
    next_event_timer: int | None = None
    """A lower bound, like the next: after a move the report of the next epoch corrects it (J8)."""
    next_wall_timer: int | None = None
    classes: tuple[SlotClass, ...] = ()

    def base(self, came: tuple[Came, ...] = ()) -> SlotBase:
        """What a task of this slot starts from."""
        return SlotBase(self.entries, self.chains, self.classes, came)


class SlotBase(msgspec.Struct, frozen=True, gc=False):
    """What a slot starts from: its manifest entries, and the chain that proves a cache fresh."""

    entries: tuple[SegmentSlice, ...]
    chains: str
    """The chains of the last commits (`rings/chains`)."""
    classes: tuple[SlotClass, ...] = ()
    came: tuple[Came, ...] = ()
    """The classes that this epoch's ring change brought."""


def counts(entry: SegmentSlice, of: SlotClass) -> bool:
    """Whether an entry of a slot counts in one of the slot's classes (J2)."""
    return entry.last_epoch >= of.since if entry.of is None else entry.of == of.id


def is_split(entries: Iterable[SegmentSlice], until: int) -> bool:
    """Whether entries of several epochs up to this one are not merged yet."""
    return len({entry.last_epoch for entry in entries if entry.last_epoch <= until}) > 1


def counting_in(entry: SegmentSlice, classes: Iterable[SlotClass]) -> list[int]:
    """The ids, as the ring has them, of all classes in which an entry counts."""
    return [each for one in classes if counts(entry, one) for each in one.ids]


def inherited(entries: Iterable[SegmentSlice], of: SlotClass, new: int) -> tuple[SegmentSlice, ...]:
    """The entries that count in a class, as the class `new` of another slot inherits them (J3)."""
    return tuple(msgspec.structs.replace(e, of=new) for e in entries if counts(e, of))


def pruned(
    entries: Iterable[SegmentSlice], classes: Sequence[SlotClass]
) -> tuple[SegmentSlice, ...]:
    """The entries that count in some class of their slot (J3)."""
    live = {one.id for one in classes}
    first = min((one.since for one in classes), default=None)
    return tuple(
        e
        for e in entries
        if (e.of in live if e.of is not None else first is not None and e.last_epoch >= first)
    )


def joined(classes: Sequence[SlotClass], entries: Iterable[SegmentSlice]) -> tuple[SlotClass, ...]:
    """Joins classes of a slot between which no entry makes a difference (J4).

    The later `since` stays, so that no entry from before counts in what came later.
    """
    if len(classes) < 2:
        return tuple(classes)
    entries = list(entries)
    heirs = {e.of for e in entries if e.of is not None}
    epochs = sorted({e.last_epoch for e in entries if e.of is None})
    found: list[SlotClass] = []
    last: SlotClass | None = None
    for one in sorted(classes, key=lambda c: (c.since, c.id)):
        if one.id in heirs:
            found.append(one)
        elif last is None or any(last.since <= epoch < one.since for epoch in epochs):
            if last is not None:
                found.append(last)
            last = one
        else:
            first, second = sorted((last, one), key=lambda c: c.id)
            last = SlotClass(first.id, one.since, (*first.joined, *second.ids))
    if last is not None:
        found.append(last)
    return tuple(sorted(found, key=lambda c: c.id))
