"""Reads against a plain dict, over random histories of writes, moves of the ring and merges."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.property.slots import KEYS, NAME, Slots, State, random_changes

from headrace.model.values.keys import hash_key
from headrace.state.segment import ENTRY, FIELD, TIMER, Segment
from headrace.state.view import Counting, SlotView


def read(slots: Slots, clock: int) -> State:
    """Everything that readers find, through the multi-get of every slot, without what expired."""
    found: State = {}
    for slot in slots.ring.slots:
        base = slots.base(slot)
        segments = {e.segment: Segment.open(slots.store, e.segment) for e in base.entries}
        view = SlotView(base.entries, slots.ring.records(slot), base.classes, segments)
        # Keys of other slots are asked for too: they must not be found here.
        hashes = np.fromiter(map(hash_key, KEYS), np.uint64, len(KEYS))
        for key, stored in zip(KEYS, view.fetch(KEYS, hashes, maps=True), strict=True):
            for field, cell in stored.fields.items():
                if cell is not None:
                    assert slots.owner(key) == slot
                    found[key, FIELD, field, b""] = (cell[0], 0, cell[1])
            for field in "nm":
                cells = stored.map_of(key, field)
                for entry, cell in cells.scan(None, None):
                    assert cells.get(entry) == cell
                    found[key, ENTRY, field, entry] = (cell[0], 0, cell[1])
        seen = set()
        for kind, (key, field, entry), timed in view.timed():
            if (kind, key, field, entry) not in seen:
                seen.add((kind, key, field, entry))
                if timed is not None:
                    found[key, kind, field, entry] = (b"", *timed)
    return live(found, clock)


def live(state: State, clock: int) -> State:
    return {i: now for i, now in state.items() if i[1] == TIMER or now[2] > clock}


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_reads_equal_a_dict_whatever_is_written_moved_and_merged(seed: int, count: int) -> None:
    dice = random.Random(seed)
    slots = Slots(count)
    for clock in range(25):
        adoptions = []
        if dice.random() < 0.2:
            slots.move(dice)
        elif dice.random() < 0.5:
            adoptions = slots.merge(dice, expired_before=clock)
        slots.commit(random_changes(dice, slots.truth, clock), adoptions)
        assert read(slots, clock) == live(slots.truth, clock), f"seed {seed}, epoch {clock + 1}"


@given(st.integers(0, 2**32))
def test_entries_of_a_slot_never_reach_into_anothers_interval_twice(seed: int) -> None:
    """For every hash, a file counts in at most one slot: else a merge would bring back the dead."""
    dice = random.Random(seed)
    slots = Slots(2)
    for clock in range(20):
        adoptions = []
        if dice.random() < 0.3:
            slots.move(dice)
        elif dice.random() < 0.5:
            adoptions = slots.merge(dice)
        slots.commit(random_changes(dice, slots.truth, clock), adoptions)
        counted: dict[tuple[str, int], int] = {}
        for slot, ledger in slots.ledger.slots[NAME].items():
            counting = Counting(slots.ring.records(slot), ledger.classes)
            for entry in ledger.entries:
                segment = Segment.open(slots.store, entry.segment)
                for low, high in zip(*counting.rows(entry, segment), strict=True):
                    for each in set(segment.hashes[low:high].tolist()):
                        counted[entry.segment, each] = counted.get((entry.segment, each), 0) + 1
        assert set(counted.values()) <= {1}
