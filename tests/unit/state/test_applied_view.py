"""Deltas over a state store: maps that outlive their task, and merges beside a store."""

from __future__ import annotations

import numpy as np
from tests.unit.rings import FIRST, WHOLE

from headrace.log.content import digest_of
from headrace.model.values.keys import encode_key, encode_part, hash_key
from headrace.model.values.time import END
from headrace.plan.rings.classes import SegmentSlice
from headrace.state.backends.applied_view import AppliedView
from headrace.state.backends.memory import MemoryBackend, MemoryServer
from headrace.state.compaction import merge, parts_of
from headrace.state.segment import ENTRY, FIELD, TIMER, Cell, encode_segment
from headrace.state.view import SlotView, open_view
from headrace.store.memory import MemoryStore

KEY, ITEM = encode_key("k"), encode_part("x")
HASHES = np.array([hash_key(KEY)], np.uint64)


def entry(value: bytes | None, kind: int = ENTRY) -> Cell:
    name, gone = ("items" if kind == ENTRY else "n"), value is None
    place = ITEM if kind == ENTRY else b""
    return Cell(hash_key(KEY), KEY, kind, name, place, value or b"", 1, END, 1, gone)


class Segments:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.slices: list[SegmentSlice] = []

    def add(self, epoch: int, *cells: Cell) -> None:
        data = encode_segment(cells)
        name = f"state/C/{epoch:012d}-C%2F0-{digest_of(data)}.arrow"
        self.store.write(name, data)
        self.slices.insert(0, SegmentSlice(name, epoch, len(cells), len(data)))

    def after(self, epoch: int) -> SlotView:
        newer = [each for each in self.slices if each.last_epoch > epoch]
        return open_view(self.store, newer, WHOLE, FIRST)


def test_a_map_in_a_cache_reads_the_deltas_of_the_task_that_runs_now() -> None:
    backend, segments = MemoryBackend(MemoryServer(), "c"), Segments()
    view = AppliedView(backend, "C")
    view.turn(segments.after(0), 0, "1")
    items = view.fetch([KEY], HASHES, maps=True)[0].map_of(KEY, "items")
    assert items.get(ITEM) is None
    segments.add(1, entry(b"1"))
    backend.write(1, [("C", entry(b"1"))])
    segments.add(2, entry(None))  # committed, and not applied yet
    view.turn(segments.after(1), 2, "1")
    assert items.get(ITEM) is None and dict(items.scan(None, None)) == {}
    view.turn(segments.after(1), 1, "1")
    view.check()


def test_a_merge_drops_what_the_store_has_and_keeps_all_above_the_mark() -> None:
    segments = Segments()
    timer = Cell(hash_key(KEY), KEY, TIMER, "event", b"t", b"", 5, 5)
    segments.add(1, entry(b"old"), entry(b"old", FIELD), timer)
    segments.add(2, entry(None), timer._replace(entry=b"u", tombstone=True))
    parts = parts_of(segments.store, segments.slices, WHOLE, FIRST)
    for applied, kinds in ((2, [TIMER]), (1, [ENTRY, TIMER]), (0, [FIELD, ENTRY, TIMER])):
        batch = merge(parts, bottom=True, expired_before=0, applied=applied)
        assert batch.column("kind").to_pylist() == kinds, applied
    assert merge(parts, bottom=True, expired_before=0).column("kind").to_pylist() == [FIELD, TIMER]
