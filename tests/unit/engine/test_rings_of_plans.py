"""The ring changes of a plan belong to that plan, however often its epoch is planned."""

from __future__ import annotations

from headrace.engine.history.rings import Rings
from headrace.plan.epoch import Plan
from headrace.plan.ledger import Ledger
from headrace.plan.rings.manifest import first_slot
from headrace.plan.rings.refs import RingRef
from headrace.plan.rings.wanted import Move
from headrace.store.memory import MemoryStore


def test_an_epoch_that_is_planned_again_at_the_same_time_has_the_moves_of_its_own_plan() -> None:
    ledger = Ledger()
    ledger.rings["Count"] = RingRef.even(2)
    ledger.slots["Count"] = {slot: first_slot(slot) for slot in range(2)}
    rings = Rings(MemoryStore(), ledger)
    first, again = (
        Plan(7, 1_000, 1, "", [], {}, {"Count": 2}, moves={"Count": (move,)})
        for move in (Move(0, 9, 1), Move(20, 29, 1))
    )
    assert rings.changes(first)["Count"].step.moves == (Move(0, 9, 1),)
    assert rings.changes(again)["Count"].step.moves == (Move(20, 29, 1),)
    assert rings.steps(first) == {"Count": ((1, 0, 2),)}
