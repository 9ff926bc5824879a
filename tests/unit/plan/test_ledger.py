"""The ledger: what commits add up to, and how manifests follow the ring."""

from __future__ import annotations

import msgspec
from tests.unit.rings import changes_in, lead, plan_of, ring_of, to

from headrace.limits import LIMITS
from headrace.plan.counters import Counters
from headrace.plan.epoch import (
    Adoption,
    Commit,
    OutboxFile,
    Plan,
    SegmentSlice,
    SlotDelta,
    SplitState,
)
from headrace.plan.ledger import Ledger
from headrace.plan.rings.chains import epochs_of, last_chain, next_chain
from headrace.plan.rings.changes import RingChange
from headrace.plan.rings.classes import SlotLedger, counts
from headrace.plan.rings.manifest import first_slot
from headrace.plan.rings.refs import RingStep
from headrace.plan.rings.ring import Ring
from headrace.plan.rings.wanted import Move, Wanted
from headrace.plan.watermarks import Mark

HALF, LAST = 2**63, 2**64 - 1


def commit(
    epoch: int,
    slots: tuple[int, ...] = (0,),
    segments: dict[int, str | None] | None = None,
    **more,
):
    deltas = {slot: SlotDelta((segments or {}).get(slot), 1, 10) for slot in slots}
    given = {
        "ins": {}, "outs": {}, "splits": {}, "outbox": [], "staged": [], "counters": Counters(),
        "newest": 0, "rings": {"C": 1}, "deltas": {"C": deltas}, **more,
    }  # fmt: skip
    return Commit(epoch=epoch, **given)


def segments_of(ledger: Ledger, slot: int) -> list[str]:
    return [entry.segment for entry in ledger.slots["C"][slot].entries]


def test_deltas_come_before_what_is_older() -> None:
    ledger = Ledger()
    for epoch in (1, 2, 3):
        lead(ledger, commit(epoch, segments={0: f"s{epoch}"}), epoch)
    assert segments_of(ledger, 0) == ["s3", "s2", "s1"]
    assert (ledger.epoch, ledger.commit_position) == (3, 3)
    assert ledger.segments() == {"s1", "s2", "s3"}
    assert ledger.state_bytes() == 30


def test_a_slot_that_changed_nothing_keeps_its_chain() -> None:
    ledger = Ledger()
    lead(ledger, commit(1, segments={0: "s"}), 1)
    chains = ledger.slots["C"][0].chains
    lead(ledger, commit(2), 2)
    assert ledger.slots["C"][0].chains == chains
    assert next_chain("x", None) == "x" != next_chain("x", "s")


def test_chains_are_kept_for_a_while() -> None:
    ledger = Ledger()
    for epoch in range(1, 100):
        lead(ledger, commit(epoch, segments={0: f"s{epoch}"}), epoch)
    chains = ledger.slots["C"][0].chains
    assert list(epochs_of(chains).values()) == list(range(100 - LIMITS.chains_kept, 100))
    before, last = list(epochs_of(chains))[-2:]
    assert last == next_chain(before, "s99") == last_chain(chains)


def test_a_delta_is_one_entry_however_many_intervals_its_slot_has() -> None:
    ledger = Ledger()
    lead(ledger, commit(1, (0, 1), {0: "s"}), 1, plan=plan_of(ledger, 2))
    moves = to(ledger, {(100, 200): 1, (300, 400): 1, (HALF + 5, HALF + 9): 0})
    lead(ledger, commit(2, (0, 1), {0: "t", 1: "u"}), 2, plan=plan_of(ledger, moves=moves))
    assert len(ring_of(ledger).records(0).lows) == 4
    assert [(e.segment, e.of) for e in ledger.slots["C"][0].entries] == [("t", None), ("s", None)]
    assert [(e.segment, e.of) for e in ledger.slots["C"][1].entries] == [("u", None), ("s", 3)]


def test_a_split_names_the_entries_of_what_left_and_a_merge_keeps_each_where_it_counts() -> None:
    ledger = Ledger()
    lead(ledger, commit(1, (0,), {0: "whole"}), 1)
    split = plan_of(ledger, moves=to(ledger, {(HALF, LAST): 1}))
    lead(ledger, commit(2, (0, 1), {0: "left", 1: "right"}), 2, plan=split)
    right = ledger.slots["C"][1]
    assert [(e.segment, e.of) for e in right.entries] == [("right", None), ("whole", 1)]
    assert [(one.id, one.since) for one in right.classes] == [(1, 2)]
    back = plan_of(ledger, moves=to(ledger, {(HALF, LAST): 0}))
    lead(ledger, commit(3), 3, plan=back)
    (slot,) = ledger.slots["C"].values()
    found = [(e.segment, e.of) for e in slot.entries]
    assert found == [("left", None), ("right", 2), ("whole", None), ("whole", 2)]
    assert [(one.id, one.since) for one in slot.classes] == [(0, 0), (2, 3)]
    old, new = slot.classes
    assert [counts(e, old) for e in slot.entries] == [True, False, True, False]
    assert [counts(e, new) for e in slot.entries] == [False, True, False, True]


def test_the_bases_of_a_plan_with_another_ring_are_what_its_commit_will_build_on() -> None:
    ledger = Ledger()
    lead(ledger, commit(1, (0,), {0: "s"}), 1)
    plan = plan_of(ledger, moves=to(ledger, {(HALF, LAST): 1}))
    changes = changes_in(ledger, plan)
    bases, came = ledger.bases(plan, changes)["C"], changes["C"].came
    lead(ledger, commit(2, (0, 1)), 2, plan=plan)
    for slot in (0, 1):
        assert bases[slot].entries == ledger.slots["C"][slot].entries
        assert bases[slot].chains == ledger.slots["C"][slot].chains
        assert bases[slot].classes == ledger.slots["C"][slot].classes
    assert [(c.slot, c.since) for c in came[1]] == [(0, 0)] and 0 not in came


def test_a_ring_that_moved_makes_chains_that_no_cache_has_seen_and_leaves_others_alone() -> None:
    ledger = Ledger()
    given = commit(1, (0, 1), {0: "s", 1: "t"})
    lead(ledger, given, 1, plan=plan_of(ledger, 2))
    state = msgspec.structs.replace(ledger.slots["C"][0], next_event_timer=5, next_wall_timer=9)
    ledger.slots["C"][0] = state
    before = {slot: last_chain(each.chains) for slot, each in ledger.slots["C"].items()}
    out = plan_of(ledger, moves=to(ledger, {(0, 99): 2}))
    moved = changes_in(ledger, out)["C"].slots
    assert set(moved) == {0, 2}, "slot 1 keeps its chain, and its cache stays warm"
    assert moved[2].next_event_timer == 5 and moved[2].next_wall_timer == 9
    lead(ledger, commit(2, (0, 1, 2)), 2, plan=out)
    assert last_chain(ledger.slots["C"][1].chains) == before[1]
    lead(ledger, commit(3), 3, plan=plan_of(ledger, moves=to(ledger, {(0, 99): 0})))
    chains = {before[0], last_chain(moved[0].chains), last_chain(moved[2].chains)}
    assert len(chains | {last_chain(ledger.slots["C"][0].chains)}) == 4


def test_classes_between_which_no_entry_makes_a_difference_are_joined() -> None:
    ledger = Ledger()
    lead(ledger, commit(1, (0, 1)), 1, plan=plan_of(ledger, 2))
    plan = plan_of(ledger, moves=to(ledger, {(0, 99): 1}))
    lead(ledger, commit(2, (0, 1), {1: "s"}), 2, plan=plan)
    (one,) = ledger.slots["C"][1].classes
    assert (one.id, one.since, one.joined) == (1, 2, (2,))
    again = plan_of(ledger, moves=to(ledger, {(0, 99): 0, (HALF, HALF + 9): 0}))
    change = changes_in(ledger, again)["C"]
    assert len(change.came[0]) == 1, "what was joined moves as one class"
    assert change.step.classes == ((0, 1, 3), (0, 2, 3))


def test_a_new_owner_of_a_slots_number_has_another_chain() -> None:
    ledger = Ledger()
    lead(ledger, commit(1, (0, 1)), 1, plan=plan_of(ledger, 2))
    lead(ledger, commit(2, (0,)), 2, plan=plan_of(ledger, moves=to(ledger, {(HALF, LAST): 0})))
    assert list(ledger.slots["C"]) == [0]
    again = plan_of(ledger, moves=to(ledger, {(HALF, LAST): 1}))
    lead(ledger, commit(3, (0, 1)), 3, plan=again)
    assert all(epochs_of(ledger.slots["C"][1].chains))


def test_an_adopted_merge_stands_where_its_run_stood() -> None:
    ledger = Ledger()
    for epoch in (1, 2, 3):
        lead(ledger, commit(epoch, segments={0: f"s{epoch}"}), epoch)
    merged = SegmentSlice("m", 2, 1, 1)
    adoption = Adoption("C", 0, (("s1", None), ("s2", None)), merged)
    lead(ledger, commit(4, segments={0: "s4"}, adoptions=[adoption]), 4)
    assert segments_of(ledger, 0) == ["s4", "s3", "m"]
    before, last = list(epochs_of(ledger.slots["C"][0].chains))[-2:]
    assert last == next_chain(before, "s4")


def test_watermarks_splits_and_counters_add_up_and_the_outbox_is_replaced() -> None:
    ledger = Ledger()
    file = OutboxFile("f", "C", "back", "C/0", 3, 1)
    lead(
        ledger,
        commit(
            1, ins={"C": 5}, outs={"s": 6}, newest=9, outbox=[file],
            splits={"s": {"a": SplitState(3, Mark(1, 1))}},
            counters=Counters(records=2, late=1, metrics={"C.x": 1}),
        ),
        1,
    )  # fmt: skip
    assert ledger.outbox == {"C": [file]}
    lead(
        ledger,
        commit(
            2, ins={"D": 7}, newest=4, splits={"s": {"b": SplitState(1, Mark(2, 2))}},
            counters=Counters(records=3, metrics={"C.x": 2, "C.y": 1}),
        ),
        2,
    )  # fmt: skip
    assert ledger.ins == {"C": 5, "D": 7} and ledger.outs == {"s": 6} and ledger.newest == 9
    assert set(ledger.splits["s"]) == {"a", "b"} and ledger.outbox == {}
    assert (ledger.counters.records, ledger.counters.late) == (5, 1)
    assert ledger.counters.metrics == {"C.x": 3, "C.y": 1}


def test_the_earliest_wall_timer_of_all_slots_is_the_next() -> None:
    ledger = Ledger()
    ledger.slots = {
        "C": {0: SlotLedger(next_wall_timer=9), 1: SlotLedger()},
        "D": {0: SlotLedger(next_wall_timer=4)},
    }
    assert ledger.next_wall_timer() == 4
    assert Ledger().next_wall_timer() is None


def test_a_voided_plan_is_gone_but_its_wall_time_counts() -> None:
    ledger = Ledger()
    plan = Plan(1, 77, 0, "", [], {}, {})
    ledger.planned(plan)
    assert ledger.open_plan == plan
    ledger.voided()
    assert ledger.open_plan is None and ledger.wall == 77


def test_a_renamed_computation_brings_everything_along_through_the_log() -> None:
    ledger = Ledger()
    lead(ledger, commit(1, segments={0: "s"}, ins={"C": 5}, outs={"C": 4}), 1)
    renamed = commit(2, ins={"D": 6}, outs={"D": 5}, renamed={"C": "D"})
    renamed = msgspec.structs.replace(renamed, deltas={"D": {0: SlotDelta("t", 1, 1)}})
    ledger.rename("C", "D")  # as a driver does when it takes over
    _, shards = lead(ledger, renamed, 2, plan=plan_of(ledger, name="D"))
    assert set(shards["D"]) == {0}, "recovery does not look under the old name"
    assert [e.segment for e in ledger.slots["D"][0].entries] == ["t", "s"]
    assert "C" not in ledger.slots and "C" not in ledger.ins and "C" not in ledger.rings


def test_a_ledger_survives_the_json_of_a_snapshot() -> None:
    ledger = Ledger()
    splits = {"s": {"a": SplitState(3, Mark(None, 1))}}
    lead(ledger, commit(1, (0, 1), {0: "s", 1: "t"}, splits=splits), 1, plan=plan_of(ledger, 2))
    plan = plan_of(ledger, moves=to(ledger, {(LAST - 4, LAST): 0}))
    lead(ledger, commit(2, (0, 1), {0: "u"}), 2, plan=plan)
    ledger.wanted["C"] = Wanted(slots=3)
    ledger.planned(plan_of(ledger, moves=to(ledger, {(0, LAST): 1})))
    found = msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger)
    assert found == ledger
    assert ring_of(found) == ring_of(ledger)
    assert found.state_bytes() == ledger.state_bytes() == 30


def test_a_wanted_ring_is_forgotten_when_it_is_there_or_came_from_another_ring() -> None:
    ledger = Ledger()
    lead(ledger, commit(1, (0, 1)), 1, plan=plan_of(ledger, 2))
    move = Move(0, 99, 1)
    ledger.wanted["C"] = Wanted(slots=3)
    lead(ledger, commit(2, (0, 1)), 2)
    assert ledger.wanted, "no plan has carried it out"
    lead(ledger, commit(3, (0, 1, 2)), 3, plan=plan_of(ledger, moves=to(ledger, {(5, 9): 2})))
    assert not ledger.wanted
    ledger.wanted["C"] = Wanted(moves=(move,), expects=1)
    lead(ledger, commit(4, (0, 1, 2)), 4)
    assert not ledger.wanted, "it was computed from a ring that is no more"
    ledger.wanted["C"] = Wanted(moves=(move,))
    ledger.planned(plan_of(ledger, moves=(move,)))
    ledger.voided()
    assert ledger.wanted, "a voided ring never was, and stays wanted"
    lead(ledger, commit(5, (0, 1)), 5, plan=plan_of(ledger, moves=(move,)))
    assert not ledger.wanted


def test_a_ring_change_after_a_deploy_was_taken_back_carries_the_shards_that_it_empties() -> None:
    """Whoever folds the entry would keep their slots otherwise."""
    ledger = Ledger(slots={"C": {1: first_slot(1)}})  # all shards are due: none is known
    change = RingChange(RingStep((), ()), Ring.even(1), {0: None, 1: first_slot(1), 2: None}, {})
    limits = msgspec.structs.replace(LIMITS, shard_slots=1)
    carried = ledger.carried(commit(15), {"C": change}, limits)
    assert {number: list(content) for number, content in carried["C"].items()} == {
        0: [], 1: [1], 2: [],
    }  # fmt: skip
