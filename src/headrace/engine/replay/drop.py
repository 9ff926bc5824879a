"""Removes state from a stopped pipeline by hand: of some keys, or of a whole computation.

This repairs a checkpoint that cannot continue: code raises because of stored state, or a segment is
damaged and there is no copy of it. Only the named state is lost.

1. No driver may lead: the lease is observed for its length; if the lease moves, the drop is
   refused.
2. A generation is appended, as in a takeover: a driver that comes back is fenced.
3. The segments that hold the keys are merged without them and written, synced.
4. One entry of the log replaces the old segments by the merged ones. This is the moment at which
   the state is removed; a crash before it leaves files that no entry names.

The epoch stays the same, so sinks and sources do not notice. A plan that was left open names its
input but no state: the next driver runs it, or skips it (at-most-once), as always. Past epochs can
still be replayed while their segments are kept. Dropping a whole computation reads no segment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from headrace.engine.history.recovery import History, recover
from headrace.engine.leading.alone import refuse_a_leader
from headrace.engine.primitives.compact import entries_of
from headrace.errors import CorruptCheckpoint, IncompatibleState
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.entry import DROP
from headrace.log.epochlog import EpochLog
from headrace.log.identity import read_identity
from headrace.log.rings import resolve
from headrace.model.values.keys import encode_key, hash_key
from headrace.plan.epoch import Drop
from headrace.plan.rings.classes import SegmentSlice, SlotLedger
from headrace.plan.rings.manifest import newest_first
from headrace.plan.rings.ring import SlotRecords
from headrace.state.compaction import merge_without, parts_of
from headrace.state.values import lost_of
from headrace.store.store import Store

_RETAIN = 16


class DroppedState(msgspec.Struct, frozen=True):
    """What was removed."""

    epoch: int
    """The state is that of this epoch, without what was dropped."""
    cells: int
    """How many live cells (fields, entries, timers, waiting records) were removed."""
    missing: tuple[Any, ...] = ()
    """Keys that had no state."""
    kept_in: str = ""
    """The state store that has cells too; nothing reads them any more. "" if there is none."""


def drop_state(store: Store, computation: str, keys: Sequence[Any] | None) -> DroppedState:
    """Drops the state of these keys, or, where `keys` is None, of the whole computation."""
    if read_identity(store) is None:
        raise CorruptCheckpoint(f"{store.where()} is not a checkpoint: there is no IDENTITY file")
    log = EpochLog(store)
    history = recover(log, _RETAIN)
    _check(history, computation, store)
    if keys is not None and history.ledger.applied.copies:
        raise IncompatibleState(
            f"single keys cannot be dropped with state={history.ledger.applied.backend!r}: drop "
            f"the state of {computation!r} as a whole, or let its code call ctx.forget()"
        )
    refuse_a_leader(store, log)
    for position, entry in log.take_over():
        history.fold(position, entry)
    ledger = history.ledger
    slots = ledger.slots[computation]
    if keys is not None and lost_of(store, [e for slot in slots.values() for e in slot.entries]):
        raise IncompatibleState(
            f"{store.where()}: its last driver ended before the newest state was durable, and what "
            "it has not kept must be made again first: start the pipeline, stop it with `headrace "
            "stop`, and drop the keys then"
        )
    if keys is None:
        cells = sum(entry.rows for slot in slots.values() for entry in slot.entries)
        drop = Drop(computation, dict.fromkeys(slots, ()), "the whole computation", whole=True)
        found = DroppedState(
            ledger.epoch, cells, (), ledger.applied.backend if ledger.applied.copies else ""
        )
    else:
        drop, found = _without(store, history, computation, keys)
    if drop.slots:
        log.append(DROP, drop)
    return found


def _check(history: History, computation: str, store: Store) -> None:
    if computation not in history.ledger.slots:
        have = ", ".join(sorted(history.ledger.slots)) or "none"
        raise IncompatibleState(
            f"the checkpoint {store.where()} has no computation {computation!r} with state; "
            f"it has: {have}"
        )


def _without(
    store: Store, history: History, computation: str, keys: Sequence[Any]
) -> tuple[Drop, DroppedState]:
    """The slots of some keys, rewritten without them."""
    ledger = history.ledger
    ring = resolve(store, ledger.rings[computation])
    wanted: dict[int, dict[bytes, Any]] = {}
    for key in keys:
        encoded = encode_key(key)
        slot = int(ring.place(np.array([hash_key(encoded)], np.uint64))[0])
        wanted.setdefault(slot, {})[encoded] = key
    changed: dict[int, tuple[SegmentSlice, ...]] = {}
    missing: list[Any] = []
    cells = 0
    for slot, named in wanted.items():
        before = ledger.slots[computation][slot]
        label = f"{computation}/{slot}"
        entries, gone = _rewritten(
            store, ledger.epoch, label, ring.records(slot), before, set(named)
        )
        missing += [key for encoded, key in named.items() if encoded not in gone]
        if gone:
            cells += sum(gone.values())
            changed[slot] = entries
    shown = ", ".join(repr(key) for key in keys)
    drop = Drop(computation, changed, f"the keys {shown}"[:1000])
    return drop, DroppedState(ledger.epoch, cells, tuple(missing))


def _rewritten(
    store: Store,
    epoch: int,
    label: str,
    records: SlotRecords,
    before: SlotLedger,
    gone: set[bytes],
) -> tuple[tuple[SegmentSlice, ...], dict[bytes, int]]:
    """The entries of a slot without some keys, and how many live cells each key had."""
    entries = newest_first(before.entries)
    if not entries:
        return (), {}
    parts = parts_of(store, entries, records, before.classes)
    data, rows, counts = merge_without(parts, gone)
    if not counts:
        return before.entries, {}
    if not rows:
        return (), counts
    # Named for the open epoch: a driver that was paused during collection deletes files of
    # closed epochs.
    name = paths.content_name(epoch + 1, label, digest_of(data), ".arrow")
    segment = f"{os.path.dirname(entries[0].segment)}/{name}"
    store.write(segment, data)
    made = SegmentSlice(segment, entries[0].last_epoch, rows, len(data), True)
    return tuple(entries_of(made, entries, before.classes)), counts
