"""The cache of a worker process between tasks: open segments, time indexes, decoded objects.

Rules (protocol C4):
- A cached slot is valid only if the task's plan names the chain of deltas from which it was built.
  Later deltas are read from their segments.
- The changes of a task stay *pending* until a later plan names the chain that includes its delta.
  Any other plan drops them. So a failed attempt leaves no trace.
- A slot that is at epoch c keeps the cells of classes with `since` up to c, and catches them up
  from newer entries. It drops all others, and builds what the slot has gained from all entries
  (J6), or from a piece that was prefetched (J7).

Objects are kept in two stages: touched once (probation) and touched again (protected). A scan over
a million cold keys, or a window that was just written, passes through probation and evicts no
protected object. Plain LRU would evict them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.plan.rings.chains import epochs_of, last_chain, next_chain
from headrace.plan.rings.classes import SegmentSlice, SlotBase, SlotClass, counts
from headrace.plan.rings.ring import SlotRecords
from headrace.state.pieces import (
    INDEXES,
    Cells,
    PrefetchedPiece,
    built_cells,
    cell_changes,
    cells_inside,
    keys_outside,
)
from headrace.state.segment import Segment
from headrace.state.timeindex import Changes, TimeIndex
from headrace.state.view import SlotView
from headrace.store.store import Store

OBJECTS_MAX = 100_000
SEGMENTS_MAX = 2_000
PIECES_MAX = 256


class ObjectCache:
    """A bounded cache of decoded key objects, in two stages."""

    def __init__(self, limit: int = OBJECTS_MAX) -> None:
        self.limit = limit
        self._probation: OrderedDict[bytes, Any] = OrderedDict()
        self._protected: OrderedDict[bytes, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self._probation) + len(self._protected)

    def take(self, key: bytes) -> tuple[Any, bool]:
        """Removes and returns an object, or None, and whether it was touched before."""
        found = self._protected.pop(key, None)
        if found is None:
            found = self._probation.pop(key, None)
        return found, found is not None

    def give(self, key: bytes, state: Any, *, again: bool) -> None:
        """Puts an object into the cache."""
        (self._protected if again else self._probation)[key] = state
        while len(self._protected) > self.limit * 4 // 5:
            old, value = self._protected.popitem(last=False)
            self._probation[old] = value
        while len(self) > self.limit:
            (self._probation or self._protected).popitem(last=False)

    def keys(self) -> list[bytes]:
        """The keys of all objects."""
        return [*self._probation, *self._protected]

    def drop(self, key: bytes) -> None:
        """Removes an object that is out of date."""
        self._probation.pop(key, None)
        self._protected.pop(key, None)


class Pending:
    """The changes of a task, to be adopted if its delta is committed."""

    __slots__ = ("chain", "changes", "objects")

    def __init__(
        self, chain: str, changes: Mapping[str, Changes], objects: list[tuple[bytes, Any, bool]]
    ) -> None:
        self.chain, self.changes, self.objects = chain, changes, objects


class CachedSlot:
    """One slot of one computation at a committed epoch."""

    def __init__(self, chain: str, epoch: int, records: SlotRecords) -> None:
        self.chain = chain
        self.epoch = epoch
        self.records = records
        """The intervals that it holds cells of."""
        self.indexes: dict[str, TimeIndex] = {name: TimeIndex() for name in INDEXES}
        self.objects = ObjectCache()
        self.pending: Pending | None = None


class OpenSlot:
    """The state that a task uses: the view, indexes and objects of its base."""

    def __init__(self, cached: CachedSlot, view: SlotView) -> None:
        self._cached = cached
        self.view = view
        self.indexes = cached.indexes
        self.objects = cached.objects

    def leave(
        self,
        segment: str | None,
        changes: Mapping[str, Changes],
        objects: list[tuple[bytes, Any, bool]],
    ) -> None:
        """At the end of a task: keeps its changes as pending, until a plan names their chain."""
        chain = next_chain(self._cached.chain, segment)
        self._cached.pending = Pending(chain, changes, objects)


def _lost_deletions(cached: CachedSlot, base: SlotBase) -> bool:
    """Whether the segments no longer show all deletions since the cache's epoch.

    A merge that includes the oldest segment drops tombstones. Catching up from its result would
    keep deleted timers alive, so the slot is built again.
    """
    return any(entry.bottom and entry.last_epoch > cached.epoch for entry in base.entries)


class WorkerCache:
    """The whole cache of one worker process."""

    def __init__(self) -> None:
        self._segments: OrderedDict[tuple[str, str], Segment | bytes] = OrderedDict()
        """Open segments, and the bytes of those that this process has just made."""
        self._slots: dict[tuple[Any, ...], CachedSlot] = {}
        self.hits = 0
        """How often a segment was open already, or its bytes were here."""
        self.opened = 0
        """How often a segment had to be opened."""
        self.fetched = 0
        """How many bytes those segments have."""
        self._pieces: deque[PrefetchedPiece] = deque(maxlen=PIECES_MAX)
        self.slots_opened = self.slots_built = 0
        """How many slots were opened, and how many of these had to be built from all entries."""

    def open(
        self,
        store: Store,
        checkpoint: str,
        computation: str,
        slot: int,
        base: SlotBase,
        records: SlotRecords,
    ) -> OpenSlot:
        """Opens the slot at `base`; `records` are its intervals."""
        segments = {e.segment: self.segment(store, e) for e in base.entries}
        view = SlotView(base.entries, records, base.classes, segments)
        where = (store.location, checkpoint, computation)
        known = epochs_of(base.chains)
        chain = last_chain(base.chains)
        epoch = known[chain]
        cached = self._slots.get((*where, slot))
        self.slots_opened += 1
        if cached is not None:
            self._adopt_pending(cached, known)
        if cached is None or cached.chain not in known or _lost_deletions(cached, base):
            self.slots_built += 1
            cached = CachedSlot(chain, epoch, records)
            cells = self._gained(where, base, records, base.classes, segments)
            cached.indexes = {name: TimeIndex.of(found) for name, found in cells.items()}
            self._slots[*where, slot] = cached  # last, so that a failure leaves no partial slot
        elif cached.chain != chain:
            self._turn(cached, where, base, records, segments)
            cached.chain, cached.epoch, cached.records = chain, epoch, records
        return OpenSlot(cached, view)

    def prefetch(
        self,
        store: Store,
        checkpoint: str,
        computation: str,
        slot: int,
        base: SlotBase,
        records: SlotRecords,
    ) -> None:
        """Builds a piece of what another slot owns now: `base` is that slot's, and `records` what
        will come from it (J7)."""
        segments = {e.segment: self.segment(store, e) for e in base.entries}
        piece = PrefetchedPiece((store.location, checkpoint, computation), slot, base, records)
        piece.cells = built_cells(SlotView(base.entries, records, base.classes, segments))
        self._pieces.append(piece)

    def has_piece(
        self,
        store: Store,
        checkpoint: str,
        computation: str,
        slot: int,
        base: SlotBase,
        records: SlotRecords,
    ) -> bool:
        """Whether there is a piece of these intervals that can still be brought up to date."""
        where = (store.location, checkpoint, computation)
        return any(
            piece.where == where and piece.slot == slot and piece.is_of(base, records)
            for piece in self._pieces
        )

    def drop_pieces(self) -> None:
        """Drops all pieces: no ring is about to change."""
        self._pieces.clear()

    def keep(self, store: Store, name: str, data: bytes) -> None:
        """Keeps a small segment that this process has made. Its name proves its bytes (M1)."""
        self._keep((store.location, name), data)

    def segment(self, store: Store, entry: SegmentSlice) -> Segment:
        """An open segment."""
        key = (store.location, entry.segment)
        found = self._segments.get(key)
        self.hits += found is not None
        if isinstance(found, Segment):
            self._segments.move_to_end(key)
            return found
        if found is None:
            opened = Segment.open(store, entry.segment, entry.at)
            self.opened += 1
            self.fetched += entry.bytes
        else:
            opened = Segment(entry.segment, pa.py_buffer(found))
        self._keep(key, opened)
        return opened

    def _keep(self, key: tuple[str, str], segment: Segment | bytes) -> None:
        self._segments[key] = segment
        self._segments.move_to_end(key)
        while len(self._segments) > SEGMENTS_MAX:
            self._segments.popitem(last=False)

    @staticmethod
    def _adopt_pending(cached: CachedSlot, known: dict[str, int]) -> None:
        """Adopts the pending changes if their chain was committed, drops them otherwise."""
        pending, cached.pending = cached.pending, None
        if pending is None or pending.chain not in known:
            return
        if pending.chain != cached.chain:
            for name, changes in pending.changes.items():
                cached.indexes[name].apply(changes)
            cached.chain, cached.epoch = pending.chain, known[pending.chain]
        for key, state, again in pending.objects:
            cached.objects.give(key, state, again=again)

    def _turn(
        self,
        cached: CachedSlot,
        where: tuple[str, str, str],
        base: SlotBase,
        records: SlotRecords,
        segments: dict[str, Segment],
    ) -> None:
        """Brings a slot from the epoch of its cache to `base`, under a ring that may differ."""
        kept = [one for one in base.classes if one.since <= cached.epoch]
        gained = [one for one in base.classes if one.since > cached.epoch]
        mine = _of(records, kept) if gained else records
        more = self._gained(where, base, records, gained, segments) if gained else {}
        newer = [e for e in base.entries if e.last_epoch > cached.epoch]
        news = SlotView(newer, mine, kept, segments)
        if gained or not _same(mine, cached.records):
            _drop_outside(cached, mine)
        _catch_up(cached, news)
        for name, cells in more.items():
            cached.indexes[name].apply(cells)

    def _gained(
        self,
        where: tuple[str, str, str],
        base: SlotBase,
        records: SlotRecords,
        classes: Sequence[SlotClass],
        segments: dict[str, Segment],
    ) -> Cells:
        """The cells of classes that are new here: from pieces, or from all their entries."""
        found: Cells = {name: {} for name in INDEXES}
        rest = list(classes)
        for came in base.came if self._pieces else ():
            one = next((c for c in rest if c.id == came.id), None)
            if one is None:
                continue
            mine = _of(records, [one])
            for piece in reversed(self._pieces):
                if piece.where == where and piece.serves(came, base.entries, mine):
                    rest.remove(one)
                    newer = [
                        e for e in base.entries if e.last_epoch > piece.epoch and counts(e, one)
                    ]
                    changes = cell_changes(SlotView(newer, mine, [one], segments))
                    for name, cells in cells_inside(piece.cells, mine).items():
                        now = {**cells, **changes[name]}
                        found[name].update({c: t for c, t in now.items() if t is not None})
                    break
        if rest:
            mine = records if len(rest) == len(base.classes) else _of(records, rest)
            for name, built in built_cells(SlotView(base.entries, mine, rest, segments)).items():
                found[name].update(built)
        return found


def _catch_up(cached: CachedSlot, newer: SlotView) -> None:
    """Applies what other workers committed: newer cells win, changed objects are dropped."""
    for name, found in cell_changes(newer).items():
        cached.indexes[name].apply(found)
    if len(cached.objects):
        for _, key in newer.scan():
            cached.objects.drop(key)


def _drop_outside(cached: CachedSlot, records: SlotRecords) -> None:
    """Drops the cells and objects of all keys outside of these intervals."""
    for index in cached.indexes.values():
        index.drop(keys_outside(index.keys(), records))
    for key in keys_outside(cached.objects.keys(), records):
        cached.objects.drop(key)


def _of(records: SlotRecords, classes: Iterable[SlotClass]) -> SlotRecords:
    return records.of([each for one in classes for each in one.ids])


def _same(one: SlotRecords, other: SlotRecords) -> bool:
    return np.array_equal(one.lows, other.lows) and np.array_equal(one.lasts, other.lasts)
