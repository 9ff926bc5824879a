"""Compacts the state of a stopped pipeline: one segment per slot, without what cannot be read.

A running pipeline does this by itself, beside its epochs, and at once if asked (`Remote.compact`).

1. No driver may lead: the lease is observed for its length.
2. A generation is appended: a driver that comes back is fenced.
3. The segments of each slot are merged and written, in pieces of the key space, synced.
4. One entry of the log for each computation replaces the old segments. A crash before it leaves
   files that no entry names.

The epoch stays the same. Past epochs can still be replayed while their segments are kept: the next
collection of a run decides that.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.engine.history.recovery import History, recover
from headrace.engine.history.shards import decode_body
from headrace.engine.leading.alone import refuse_a_leader
from headrace.engine.primitives.durable import durable_epoch
from headrace.errors import IncompatibleState
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.entry import COMMIT, DROP
from headrace.log.epochlog import EpochLog
from headrace.log.identity import read_identity
from headrace.log.rings import resolve
from headrace.plan.entries import CommitBody
from headrace.plan.epoch import Drop
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import SegmentSlice, SlotClass, SlotLedger, is_split
from headrace.plan.rings.manifest import newest_first
from headrace.plan.rings.ring import SlotRecords
from headrace.state.compaction import later_classes, merge_run, parts_of
from headrace.store.location import no_checkpoint
from headrace.store.store import Store


class Compacted(msgspec.Struct, frozen=True):
    """What a compaction has done."""

    pipeline: str
    epoch: int
    slots: int
    """How many slots were merged."""
    segments: tuple[int, int]
    """How many segments the state had, and has."""
    bytes: tuple[int, int]


def compact_stopped(store: Store, computation: str | None = None) -> Compacted:
    """Merges all segments of each slot, of one computation or of all."""
    identity = read_identity(store)
    if identity is None:
        raise no_checkpoint(store)
    log = EpochLog(store)
    history = recover(log, _retained(log))
    if computation is not None and computation not in history.ledger.slots:
        have = ", ".join(sorted(history.ledger.slots)) or "none"
        raise IncompatibleState(
            f"{store.where()} has no computation {computation!r} with state; it has: {have}"
        )
    refuse_a_leader(store, log)
    for position, entry in log.take_over():
        history.fold(position, entry)
    ledger = history.ledger
    if not ledger.interval.is_durable:
        raise IncompatibleState(
            f"{store.where()}: its last driver ended before the state since epoch "
            f"{durable_epoch(ledger)} was durable, so some of it may have to be made again: "
            "start the pipeline, and compact it while it runs"
        )
    before = len(ledger.segments()), ledger.state_bytes()
    merged = 0
    for name in sorted(ledger.slots) if computation is None else [computation]:
        slots = _compacted(store, history, name)
        merged += len(slots)
        if slots:
            drop = Drop(name, slots, "compaction")
            ledger.dropped(drop, log.append(DROP, drop))
    after = len(ledger.segments()), ledger.state_bytes()
    return Compacted(
        identity.pipeline, ledger.epoch, merged, (before[0], after[0]), (before[1], after[1])
    )


def _retained(log: EpochLog) -> int:
    """How many epochs the last driver retained: what they may read is not expired yet (C7)."""
    for position, entry in log.backwards():
        if entry.kind == COMMIT:
            return max(decode_body(position, entry, CommitBody).retain, 1)
    return 1


def _compacted(store: Store, history: History, name: str) -> dict[int, tuple[SegmentSlice, ...]]:
    ledger = history.ledger
    ring = resolve(store, ledger.rings[name])
    ins, wall = history.marks[0] if history.marks else ({}, 0)
    expired = wall if name in ledger.by_wall else ins.get(name, 0)
    return {
        slot: _merged(store, ledger, f"{name}/{slot}", ring.records(slot), state, expired)
        for slot, state in ledger.slots[name].items()
        if is_split(state.entries, ledger.epoch)
    }


def _merged(
    store: Store, ledger: Ledger, label: str, records: SlotRecords, slot: SlotLedger, expired: int
) -> tuple[SegmentSlice, ...]:
    run = newest_first(slot.entries)
    directory = run[0].segment.rpartition("/")[0]
    found: list[SegmentSlice] = []
    parts = parts_of(store, run, records, slot.classes)
    limits = store.system.limits
    applied = ledger.applied.epoch if ledger.applied.copies else None
    for data, rows in merge_run(
        parts, bottom=True, expired_before=expired, applied=applied, limits=limits
    ):
        if not rows:
            continue
        # Named for the open epoch: a driver that was paused during collection deletes files of
        # closed epochs.
        piece = f"{label}~{len(found) or ''}"
        segment = (
            f"{directory}/{paths.content_name(ledger.epoch + 1, piece, digest_of(data), '.arrow')}"
        )
        store.write(segment, data)
        made = SegmentSlice(segment, run[0].last_epoch, rows, len(data), True)
        found += entries_of(made, run, slot.classes)
    return tuple(found)


def entries_of(
    made: SegmentSlice, run: Sequence[SegmentSlice], classes: Sequence[SlotClass]
) -> list[SegmentSlice]:
    """The manifest entries of a segment that replaces all segments of a slot (J5)."""
    own = [made] if any(one.since <= made.last_epoch for one in classes) else []
    later = later_classes(run, classes)
    return [*own, *(msgspec.structs.replace(made, of=each) for each in later)]
