"""The cache of a worker process between tasks: open segments, time indexes, decoded objects.

Its memory is bounded, for all slots of the process together (`Limits.cached_...`). Segments are
mapped files, and do not count.

Rules (protocol C4):
- A cached slot is valid only if the task's plan names the chain of deltas from which it was built.
  Later deltas are read from their segments.
- The changes of a task stay *pending* until a later plan names the chain that includes its delta.
  Any other plan drops them. So a failed attempt leaves no trace.
- A slot that is at epoch c keeps the cells of classes with `since` up to c, and catches them up
  from newer entries. It drops all others, and builds what the slot has gained from all entries
  (J6), or from a piece that was prefetched (J7).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptCheckpoint, DeltaMissing
from headrace.limits import Limits
from headrace.plan.rings.chains import epochs_of, last_chain
from headrace.plan.rings.classes import SegmentSlice, SlotBase, SlotClass, counts
from headrace.plan.rings.ring import SlotRecords
from headrace.state.objects import ObjectCache, ObjectUse
from headrace.state.segment import Segment
from headrace.state.slots import CachedSlot, OpenSlot
from headrace.state.times.orders import INDEXES
from headrace.state.times.pieces import (
    Cells,
    PrefetchedPiece,
    built_cells,
    cell_changes,
    cells_inside,
    keys_outside,
)
from headrace.state.times.windowed import KeysOfTask, WindowedIndex
from headrace.state.view import SlotView
from headrace.store.store import Store

SEGMENTS_MAX = 2_000
PIECES_MAX = 256
_GIVE_BACK_SLOTS = 16
"""After so many slots were opened, free memory is given back to the system."""
CATCH_UP_ROWS_MAX = 200_000
"""If newer segments have more rows than this, objects are dropped without a look at the rows."""


def _lost_deletions(cached: CachedSlot, base: SlotBase) -> bool:
    """Whether the segments no longer show all deletions since the cache's epoch.

    A merge that includes the oldest segment drops tombstones. Catching up from its result would
    keep deleted timers alive, so the slot is built again.
    """
    return any(entry.bottom and entry.last_epoch > cached.epoch for entry in base.entries)


class WorkerCache:
    """The whole cache of one worker process."""

    def __init__(self, objects: type[ObjectCache] = ObjectCache) -> None:
        self._object_cache = objects
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
        self.objects = ObjectUse()
        """How often objects of keys were here, of all slots."""
        self._cells = self._bytes = 0
        """How many timed cells of all slots are in memory, and the bytes of all objects."""
        self._in_memory: OrderedDict[tuple[str, str], int] = OrderedDict()
        """The sizes of segments whose bytes are in memory: made here, and not mapped."""
        self._in_memory_bytes = 0

    def open(
        self,
        store: Store,
        checkpoint: str,
        computation: str,
        slot: int,
        base: SlotBase,
        records: SlotRecords,
        *,
        bytes_max: int | None = None,
    ) -> OpenSlot:
        """Opens the slot at `base`; `records` are its intervals.

        `bytes_max`: how much memory the objects of all slots may take; None: the default.
        """
        segments = self._open_all(store, base.entries)
        view = SlotView(base.entries, records, base.classes, segments)
        where = (store.location, checkpoint, computation)
        known = epochs_of(base.chains)
        chain = last_chain(base.chains)
        epoch = known[chain]
        cached = self._slots.get((*where, slot))
        self.slots_opened += 1
        limits = store.system.limits
        most = limits.cached_bytes_max if bytes_max is None else bytes_max
        if cached is not None:
            cached.objects.bytes_max = self._room(most, cached.bytes, self._bytes)
            self._adopt_pending(cached, known)
        cold = cached is None or cached.chain not in known or _lost_deletions(cached, base)
        if cached is None or cold:
            self.slots_built += 1
            self._drop_slot((*where, slot))
            objects = self._object_cache(use=self.objects)
            cached = CachedSlot(chain, epoch, records, objects)
            cached.objects.bytes_max = self._room(most, 0, self._bytes)
            if view.timed_rows <= self._room(limits.cached_cells_max, 0, self._cells):
                cells = self._gained(where, base, records, base.classes, segments)
                cached.indexes = {name: WindowedIndex(name, cells[name]) for name in INDEXES}
            else:
                cached.forget_times()
            self._slots[*where, slot] = cached  # last, so that a failure leaves no partial slot
        elif cached.chain != chain:
            self._turn(cached, where, base, records, segments, limits.cached_cells_max)
            cached.chain, cached.epoch, cached.records = chain, epoch, records
        self._settle(cached, limits)
        if self.slots_opened % _GIVE_BACK_SLOTS == 0:
            store.system.give_back_memory()

        def newer(epoch: int) -> SlotView:
            entries = [e for e in base.entries if e.last_epoch > epoch]
            return SlotView(entries, records, base.classes, segments)

        return OpenSlot(cached, KeysOfTask(view, limits.window_cells), cold=cold, newer=newer)

    def _room(self, most: int, mine: int, all_slots: int) -> int:
        """What a slot may take of a limit: what the others leave, or its share."""
        return max(most - all_slots + mine, most // max(len(self._slots), 1))

    def _settle(self, cached: CachedSlot, limits: Limits) -> None:
        """Counts what a slot takes, and lets it take less if all slots together take too much."""
        cells = sum(map(len, cached.indexes.values()))
        if self._cells - cached.cells + cells > limits.cached_cells_max:
            share = limits.cached_cells_max // len(self._slots) // (2 * len(INDEXES))
            for index in cached.indexes.values():
                index.narrow(max(share, limits.window_cells // 16))
            cells = sum(map(len, cached.indexes.values()))
        self._cells += cells - cached.cells
        self._bytes += cached.objects.weight - cached.bytes
        cached.cells, cached.bytes = cells, cached.objects.weight
        cached.opened_at = self.slots_opened
        if self.slots_opened % 1024 == 0:  # slots that other processes run now
            oldest = self.slots_opened - 16 * len(self._slots)
            for place in [p for p, c in self._slots.items() if c.opened_at < oldest]:
                self._drop_slot(place)

    def _drop_slot(self, place: tuple[Any, ...]) -> None:
        found = self._slots.pop(place, None)
        if found is not None:
            self._cells -= found.cells
            self._bytes -= found.bytes

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
        segments = self._open_all(store, base.entries)
        piece = PrefetchedPiece((store.location, checkpoint, computation), slot, base, records)
        view = SlotView(base.entries, records, base.classes, segments)
        if view.timed_rows <= store.system.limits.cached_cells_max:
            piece.cells = built_cells(view)
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
        """Keeps a small segment that this process has made, and named by these bytes (M1)."""
        place = (store.location, name)
        self._in_memory_bytes += len(data) - self._in_memory.pop(place, 0)
        self._in_memory[place] = len(data)
        self._keep(place, data)
        while self._in_memory_bytes > store.system.limits.kept_bytes_max:
            self._forget(next(iter(self._in_memory)))

    def _open_all(self, store: Store, entries: Iterable[SegmentSlice]) -> dict[str, Segment]:
        """The open segments of a base; DeltaMissing names all that were only written and are lost.

        A file of another digest is a torn one, or of another attempt: it does not count (M4).
        """
        found: dict[str, Segment] = {}
        missing: list[str] = []
        for entry in entries:
            try:
                found[entry.segment] = self.segment(store, entry)
            except CorruptCheckpoint:
                if not entry.written:
                    raise
                missing.append(entry.segment)
        if missing:
            raise DeltaMissing(", ".join(missing))
        return found

    def segment(self, store: Store, entry: SegmentSlice) -> Segment:
        """An open segment. One that was only written is checked as a whole: it may be torn (M4)."""
        key = (store.location, entry.segment)
        found = self._segments.get(key)
        self.hits += found is not None
        if isinstance(found, Segment):
            self._segments.move_to_end(key)
            return found
        if found is None:
            opened = Segment.open(store, entry.segment, entry.at, in_parts=not entry.written)
            self.opened += 1
            self.fetched += entry.bytes
        else:
            opened = Segment(entry.segment, pa.py_buffer(found), is_own=True)
        self._keep(key, opened)
        return opened

    def _keep(self, key: tuple[str, str], segment: Segment | bytes) -> None:
        self._segments[key] = segment
        self._segments.move_to_end(key)
        while len(self._segments) > SEGMENTS_MAX:
            self._forget(next(iter(self._segments)))

    def _forget(self, place: tuple[str, str]) -> None:
        self._segments.pop(place, None)
        self._in_memory_bytes -= self._in_memory.pop(place, 0)

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
        cells_max: int,
    ) -> None:
        """Brings a slot from the epoch of its cache to `base`, under a ring that may differ."""
        kept = [one for one in base.classes if one.since <= cached.epoch]
        gained = [one for one in base.classes if one.since > cached.epoch]
        mine = _of(records, kept) if gained else records
        newer = [e for e in base.entries if e.last_epoch > cached.epoch]
        news = SlotView(newer, mine, kept, segments)
        more: Cells = {}
        if gained:
            theirs = SlotView(base.entries, _of(records, gained), gained, segments)
            if theirs.timed_rows + news.timed_rows > cells_max or not cached.all_in_memory:
                cached.forget_times()
            else:
                more = self._gained(where, base, records, gained, segments)
        elif news.timed_rows > cells_max:
            cached.forget_times()
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
                    for name, cells in cells_inside(piece.cells or {}, mine).items():
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
    if not cached.knows_no_times:
        for name, found in cell_changes(newer).items():
            cached.indexes[name].apply(found)
    if newer.rows > CATCH_UP_ROWS_MAX:
        cached.objects.clear()
    elif len(cached.objects):
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
