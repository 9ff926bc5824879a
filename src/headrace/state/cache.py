"""The cache of a worker process between tasks: open segments, time indexes, decoded objects.

Rules (protocol C4):
- A cached slot is valid only if the task's plan names the chain of deltas from which it was built.
  Later deltas are read from their segments.
- The changes of a task stay *pending* until a later plan names the chain that includes its delta.
  Any other plan drops them. So a failed attempt leaves no trace.
- Cache keys begin with the checkpoint's id and end with the slot's intervals.

Objects are kept in two stages: touched once (probation) and touched again (protected). A scan over
a million cold keys, or a window that was just written, passes through probation and evicts no
protected object. Plain LRU would evict them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.plan.epoch import SegmentSlice, SlotBase
from headrace.plan.rings.manifest import next_chain
from headrace.plan.rings.ring import KeyInterval
from headrace.state.segment import HOLD, TIMER, WAITING, Segment
from headrace.state.timeindex import Changes, TimeIndex
from headrace.state.view import CellId, SlotView
from headrace.store.store import Store

OBJECTS_MAX = 100_000
SEGMENTS_MAX = 2_000

INDEXES = ("event", "wall", "hold", "waiting")


def index_name(kind: int, field: str) -> str:
    """The name of the index to which a timed cell belongs."""
    return field if kind == TIMER else {HOLD: "hold", WAITING: "waiting"}[kind]


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

    def __init__(self, chain: str, epoch: int) -> None:
        self.chain = chain
        self.epoch = epoch
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

    def open(
        self,
        store: Store,
        checkpoint: str,
        computation: str,
        slot: int,
        base: SlotBase,
        intervals: tuple[KeyInterval, ...],
    ) -> OpenSlot:
        """Opens the slot at `base`."""
        segments = {e.segment: self.segment(store, e) for e in base.entries}
        view = SlotView(base.entries, intervals, segments)
        where = (store.location, checkpoint, computation, slot, intervals)
        epoch, chain = base.chains[-1]
        known = {c: e for e, c in base.chains}
        cached = self._slots.get(where)
        if cached is not None:
            self._adopt_pending(cached, known)
        if cached is None or cached.chain not in known or _lost_deletions(cached, base):
            cached = CachedSlot(chain, epoch)
            self._build(cached, view)
            for other in [w for w in self._slots if w[:-1] == where[:-1]]:
                del self._slots[other]  # this entry is of the slot with other intervals
            self._slots[where] = cached  # assign last, so that a failure leaves no partial slot
        elif cached.chain != chain:
            newer = SlotView(
                [e for e in base.entries if e.last_epoch > cached.epoch], intervals, segments
            )
            self._catch_up(cached, newer)
            cached.chain, cached.epoch = chain, epoch
        return OpenSlot(cached, view)

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

    @staticmethod
    def _build(cached: CachedSlot, view: SlotView) -> None:
        cells: dict[str, dict[CellId, tuple[int, int]]] = {name: {} for name in INDEXES}
        seen: set[tuple[int, CellId]] = set()
        for kind, cell, timed in view.timed():
            if (kind, cell) in seen:
                continue
            seen.add((kind, cell))
            if timed is not None:
                cells[index_name(kind, cell[1])][cell] = timed
        cached.indexes = {name: TimeIndex.of(found) for name, found in cells.items()}

    @staticmethod
    def _catch_up(cached: CachedSlot, newer: SlotView) -> None:
        """Applies what other workers committed: newer cells win, changed objects are dropped."""
        changes: dict[str, dict[CellId, tuple[int, int] | None]] = {n: {} for n in INDEXES}
        for kind, cell, timed in newer.timed():
            changes[index_name(kind, cell[1])].setdefault(cell, timed)
        for name, found in changes.items():
            cached.indexes[name].apply(found)
        if len(cached.objects):
            for _, key in newer.scan():
                cached.objects.drop(key)
