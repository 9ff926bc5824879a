"""Compaction: what is merged, and that nobody can tell from reading (PROTOCOL C1, C2, C7)."""

import random

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.rings import FIRST, WHOLE, lead, plan_of, ring_of, to
from tests.unit.state.support import fetched, field, timer, view_of, written

from headrace.limits import LIMITS
from headrace.model.values.keys import encode_key, hash_key
from headrace.plan.counters import Counters
from headrace.plan.epoch import Adoption, Commit, SlotDelta
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import SegmentSlice, SlotClass, SlotLedger
from headrace.plan.rings.manifest import adopts, with_adoption
from headrace.state.compaction import (
    SegmentPart,
    choose,
    choose_old_riders,
    is_bottom,
    later_classes,
    merge,
    parts_of,
)
from headrace.state.segment import SCHEMA, Cell, Segment, encode_segment
from headrace.store.memory import MemoryStore

RUN_MIN = LIMITS.merge_segments_min


def entry(epoch: int, size: int, part: int = 0, at: int = 0) -> SegmentSlice:
    return SegmentSlice(f"s{epoch}-{part}", epoch, 1, size, at=at)


def merged(
    store: MemoryStore, run: list[SegmentSlice], entries: list[SegmentSlice], expired: int = 0
) -> SegmentSlice:
    """The entry that takes a run's place."""
    parts = parts_of(store, run, WHOLE, FIRST)
    batch = merge(parts, bottom=is_bottom(run, entries), expired_before=expired)
    cells = [Cell(*row.values()) for row in batch.to_pylist()]
    last = max(e.last_epoch for e in run)
    return written(store, cells, 99, last_epoch=last, label="C/0~")


@pytest.mark.parametrize("size", [1, 1000, 2 << 20, 500 << 20])
def test_segments_of_like_size_are_merged_however_large_they_are(size: int) -> None:
    entries = [entry(epoch, size) for epoch in range(1, RUN_MIN + 1)]
    assert choose(entries[:-1]) == ()
    assert set(choose(entries)) == set(entries)


def test_a_run_takes_all_entries_of_equal_last_epoch_or_none() -> None:
    entries = [entry(epoch, 10, slot) for epoch in range(1, 30) for slot in (0, 1)]
    huge = [entry(0, 1 << 40, slot) for slot in (0, 1)]
    one_huge = [entry(5, 1 << 40, 0)]
    for given in (entries, entries + huge, [e for e in entries if e.last_epoch > 5] + one_huge
                  + [entry(5, 10, 1)]):  # fmt: skip
        run = choose(given)
        assert len(run) >= RUN_MIN
        epochs = {e.last_epoch for e in run}
        assert all(e in run for e in given if e.last_epoch in epochs)
        # Contiguous: nothing outside the run lies between its oldest and its newest.
        assert not any(min(epochs) <= e.last_epoch <= max(epochs) for e in given if e not in run)


def test_what_rides_too_far_back_is_merged_with_what_rides_beside_it() -> None:
    """M1: a segment that rides keeps the log from being trimmed."""
    large = entry(6, 1 << 20)
    entries = [entry(9, 10, at=19), entry(8, 10, at=18), large, entry(5, 10, at=15),
               entry(4, 10, at=14), entry(2, 1 << 20), entry(1, 10, at=11)]  # fmt: skip
    assert choose_old_riders(entries, 11) == ()
    assert choose_old_riders(entries, 12) == (entries[6],)
    assert choose_old_riders(entries[:6], 15) == tuple(entries[3:5])
    assert choose_old_riders(entries[:3], 18) == ()
    assert choose_old_riders(entries[:3], 19) == tuple(entries[:2])
    assert choose_old_riders([large], 99) == choose_old_riders([], 99) == ()


def test_what_rides_is_merged_as_a_valid_run() -> None:
    dice = random.Random(4)
    for _ in range(300):
        entries = [
            entry(epoch, 10, slot, at=dice.choice((0, epoch + 10)))
            for epoch in dice.sample(range(1, 30), dice.randrange(1, 12))
            for slot in dice.choice(((0,), (1,), (0, 1)))
        ]
        run = choose_old_riders(entries, dice.randrange(10, 45))
        epochs = {e.last_epoch for e in run}
        assert list(run) == sorted(run, key=lambda e: -e.last_epoch)
        assert all(e in run for e in entries if e.last_epoch in epochs)
        assert not run or not any(
            min(epochs) <= e.last_epoch <= max(epochs) for e in entries if e not in run
        )
        oldest = min((e.at for e in entries if e.at), default=0)
        assert not run or oldest in {e.at for e in run}


@pytest.mark.parametrize("sizes", ["small", "large", "wild"])
def test_over_two_thousand_epochs_segments_stay_few_and_rows_are_rewritten_seldom(
    sizes: str,
) -> None:
    dice = random.Random(sizes)
    draw = {
        "small": lambda: 200_000,
        "large": lambda: 5 << 20,
        "wild": lambda: int(2 ** dice.uniform(8, 26)),
    }[sizes]
    entries: list[SegmentSlice] = []
    added = rewritten = 0
    most = 0
    for epoch in range(1, 2001):
        size = draw()
        added += size
        entries.insert(0, entry(epoch, size))
        while run := choose(entries):
            total = sum(e.bytes for e in run)
            rewritten += total
            last = max(e.last_epoch for e in run)
            kept = [e for e in entries if e not in run]
            merge_result = SegmentSlice(f"m{epoch}", last, 1, total)
            entries = sorted([*kept, merge_result], key=lambda e: -e.last_epoch)
        most = max(most, len(entries))
    assert most <= 24
    assert rewritten / added <= 12


def test_columns_that_together_exceed_two_gib_are_merged_where_their_newest_rows_do_not() -> None:
    """1,200 MiB overwritten by 1,200 MiB: zero pages of one buffer that nobody touches."""
    rows, size = 300, 4 << 20
    zeros = pa.py_buffer(np.zeros(rows * size, np.uint8))
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * size)

    class Large:
        def __init__(self, gone: bool) -> None:
            cells = [Cell(i, b"k", 0, "n", b"", b"", 0, tombstone=gone) for i in range(rows)]
            file = pa.ipc.open_file(pa.py_buffer(encode_segment(cells)))
            values = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, zeros])
            self.batch = file.get_batch(0).set_column(5, SCHEMA.field(5), values)

    every = (np.array([0]), np.array([rows]), 0)
    parts = [SegmentPart(Large(gone), *every) for gone in (True, False)]  # type: ignore[arg-type]
    assert merge(parts, bottom=True, expired_before=0).num_rows == 0


def test_a_bottom_merge_drops_tombstones_and_expired_rows_and_no_other_merge_does() -> None:
    store = MemoryStore()
    old = written(store, [field("a", "n", b"1"), field("b", "n", b"1")], 1)
    delta = written(store, [field("a", "n", None), field("b", "n", b"2", expires=50)], 2)
    newer = written(store, [field("c", "n", b"3", expires=200)], 3)
    entries = [newer, delta, old]
    middle = merged(store, [newer, delta], entries, expired=100)
    assert not is_bottom([newer, delta], entries)
    assert middle.rows == 3
    bottom = merged(store, entries, entries, expired=100)
    assert bottom.rows == 1
    for manifest in (entries, [middle, old], [bottom]):
        a, b, c = fetched(view_of(store, manifest), "a", "b", "c")
        assert a.fields.get("n") is None
        assert b.fields.get("n") in (None, (b"2", 50))  # hidden from readers, as it has expired
        assert c.fields["n"] == (b"3", 200)


def test_timers_are_never_taken_for_expired_rows() -> None:
    store = MemoryStore()
    entries = [written(store, [timer("a", b"t", 10, hold=5)], 1)]
    assert merged(store, entries, entries, expired=10**9).rows == 1


def test_an_expired_row_that_is_dropped_uncovers_nothing() -> None:
    """Value without TTL at epoch 1, overwritten with one that expired: a run above the bottom."""
    store = MemoryStore()
    old = written(store, [field("a", "n", b"forever")], 1)
    run = [
        written(store, [field("z", "n", b"")], 3),
        written(store, [field("a", "n", b"x", expires=5)], 2),
    ]
    entries = [*run, old]
    manifest = [merged(store, run, entries, expired=100), old]
    assert fetched(view_of(store, manifest), "a")[0].fields["n"] == (b"x", 5)


def test_a_deleted_key_stays_deleted_after_split_compaction_of_one_side_and_merge() -> None:
    """[Split, compact away a tombstone on one side, merge: the deleted key was alive again.]"""
    store, ledger = MemoryStore(), Ledger()
    where = hash_key(encode_key("k"))
    alive = written(store, [field("k", "n", b"alive")], 1)
    deleted = written(store, [field("k", "n", None)], 2)
    lead(ledger, committed(1, {0: alive}), 1)
    # Split: the key lies in slot 1, which deletes it.
    split = plan_of(ledger, moves=to(ledger, {(where // 2, 2**64 - 1): 1}))
    lead(ledger, committed(2, {0: None, 1: deleted}), 2, plan=split)
    # Compact slot 1 to its bottom: the tombstone and the value go.
    state = ledger.slots["C"][1]
    parts = parts_of(store, state.entries, ring_of(ledger).records(1), state.classes)
    assert is_bottom(state.entries, state.entries)
    assert merge(parts, bottom=True, expired_before=0).num_rows == 0
    empty = written(store, [], 3, last_epoch=2, label="C/1~")
    replaces = tuple((e.segment, e.of) for e in state.entries)
    adoption = Adoption("C", 1, replaces, empty)
    lead(ledger, committed(3, {0: None, 1: None}, adoption), 3)
    assert [e.segment for e in ledger.slots["C"][1].entries] == [empty.segment]
    # Merge: slot 0 still has the segment in which the key is alive.
    back = plan_of(ledger, moves=to(ledger, {(where // 2, 2**64 - 1): 0}))
    lead(ledger, committed(4, {0: None}), 4, plan=back)
    (slot,) = ledger.slots["C"].values()
    assert alive.segment in {e.segment for e in slot.entries}
    view = view_of(store, slot.entries, ring_of(ledger).records(0), slot.classes)
    assert fetched(view, "k")[0].fields.get("n") is None


def committed(epoch: int, slots: dict[int, SegmentSlice | None], *adoptions: Adoption) -> Commit:
    deltas = {slot: SlotDelta(made.segment if made else None, 1, 9) for slot, made in slots.items()}
    return Commit(epoch, {}, {}, {}, {}, {"C": deltas}, [], [], Counters(), 0, list(adoptions))


def test_a_result_counts_as_own_and_under_the_later_classes_whose_segments_it_has() -> None:
    """J5: [Only as own: what a slot had inherited and merged before its first delta was gone.]"""
    old, new = SlotClass(0, 0), SlotClass(5, 9)
    brought = [SegmentSlice(f"b{epoch}", epoch, 1, 1, of=5) for epoch in (8, 7)]
    own = [SegmentSlice("o", 3, 1, 1)]
    result = SegmentSlice("m", 8, 1, 1, True)
    assert later_classes(brought, (old, new)) == (5,)
    assert later_classes([*brought, SegmentSlice("n", 9, 1, 1)], (old, new)) == ()
    slot = SlotLedger((*brought, *own), classes=(old, new))
    adoption = Adoption("C", 0, (("b8", 5), ("b7", 5)), result, classes=(5,))
    found = with_adoption(slot, adoption, 1)
    assert [(e.segment, e.of) for e in found.entries] == [("m", None), ("m", 5), ("o", None)]
    only_new = with_adoption(SlotLedger(tuple(brought), classes=(new,)), adoption, 1)
    assert [(e.segment, e.of) for e in only_new.entries] == [("m", 5)]
    gone = with_adoption(SlotLedger(tuple(own), classes=(old,)), adoption, 1)
    assert [(e.segment, e.of) for e in gone.entries] == [("m", None), ("o", None)]


def test_a_merge_is_adopted_unless_an_entry_of_a_class_that_lives_has_changed() -> None:
    old, new = SlotClass(0, 0), SlotClass(5, 9)
    own, brought = SegmentSlice("o", 3, 1, 1), SegmentSlice("b", 8, 1, 1, of=5)
    run = (brought, own)
    assert adopts(run, SlotLedger((brought, own), classes=(old, new)))
    assert adopts(run, SlotLedger((own,), classes=(old,))), "its class has left"
    assert not adopts(run, SlotLedger((brought,), classes=(old, new)))
    assert not adopts(run, SlotLedger((own,), classes=(old, new)))


def test_a_merge_of_nothing_is_an_empty_segment() -> None:
    store = MemoryStore()
    entries = [written(store, [field("a", "n", None)], 1)]
    assert merged(store, entries, entries).rows == 0
    assert pa.types.is_uint64(Segment.open(store, entries[0].segment).batch.schema.field(0).type)
