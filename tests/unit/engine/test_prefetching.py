"""New owners prefetch what an announced ring gives them; then the ring changes (J7)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.engine.support import counting, driver_of, run
from tests.unit.systems import limited

from headrace.limits import LIMITS
from headrace.model.values.keys import HASH_SPACE
from headrace.plan.rings.announced import (
    Announced,
    announced_after,
    is_due,
    leaving,
    moves_digest,
)
from headrace.plan.rings.classes import SegmentSlice, SlotLedger
from headrace.plan.rings.ring import Ring
from headrace.plan.rings.wanted import Move, Wanted
from headrace.store.memory import MemoryStore

VALUES = list(range(60))
HALF = HASH_SPACE // 2
MOVES = (Move(0, HALF // 2 - 1, 2), Move(HALF, HASH_SPACE - 1, 3))


def test_what_leaves_is_listed_by_new_and_old_slot() -> None:
    found = {(to, slot): records for to, slot, records in leaving(Ring.even(2), MOVES)}
    assert set(found) == {(2, 0), (3, 1)}
    assert found[2, 0].lows.tolist() == [0] and found[2, 0].lasts.tolist() == [HALF // 2 - 1]
    assert found[3, 1].lasts.tolist() == [HASH_SPACE - 1]


def test_an_announcement_counts_from_its_first_epoch_and_begins_again_with_other_moves() -> None:
    first = announced_after({}, {"A": MOVES}, 7)
    assert first == {"A": Announced(7, moves_digest(MOVES))}
    assert announced_after(first, {"A": MOVES}, 9) == first
    other = announced_after(first, {"A": MOVES[:1]}, 9)
    assert other["A"].since == 9
    assert announced_after(first, {}, 9) == {}


@pytest.mark.parametrize(
    ("size", "known", "ready", "epoch", "due"),
    [
        (0, None, (), 5, True),  # little moves: at once
        (18, None, (), 5, True),  # half of the slot moves
        (20, None, (), 5, False),
        (20, Announced(4, moves_digest(MOVES)), (), 5, False),
        (20, Announced(4, moves_digest(MOVES)), (2,), 5, False),
        (20, Announced(4, moves_digest(MOVES)), (2, 3), 5, True),
        (20, Announced(4, moves_digest(MOVES)), (), 4 + 3, True),
        (20, Announced(1, "of other moves"), (2, 3), 9, False),
    ],
)
def test_a_ring_changes_when_all_pieces_are_ready_or_after_some_epochs(
    size: int, known: Announced | None, ready: tuple[int, ...], epoch: int, due: bool
) -> None:
    limits = replace(LIMITS, prefetch_bytes_min=10, prefetch_epochs_max=3)
    slots = {0: SlotLedger(entries=(SegmentSlice("s", 1, 1, size),)), 1: SlotLedger()}
    assert is_due(MOVES, Ring.even(2), slots, known, ready, epoch, limits) is due


@pytest.mark.parametrize(("heard", "announced"), [(True, [4]), (False, [4, 5])])
def test_new_owners_prefetch_and_the_ring_changes_when_they_said_so_or_after_a_few_epochs(
    heard: bool, announced: list[int]
) -> None:
    store = MemoryStore(limited(prefetch_bytes_min=0, prefetch_epochs_max=2))
    driver = driver_of(counting(VALUES), store)
    if not heard:
        driver.substrate.notes = lambda: []  # notes may be lost
    run(driver, 3)
    driver.ledger.wanted = {"Count": Wanted(slots=5, by="test")}
    driver._void(driver.ledger.open_plan, "so that the next plan sees the wish")
    cache = driver.substrate.runtime.cache
    run(driver, 1)
    assert driver.ledger.announced["Count"].since == 4 and cache._pieces
    run(driver)
    plans = {order.plan.epoch: order.plan for order in driver.substrate.tasks}
    assert [epoch for epoch, plan in plans.items() if plan.announced] == announced
    assert [epoch for epoch, plan in plans.items() if plan.moves] == [announced[-1] + 1]
    assert not driver.ledger.announced and not driver.ledger.wanted and not cache._pieces
    assert len(driver.ledger.slots["Count"]) == 5
    plain = driver_of(counting(VALUES), MemoryStore())
    run(plain)
    assert driver.ledger.counters == plain.ledger.counters
