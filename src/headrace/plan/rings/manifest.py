"""The manifest of a slot: which segments count, where their bytes lie, and the chain of deltas.

All of it is pure. A manifest entry never counts outside its interval; a ring that changes cuts
entries and never widens them (C1).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import xxhash

from headrace.plan.epoch import SegmentSlice, SlotDelta
from headrace.plan.rings.ring import KeyInterval, Ring


class SlotLedger(msgspec.Struct, frozen=True):
    """A slot's manifest, its chain of deltas, its earliest timers."""

    entries: tuple[SegmentSlice, ...] = ()
    chains: tuple[tuple[int, str], ...] = ((0, ""),)
    next_event_timer: int | None = None
    next_wall_timer: int | None = None


def next_chain(chain: str, segment: str | None) -> str:
    """The chain after a delta; a slot that changed nothing keeps its chain."""
    return chain if segment is None else xxhash.xxh3_128_hexdigest(f"{chain}\n{segment}".encode())


def with_delta(
    slot: SlotLedger,
    delta: SlotDelta,
    epoch: int,
    position: int,
    intervals: tuple[KeyInterval, ...],
    chains_kept: int,
) -> SlotLedger:
    """A slot after the delta of a commit at a log position."""
    entries, chains = slot.entries, slot.chains
    if delta.segment is not None:
        at = position if delta.rides else 0
        new = tuple(
            SegmentSlice(delta.segment, interval, epoch, delta.rows, delta.bytes, at=at)
            for interval in intervals
        )
        entries = (*new, *entries)
        chain = next_chain(chains[-1][1], delta.segment)
        chains = (*chains, (epoch, chain))[-chains_kept:]
    return SlotLedger(entries, chains, delta.next_event_timer, delta.next_wall_timer)


def recut(slots: dict[int, SlotLedger], old: Ring | None, new: Ring) -> dict[int, SlotLedger]:
    """Manifests under another ring: entries are cut to the new intervals, never widened (C1)."""
    if old == new:
        return slots
    if old is None:
        return {slot: SlotLedger() for slot in new.slots}
    entries = [entry for slot in slots.values() for entry in slot.entries]
    event = earliest(slot.next_event_timer for slot in slots.values())
    wall = earliest(slot.next_wall_timer for slot in slots.values())
    epoch = max((slot.chains[-1][0] for slot in slots.values()), default=0)
    found: dict[int, SlotLedger] = {}
    for owner in new.slots:
        mine: list[SegmentSlice] = []
        for interval in new.intervals(owner):
            for entry in entries:
                shared = entry.interval.overlap(interval)
                if shared is not None:
                    mine.append(msgspec.structs.replace(entry, interval=shared))
        mine.sort(key=lambda e: (-e.last_epoch, e.interval.low))
        digest = xxhash.xxh3_128_hexdigest(msgspec.json.encode([new, owner, mine]))
        found[owner] = SlotLedger(tuple(mine), ((epoch, digest),), event, wall)
    return found


def earliest(times: Iterable[int | None]) -> int | None:
    """The earliest of some times, or None if there is none."""
    return min((t for t in times if t is not None), default=None)
