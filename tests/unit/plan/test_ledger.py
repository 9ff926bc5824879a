"""The ledger: what commits add up to, and how manifests follow the ring."""

from __future__ import annotations

import msgspec

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
from headrace.plan.rings.manifest import SlotLedger, next_chain, recut
from headrace.plan.rings.ring import WHOLE, KeyInterval, Ring
from headrace.plan.watermarks import Mark

ONE, TWO = Ring.even(1), Ring.even(2)


def commit(epoch: int, ring: Ring = ONE, segments: dict[int, str | None] | None = None, **more):
    deltas = {slot: SlotDelta((segments or {}).get(slot), 1, 10) for slot in ring.slots}
    given = {
        "ins": {}, "outs": {}, "splits": {}, "outbox": [], "staged": [], "counters": Counters(),
        "newest": 0, "rings": {"C": ring}, "deltas": {"C": deltas}, **more,
    }  # fmt: skip
    return Commit(epoch=epoch, **given)


def segments_of(ledger: Ledger, slot: int) -> list[str]:
    return [entry.segment for entry in ledger.slots["C"][slot].entries]


def test_deltas_come_before_what_is_older() -> None:
    ledger = Ledger()
    for epoch in (1, 2, 3):
        ledger.committed(commit(epoch, segments={0: f"s{epoch}"}), epoch)
    assert segments_of(ledger, 0) == ["s3", "s2", "s1"]
    assert (ledger.epoch, ledger.commit_position) == (3, 3)
    assert ledger.segments() == {"s1", "s2", "s3"}
    assert ledger.state_bytes() == 30


def test_a_slot_that_changed_nothing_keeps_its_chain() -> None:
    ledger = Ledger()
    ledger.committed(commit(1, segments={0: "s"}), 1)
    chains = ledger.slots["C"][0].chains
    ledger.committed(commit(2), 2)
    assert ledger.slots["C"][0].chains == chains
    assert next_chain("x", None) == "x" != next_chain("x", "s")


def test_chains_are_kept_for_a_while() -> None:
    ledger = Ledger()
    for epoch in range(1, 100):
        ledger.committed(commit(epoch, segments={0: f"s{epoch}"}), epoch)
    chains = ledger.slots["C"][0].chains
    assert len(chains) == LIMITS.chains_kept and chains[-1][0] == 99
    assert chains[-1][1] == next_chain(chains[-2][1], "s99")


def test_a_slot_with_several_intervals_gets_an_entry_for_each() -> None:
    ring = Ring((0, 100, 200), (0, 1, 0))
    ledger = Ledger()
    ledger.committed(commit(1, ring, {0: "s"}), 1)
    assert [e.interval for e in ledger.slots["C"][0].entries] == list(ring.intervals(0))


def test_a_split_cuts_entries_and_a_merge_joins_them_without_widening() -> None:
    ledger = Ledger()
    ledger.committed(commit(1, ONE, {0: "whole"}), 1)
    ledger.committed(commit(2, TWO, {0: "left", 1: "right"}), 2)
    left, right = TWO.intervals(0)[0], TWO.intervals(1)[0]
    assert [(e.segment, e.interval) for e in ledger.slots["C"][1].entries] == [
        ("right", right), ("whole", right),
    ]  # fmt: skip
    ledger.committed(commit(3, ONE), 3)
    found = {(e.segment, e.interval) for e in ledger.slots["C"][0].entries}
    assert found == {("left", left), ("right", right), ("whole", left), ("whole", right)}
    assert [e.last_epoch for e in ledger.slots["C"][0].entries] == [2, 2, 1, 1]


def test_the_bases_of_a_plan_with_another_ring_are_what_its_commit_will_build_on() -> None:
    ledger = Ledger()
    ledger.committed(commit(1, ONE, {0: "s"}), 1)
    bases = ledger.bases({"C": TWO})["C"]
    ledger.committed(commit(2, TWO), 2)
    for slot in (0, 1):
        assert bases[slot].entries == ledger.slots["C"][slot].entries
        assert bases[slot].chains == ledger.slots["C"][slot].chains


def test_a_ring_that_moved_makes_chains_that_no_cache_has_seen() -> None:
    slots = {0: SlotLedger((SegmentSlice("s", WHOLE, 1, 1, 1),), ((0, ""), (1, "c")), 5, 9)}
    moved = recut(slots, ONE, TWO)
    back = recut(moved, TWO, ONE)
    chains = {slots[0].chains[-1][1], moved[0].chains[-1][1], moved[1].chains[-1][1]}
    assert len(chains | {back[0].chains[-1][1]}) == 4
    assert all(slot.next_event_timer == 5 and slot.next_wall_timer == 9 for slot in moved.values())


def test_a_ring_of_the_same_intervals_changes_nothing() -> None:
    slots = {0: SlotLedger((SegmentSlice("s", WHOLE, 1, 1, 1),))}
    assert recut(slots, ONE, Ring.even(1)) is slots


def test_an_adopted_merge_stands_where_its_run_stood() -> None:
    ledger = Ledger()
    for epoch in (1, 2, 3):
        ledger.committed(commit(epoch, segments={0: f"s{epoch}"}), epoch)
    merged = SegmentSlice("m", WHOLE, 2, 1, 1)
    adoption = Adoption("C", 0, ("s1", "s2"), merged)
    ledger.committed(commit(4, segments={0: "s4"}, adoptions=[adoption]), 4)
    assert segments_of(ledger, 0) == ["s4", "s3", "m"]
    assert ledger.slots["C"][0].chains[-1][1] == next_chain(
        ledger.slots["C"][0].chains[-2][1], "s4"
    )


def test_watermarks_splits_and_counters_add_up_and_the_outbox_is_replaced() -> None:
    ledger = Ledger()
    file = OutboxFile("f", "C", "back", "C/0", 3, 1)
    ledger.committed(
        commit(
            1, ins={"C": 5}, outs={"s": 6}, newest=9, outbox=[file],
            splits={"s": {"a": SplitState(3, Mark(1, 1))}},
            counters=Counters(records=2, late=1, metrics={"C.x": 1}),
        ),
        1,
    )  # fmt: skip
    assert ledger.outbox == {"C": [file]}
    ledger.committed(
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
    ledger.committed(commit(1, segments={0: "s"}, ins={"C": 5}, outs={"C": 4}), 1)
    renamed = commit(2, ins={"D": 6}, outs={"D": 5}, renamed={"C": "D"})
    renamed = msgspec.structs.replace(
        renamed, rings={"D": ONE}, deltas={"D": {0: SlotDelta("t", 1, 1)}}
    )
    ledger.committed(renamed, 2)
    assert [e.segment for e in ledger.slots["D"][0].entries] == ["t", "s"]
    assert "C" not in ledger.slots and "C" not in ledger.ins and "C" not in ledger.rings


def test_a_ledger_survives_the_json_of_a_snapshot() -> None:
    ledger = Ledger()
    ring = Ring((0, 2**63, 2**64 - 5), (0, 1, 0))
    splits = {"s": {"a": SplitState(3, Mark(None, 1))}}
    ledger.committed(commit(1, ring, {0: "s", 1: "t"}, splits=splits), 1)
    ledger.planned(Plan(2, 77, 2**63 - 1, "", [], {}, {"C": ring}))
    found = msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger)
    assert found == ledger
    assert found.slots["C"][0].entries[-1].interval.high == 2**64
    assert KeyInterval(0, 2**64 - 1).high == 2**64
