"""What a worker keeps between tasks is valid only as long as the plan says so (PROTOCOL C4)."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.rings import FIRST, WHOLE, records
from tests.unit.state.support import field, timer, written

from headrace.model.values.keys import encode_key, hash_key
from headrace.plan.rings.chains import FIRST as FIRST_CHAINS
from headrace.plan.rings.chains import (
    last_chain,
    last_epoch,
    next_chain,
    only_chain,
    with_chain,
)
from headrace.plan.rings.classes import Came, SegmentSlice, SlotBase, SlotClass
from headrace.plan.rings.ring import Ring, SlotRecords
from headrace.state.cache import WorkerCache
from headrace.state.segment import Cell
from headrace.state.slots import OpenSlot
from headrace.store.memory import MemoryStore

KEY = encode_key("k")
OTHER = encode_key("other")
HASH = hash_key(KEY)
CELL = (KEY, "event", b"t")


class Slot:
    """One slot's committed history."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.entries: tuple[SegmentSlice, ...] = ()
        self.chains = FIRST_CHAINS
        self.classes = FIRST

    @property
    def base(self) -> SlotBase:
        return SlotBase(self.entries, self.chains, self.classes)

    def segment(self, *cells: Cell) -> SegmentSlice:
        return written(self.store, cells, last_epoch(self.chains) + 1)

    def turn(self, epochs: int = 0) -> None:
        """The slot's intervals change."""
        epoch, chain = last_epoch(self.chains), last_chain(self.chains)
        chain = next_chain(chain, "another ring")
        self.chains = with_chain(self.chains, epoch + epochs, chain, 16)

    def commit(self, entry: SegmentSlice) -> None:
        epoch, chain = last_epoch(self.chains), last_chain(self.chains)
        self.entries = (entry, *self.entries)
        self.chains = with_chain(self.chains, epoch + 1, next_chain(chain, entry.segment), 16)

    def open(self, worker: WorkerCache, mine: SlotRecords = WHOLE) -> OpenSlot:
        return worker.open(self.store, "id", "C", 0, self.base, mine)


def leave(found: OpenSlot, entry: SegmentSlice | None, timed=None, objects=()) -> None:
    changes = {"event": {CELL: timed}} if timed != () else {}
    found.leave(entry.segment if entry else None, changes, list(objects))


def test_what_a_task_left_counts_once_a_plan_names_its_delta() -> None:
    slot, worker = Slot(), WorkerCache()
    found = slot.open(worker)
    delta = slot.segment(timer("k", b"t", 10), field("k", "n", b"1"))
    leave(found, delta, (10, 10), [(KEY, "object", False)])
    assert found.indexes["event"].get(CELL) is None, "visible before the commit"
    slot.commit(delta)
    again = slot.open(worker)
    assert again.indexes["event"].get(CELL) == (10, 10)
    assert again.objects.take(KEY) == ("object", True)


def test_the_dropped_attempts_version_is_not_the_committed_version() -> None:
    slot, worker = Slot(), WorkerCache()
    leave(slot.open(worker), slot.segment(timer("k", b"t", 10)), (10, 10), [(KEY, "dropped", True)])
    slot.commit(slot.segment(timer("k", b"t", 77)))  # the same epoch, another attempt
    again = slot.open(worker)
    assert again.indexes["event"].get(CELL) == (77, 77)
    assert again.objects.take(KEY) == (None, False)


def test_an_object_handed_to_user_code_does_not_come_back_from_a_failed_attempt() -> None:
    slot, worker = Slot(), WorkerCache()
    delta = slot.segment(field("k", "n", b"1"))
    leave(slot.open(worker), delta, (), [(KEY, {"n": 1}, False)])
    slot.commit(delta)
    taken, _ = slot.open(worker).objects.take(KEY)
    taken["n"] = 999  # and then the hook raises: the task never leaves
    assert slot.open(worker).objects.take(KEY) == (None, False)


def test_an_attempt_that_changed_nothing_gives_its_objects_back() -> None:
    slot, worker = Slot(), WorkerCache()
    leave(slot.open(worker), None, (), [(KEY, "object", False)])
    assert slot.open(worker).objects.take(KEY) == ("object", True)


def test_a_worker_catches_up_from_what_another_committed() -> None:
    slot, mine, other = Slot(), WorkerCache(), WorkerCache()
    delta = slot.segment(timer("k", b"t", 10), field("k", "n", b"1"))
    leave(slot.open(mine), delta, (10, 10), [(KEY, "old", False)])
    slot.commit(delta)
    slot.open(mine)
    theirs = slot.segment(timer("k", b"t", 20))
    leave(slot.open(other), theirs, (20, 20))
    slot.commit(theirs)
    found = slot.open(mine)
    assert found.indexes["event"].get(CELL) == (20, 20)
    assert found.objects.take(KEY) == (None, False), "the other worker changed this key"


def test_catching_up_reads_only_what_is_newer() -> None:
    slot, worker = Slot(), WorkerCache()
    slot.commit(slot.segment(*(timer(f"k{i}", b"t", i) for i in range(50))))
    slot.open(worker)
    slot.commit(slot.segment(timer("k", b"t", 5)))
    assert len(slot.open(worker).indexes["event"]) == 51
    assert (worker.slots_opened, worker.slots_built) == (2, 1)


def test_a_deletion_that_a_merge_dropped_is_not_missed() -> None:
    slot, mine = Slot(), WorkerCache()
    slot.commit(slot.segment(timer("k", b"t", 10), field("k", "n", b"1")))
    found = slot.open(mine)
    found.objects.give(KEY, "alive", again=True)
    slot.commit(slot.segment(timer("k", b"t", None), field("k", "n", None)))
    # Everything is merged to the bottom; nothing of the key is left to be read.
    merged = written(slot.store, [], 3, last_epoch=2, label="C/0~")
    slot.entries = (SegmentSlice(merged.segment, 2, 0, merged.bytes, True),)
    found = slot.open(mine)
    assert found.indexes["event"].get(CELL) is None
    assert found.objects.take(KEY) == (None, False)


def test_a_merge_of_what_is_known_already_leaves_the_cache_warm() -> None:
    slot, worker = Slot(), WorkerCache()
    slot.commit(slot.segment(timer("k", b"t", 10)))
    slot.commit(slot.segment(timer("k", b"u", 20)))
    slot.open(worker).objects.give(KEY, "warm", again=True)
    merged = written(
        slot.store, [timer("k", b"t", 10), timer("k", b"u", 20)], 3, last_epoch=2, label="C/0~"
    )
    slot.entries = (SegmentSlice(merged.segment, 2, 2, merged.bytes, True),)
    found = slot.open(worker)
    assert found.objects.take(KEY) == ("warm", True)
    assert len(found.indexes["event"]) == 2


def test_a_worker_that_slept_longer_than_the_plan_remembers_builds_anew() -> None:
    slot, worker = Slot(), WorkerCache()
    slot.commit(slot.segment(timer("k", b"t", 1)))
    slot.open(worker).objects.give(KEY, "stale", again=True)
    for at in range(2, 30):
        slot.commit(slot.segment(timer("k", b"t", at)))
    found = slot.open(worker)
    assert found.indexes["event"].get(CELL) == (29, 29)
    assert found.objects.take(KEY) == (None, False)


def test_other_checkpoints_and_stores_are_other_slots() -> None:
    slot, worker = Slot(), WorkerCache()
    slot.commit(slot.segment(timer("k", b"t", 1)))
    slot.open(worker).objects.give(KEY, "mine", again=True)
    elsewhere = worker.open(slot.store, "restored", "C", 0, slot.base, WHOLE)
    assert len(elsewhere.objects) == 0
    assert len(slot.open(worker).objects) == 1


def test_what_a_slot_has_lost_is_dropped_and_what_it_kept_stays_warm() -> None:
    slot, worker = Slot(), WorkerCache()
    slot.commit(slot.segment(timer("k", b"t", 1), timer("other", b"t", 2)))
    found = slot.open(worker)
    for key in (KEY, OTHER):
        found.objects.give(key, "warm", again=True)
    slot.turn()
    found = slot.open(worker, records((HASH, HASH)))
    assert found.indexes["event"].get(CELL) == (1, 1) and len(found.indexes["event"]) == 1
    assert found.objects.keys() == [KEY]
    assert worker.slots_built == 1
    assert found.indexes["event"].due(99) == [(1, CELL)]


def test_what_comes_back_is_built_anew_although_the_cache_still_has_it() -> None:
    """In between, another slot deleted the key."""
    slot, worker = Slot(), WorkerCache()
    slot.commit(slot.segment(timer("k", b"t", 1), timer("other", b"t", 2)))
    slot.open(worker).objects.give(KEY, "stale", again=True)
    gone = written(slot.store, [timer("k", b"t", None)], 2, of=1, label="C/1")
    before = [msgspec.structs.replace(e, of=1) for e in slot.entries]
    slot.turn(2)
    slot.classes = (SlotClass(0, 0), SlotClass(1, 3))
    slot.entries = (gone, *before, *slot.entries)
    ring = Ring([0, HASH, HASH + 1], [0, 0, 0], [0, 1, 0])
    found = slot.open(worker, ring.records(0))
    assert found.indexes["event"].get(CELL) is None and len(found.indexes["event"]) == 1
    assert found.objects.keys() == [] and worker.slots_built == 1


@pytest.mark.parametrize(
    ("since", "chain", "bottom", "used"),
    [(0, None, False, True), (2, None, False, False), (0, "x", False, False),
     (0, None, True, False)],
)  # fmt: skip
def test_a_piece_is_used_if_it_is_of_the_ownership_that_came(
    since: int, chain: str | None, bottom: bool, used: bool
) -> None:
    """J7. A used piece shows what only it has: here, a timer that no segment names."""
    old, worker = Slot(), WorkerCache()
    old.commit(old.segment(timer("k", b"t", 1)))
    worker.prefetch(old.store, "id", "C", 5, old.base, WHOLE)
    worker._pieces[0].cells["event"][OTHER, "event", b"t"] = (7, 7)
    chains = old.chains if chain is None else only_chain(1, chain)
    newer = written(old.store, [timer("k", b"t", 4)], 2, of=1, label="C/5")
    newer = msgspec.structs.replace(newer, bottom=bottom)
    entries = (newer, *(msgspec.structs.replace(e, of=1) for e in old.entries))
    base = SlotBase(entries, only_chain(2, "new"), (SlotClass(1, 3),), (Came(1, 5, since, chains),))
    found = worker.open(old.store, "id", "C", 0, base, records((0, 2**64 - 1), of=1))
    assert found.indexes["event"].get(CELL) == (4, 4)
    assert (found.indexes["event"].get((OTHER, "event", b"t")) is not None) is used


def test_a_piece_that_does_not_cover_a_class_is_not_used() -> None:
    old, worker = Slot(), WorkerCache()
    old.commit(old.segment(timer("k", b"t", 1)))
    worker.prefetch(old.store, "id", "C", 5, old.base, records((0, 5)))
    entries = tuple(msgspec.structs.replace(e, of=1) for e in old.entries)
    came = (Came(1, 5, 0, old.chains),)
    base = SlotBase(entries, only_chain(2, "new"), (SlotClass(1, 3),), came)
    found = worker.open(old.store, "id", "C", 0, base, records((0, 2**64 - 1), of=1))
    assert found.indexes["event"].get(CELL) == (1, 1)


def test_a_ring_that_moves_away_and_back_does_not_revive_what_was_cached_before() -> None:
    slot, worker = Slot(), WorkerCache()
    slot.commit(slot.segment(timer("k", b"t", 1)))
    slot.open(worker).objects.give(KEY, "before the move", again=True)
    slot.commit(slot.segment(timer("k", b"t", 2)))
    slot.chains = only_chain(2, "other-rings")
    found = slot.open(worker)
    assert found.indexes["event"].get(CELL) == (2, 2)
    assert len(found.objects) == 0


def test_a_slot_whose_building_failed_is_not_taken_for_a_whole_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slot, worker = Slot(), WorkerCache()
    slot.commit(slot.segment(timer("k", b"t", 1)))

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(WorkerCache, "_gained", fail)
        with pytest.raises(MemoryError):
            slot.open(worker)
    assert slot.open(worker).indexes["event"].get(CELL) == (1, 1)
