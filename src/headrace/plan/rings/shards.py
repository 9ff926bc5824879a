"""Rolling snapshots of manifests: which slots share a shard, and which commit carries which (J12).

A shard is the manifests of some 64 slots of one computation. Each commit carries the shards that
are due, so that every shard is carried once in every `snapshot_every_epochs` commits; and a commit
that changes a ring carries every shard that it touches. So recovery folds each shard from its own
snapshot, and never repeats a move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import xxhash

from headrace.limits import Limits
from headrace.plan.rings.classes import SlotLedger

Shard = dict[int, SlotLedger]
"""Slot -> its manifest, for all slots of a shard."""

Shards = dict[str, dict[int, Shard]]
"""Computation -> number of the shard -> its content."""

ShardIndex = dict[str, dict[int, int]]
"""Computation -> number of the shard -> the log position of its newest snapshot."""


def shard_of(slot: int, limits: Limits) -> int:
    """The number of a slot's shard within its computation."""
    return slot // limits.shard_slots


def is_due(computation: str, shard: int, epoch: int, limits: Limits) -> bool:
    """Whether the commit of an epoch carries a shard."""
    every = limits.snapshot_every_epochs
    first = xxhash.xxh3_64_intdigest(computation.encode())
    return (first + shard) % every == epoch % every


def due_shards(
    slots: Mapping[str, Mapping[int, SlotLedger]],
    touched: Mapping[str, Iterable[int]],
    epoch: int,
    limits: Limits,
) -> Shards:
    """The shards that the commit of an epoch carries; `touched`: slots whose records changed."""
    found: Shards = {}
    for name in sorted({*slots, *touched}):
        known = slots.get(name, {})
        numbers = {shard_of(slot, limits) for slot in touched.get(name, ())}
        last = max(known, default=0) // limits.shard_slots
        numbers |= {n for n in range(last + 1) if is_due(name, n, epoch, limits)}
        for number in sorted(numbers):
            found.setdefault(name, {})[number] = shard_content(known, number, limits)
    return found


def shard_content(slots: Mapping[int, SlotLedger], number: int, limits: Limits) -> Shard:
    """All slots of a shard."""
    size = limits.shard_slots
    first = number * size
    if len(slots) < size:
        return {s: slots[s] for s in sorted(slots) if first <= s < first + size}
    return {s: slots[s] for s in range(first, first + size) if s in slots}


def first_position(index: ShardIndex) -> int | None:
    """The first log position that a recovery from this index needs; None if it needs none."""
    return min((at for of_name in index.values() for at in of_name.values()), default=None)
