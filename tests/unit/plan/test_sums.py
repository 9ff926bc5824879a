"""Sums over manifests stay in step with commits, however many slots a commit changes."""

from __future__ import annotations

import random

from headrace.limits import LIMITS
from headrace.plan.counters import Counters
from headrace.plan.epoch import Adoption, Commit, SlotDelta
from headrace.plan.rings.classes import SegmentSlice
from headrace.plan.rings.folding import SlotManifests
from headrace.plan.rings.manifest import earliest, first_slot
from headrace.plan.rings.sums import ManifestSums

SLOTS = 200


def commit(epoch: int, deltas: dict[int, SlotDelta], adoptions: list[Adoption]) -> Commit:
    return Commit(
        epoch=epoch, ins={}, outs={}, splits={}, rings={"C": 1}, deltas={"C": deltas}, outbox=[],
        staged=[], counters=Counters(), newest=0, adoptions=adoptions,
    )  # fmt: skip


def some_delta(dice: random.Random, epoch: int, slot: int) -> SlotDelta:
    segment = None if dice.random() < 0.1 else f"{epoch}-{slot}"
    timer = dice.choice([None, dice.randrange(1000)])
    return SlotDelta(segment, 1, dice.randrange(99), None, timer, rides=dice.random() < 0.5)


def all_merged(slots: SlotManifests, slot: int, epoch: int) -> Adoption:
    entries = slots.slots["C"][slot].entries
    replaces = tuple((entry.segment, entry.of) for entry in entries)
    return Adoption("C", slot, replaces, SegmentSlice(f"{epoch}-{slot}~", epoch - 1, 1, 5))


def test_sums_equal_those_of_the_manifests_whether_few_slots_change_or_most() -> None:
    dice = random.Random(7)
    kept = SlotManifests({"C": {slot: first_slot(slot) for slot in range(SLOTS)}})
    for epoch in range(1, 120):
        changed = dice.sample(range(SLOTS), dice.choice([0, 1, 3, 20, 60, SLOTS]))
        deltas = {slot: some_delta(dice, epoch, slot) for slot in changed}
        merged = [s for s in dice.sample(range(SLOTS), 9) if kept.slots["C"][s].entries]
        adoptions = [all_merged(kept, slot, epoch) for slot in merged]
        kept.committed(commit(epoch, deltas, adoptions), 10 + epoch, LIMITS, {}, {})
        made = ManifestSums(kept.slots)
        assert (kept.tally.files, kept.tally.bytes) == (made.files, made.bytes)
        assert kept.tally.rides_from() == made.rides_from()
        if dice.random() < 0.7:  # in some epochs nobody asks
            timers = [state.next_wall_timer for state in kept.slots["C"].values()]
            assert kept.tally.next_wall_timer(kept.slots) == earliest(timers)
