"""Two workers take turns on slots, attempts are dropped, files merged, rings moved: what a warm
worker believes always equals what a cold one reads (PROTOCOL C4)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.property.slots import KEYS, NAME, Slots, random_changes

from headrace.limits import LIMITS, Limits
from headrace.model.values.keys import hash_key
from headrace.model.values.time import END
from headrace.state.cache import WorkerCache
from headrace.state.segment import FIELD, TIMER
from headrace.state.slots import OpenSlot
from headrace.state.times.windowed import WindowedIndex


def opened(worker: WorkerCache, slots: Slots, slot: int) -> OpenSlot:
    records = slots.ring.records(slot)
    return worker.open(slots.store, "checkpoint", NAME, slot, slots.base(slot), records)


def content(index: WindowedIndex) -> dict:
    return {cell: index.get(cell) for key in KEYS for cell in index.of_key(key)}


def fields_in(found: OpenSlot, key: bytes) -> dict[str, bytes]:
    hashes = np.array([hash_key(key)], np.uint64)
    (stored,) = found.view.fetch([key], hashes, maps=False)
    return {name: cell[0] for name, cell in stored.fields.items() if cell is not None}


def attempt(
    dice: random.Random, worker: WorkerCache, slots: Slots, slot: int, changes: dict
) -> None:
    """A task: takes objects, lets user code change them, writes a delta, leaves."""
    found = opened(worker, slots, slot)
    mine = {i: now for i, now in changes.items() if slots.owner(i[0]) == slot}
    touched = {i[0] for i in mine} | {
        k for k in KEYS if slots.owner(k) == slot and dice.random() < 0.3
    }
    objects: list[tuple[bytes, Any, bool]] = []
    for key in sorted(touched):
        warm, again = found.objects.take(key)
        cold = fields_in(found, key)
        assert warm is None or warm == cold, "a warm object is not what is stored"
        state = dict(cold) if warm is None else warm
        for (owner, kind, name, _), now in mine.items():
            if owner == key and kind == FIELD:
                if now is None:
                    state.pop(name, None)
                else:
                    state[name] = now[0]
        objects.append((key, state, again))
    timers = {
        (key, name, entry): None if now is None else (now[1], now[2])
        for (key, kind, name, entry), now in mine.items()
        if kind == TIMER
    }
    found.leave(slots.write(slot, mine), {"event": timers}, objects)


def compare(dice: random.Random, worker: WorkerCache, slots: Slots, slot: int) -> None:
    warm, cold = opened(worker, slots, slot), opened(WorkerCache(), slots, slot)
    truth = {
        (key, field, entry): now[1:]
        for (key, kind, field, entry), now in slots.truth.items()
        if kind == TIMER and slots.owner(key) == slot
    }
    for found in (warm, cold):
        index = found.indexes["event"]
        assert content(index) == truth
        limit = dice.randrange(110)
        assert index.due(limit) == sorted((at, c) for c, (at, _) in truth.items() if at <= limit)
        changes = {c: None for c in truth if dice.random() < 0.5}
        left = [timed for cell, timed in truth.items() if cell not in changes]
        assert index.earliest_time(changes) == min((at for at, _ in left), default=None)
        assert index.earliest_hold(changes) == min((hold for _, hold in left), default=None)
        assert [at for at, _ in index.due(END)] == sorted(at for at, _ in truth.values())
        assert len(index) == len(truth)
    for key, state in warm.objects.items():
        assert state == fields_in(cold, key), "a cached object is out of date"


SMALL = [Limits(cached_cells_max=n, window_cells=m) for n, m in ((0, 1), (2, 1), (4, 2), (8, 3))]
"""Under these most timers are found in the segments."""


@given(st.integers(0, 2**32), st.integers(1, 2), st.sampled_from([LIMITS, *SMALL]))
def test_a_warm_worker_believes_what_a_cold_one_reads(
    seed: int, count: int, limits: Limits
) -> None:
    dice = random.Random(seed)
    slots = Slots(count, limits)
    workers = [WorkerCache(), WorkerCache()]
    for clock in range(20):
        adoptions = []
        if dice.random() < 0.08:
            slots.move(dice)
        elif dice.random() < 0.3:
            adoptions = slots.merge(dice)
        # Attempts that come to nothing, on changes that will never be.
        while dice.random() < 0.3:
            doomed = random_changes(dice, slots.truth, clock)
            attempt(dice, dice.choice(workers), slots, dice.choice(slots.ring.slots), doomed)
        changes = random_changes(dice, slots.truth, clock)
        for slot in slots.ring.slots:
            attempt(dice, dice.choice(workers), slots, slot, changes)
        slots.commit(changes, adoptions)
        if dice.random() < 0.4:
            worker = dice.choice(workers)
            for slot in slots.ring.slots:
                compare(dice, worker, slots, slot)
