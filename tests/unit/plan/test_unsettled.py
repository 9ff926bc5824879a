"""A new directory of calls is begun only when nothing a voided plan called for can come again."""

from __future__ import annotations

import msgspec
import pytest

from headrace.limits import LIMITS
from headrace.model.source import Range
from headrace.model.values.time import END
from headrace.plan.counters import Counters
from headrace.plan.epoch import (
    CARRIED,
    Commit,
    InjectorPlan,
    OutboxFile,
    Plan,
    ReadTask,
    SlotDelta,
    SplitState,
    WatermarkBound,
)
from headrace.plan.ledger import Ledger
from headrace.plan.watermarks import Mark

RING = {"C": 1}

DETERMINANTS_EPOCHS = LIMITS.determinants_epochs


def ledger_at(time: int) -> Ledger:
    """So many epochs that the one after the next would begin another directory."""
    return Ledger(epoch=DETERMINANTS_EPOCHS - 1, determinants=1, ins={"C": time})


def plan(
    ledger: Ledger,
    reach: dict[str, WatermarkBound],
    *,
    end: int = 0,
    wall: int = 0,
    final: bool = False,
    stream: str = "s",
) -> Plan:
    reads = [[ReadTask(stream, "p", 0, Range(0, end, 1), Mark(0, 0))]] if end else []
    injectors = {stream: InjectorPlan({}, 0)}
    where = ledger.next_determinants()
    return Plan(
        ledger.epoch + 1, wall, 0, "", reads, injectors, RING,
        final=final, determinants=where, bounds=reach,
        ring_bases={} if ledger.rings else {"C": "even/1"},
    )  # fmt: skip


def voided(ledger: Ledger, reach: dict[str, WatermarkBound], **more) -> None:
    ledger.planned(plan(ledger, reach, **more))
    ledger.voided()


def committed(
    ledger: Ledger,
    time: int,
    *,
    read: int = 0,
    wall_timer: int | None = None,
    carried_since: int = 0,
    **more,
):
    ledger.planned(plan(ledger, {}, **more))
    splits = {"s": {"p": SplitState(read, Mark(read, read))}} if read else {}
    deltas = {"C": {0: SlotDelta(None, next_wall_timer=wall_timer)}}
    carried = OutboxFile("f", "C", "s", "C/0", 0, 1, kind=CARRIED, since=carried_since)
    outbox = [carried] if carried_since else []
    ledger.committed(
        Commit(
            ledger.epoch + 1, {"C": time}, {}, splits, RING, deltas, outbox, [], Counters(), read
        ),
        ledger.epoch,
    )


def test_a_timer_that_fired_by_an_idle_split_fires_again_in_the_same_directory() -> None:
    """[Plan 16 fires a timer as a split is idle, and is voided; the split wakes, and 16' does not
    fire it; 17 does, and calls the second time.]"""
    ledger = ledger_at(5)
    voided(ledger, {"C": WatermarkBound(cap=100)})
    for time in (6, 7, 99):
        assert ledger.next_determinants() == 1
        committed(ledger, time)
    assert ledger.next_determinants() == 1
    committed(ledger, 100)
    assert ledger.next_determinants() == ledger.epoch + 1


def test_what_the_input_of_a_voided_plan_says_of_time_is_known_when_it_is_read_again() -> None:
    ledger = ledger_at(5)
    voided(ledger, {"C": WatermarkBound(injectors=("s",), floor=10)}, end=50)
    committed(ledger, 20, read=40)
    assert ledger.bounds_of_voided and not ledger.unpassed
    committed(ledger, 20, read=60)
    assert not ledger.bounds_of_voided and ledger.unpassed == {"C": 60}
    committed(ledger, 59, read=1000)
    assert ledger.next_determinants() == 1
    committed(ledger, 60, read=1000)
    assert ledger.next_determinants() == ledger.epoch + 1


def test_of_several_voided_plans_the_farthest_counts() -> None:
    ledger = ledger_at(5)
    voided(ledger, {"C": WatermarkBound(cap=100)})
    voided(ledger, {"C": WatermarkBound(cap=30)})
    voided(ledger, {"C": WatermarkBound(injectors=("t",), floor=70)})
    voided(ledger, {"C": WatermarkBound(injectors=("s",), floor=40)})
    assert ledger.bounds_of_voided == {"C": WatermarkBound(None, ("t", "s"), 70)}
    committed(ledger, 99)
    assert ledger.unpassed == {"C": 100}


def test_after_a_final_plan_only_the_end_is_far_enough() -> None:
    ledger = ledger_at(5)
    voided(ledger, {"C": WatermarkBound(injectors=("s",))}, final=True)
    committed(ledger, 10**15)
    assert ledger.next_determinants() == 1
    committed(ledger, END)
    assert ledger.next_determinants() == ledger.epoch + 1


def test_wall_time_timers_that_are_still_due_are_waited_for() -> None:
    ledger = ledger_at(5)
    voided(ledger, {"C": WatermarkBound(cap=5)}, wall=1000)
    assert ledger.next_determinants() == 1, "nothing has been committed since"
    committed(ledger, 5, wall_timer=900)
    assert ledger.next_determinants() == 1
    committed(ledger, 5, wall_timer=1001)
    assert ledger.next_determinants() == ledger.epoch + 1


def test_a_computation_that_is_gone_is_not_waited_for_and_a_renamed_one_is() -> None:
    ledger = ledger_at(5)
    voided(
        ledger,
        {
            "C": WatermarkBound(cap=100),
            "Gone": WatermarkBound(cap=100),
            "Old": WatermarkBound(cap=9),
        },
    )
    ledger.rename("Old", "C2")
    assert ledger.unpassed == {"C": 100, "Gone": 100, "C2": 9}
    committed(ledger, 50)
    assert ledger.unpassed == {"C": 100}


def test_a_stream_that_nobody_reads_any_more_is_not_waited_for() -> None:
    ledger = ledger_at(5)
    voided(ledger, {}, end=50, stream="renamed since")
    assert ledger.voided_reads
    committed(ledger, 5)
    assert ledger.voided_reads == {}


def test_skipped_input_is_told_by_what_follows_it() -> None:
    """It is never read again, so its times are not: only what comes after tells them."""
    ledger = ledger_at(5)
    ledger.planned(plan(ledger, {"C": WatermarkBound(injectors=("s",))}, end=50))
    ledger.voided({"s": {"p": SplitState(50, Mark(0, 0))}}, 50)
    committed(ledger, 5)
    assert ledger.next_determinants() == 1
    committed(ledger, 5, read=51)
    assert ledger.unpassed == {"C": 51}


@pytest.mark.parametrize("reach", [{}, {"C": WatermarkBound()}])
def test_a_plan_that_does_not_tell_may_have_come_as_far_as_the_newest_record(reach) -> None:
    ledger = ledger_at(5)
    voided(ledger, reach)
    committed(ledger, 5, read=70)
    assert ledger.unpassed == {"C": 70}


def test_a_snapshot_keeps_it() -> None:
    ledger = ledger_at(5)
    voided(
        ledger, {"C": WatermarkBound(cap=100), "D": WatermarkBound(injectors=("s",))}, end=9, wall=7
    )
    again = msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger)
    assert again == ledger and again.next_determinants() == 1


def test_a_record_of_a_voided_plan_that_is_carried_over_keeps_its_directory() -> None:
    """[Plan 16 calls for a record, and is voided as a slot was too slow; 16' reads the record and
    carries it over; 20 processes it, in a new directory, and calls the second time.]"""
    ledger = ledger_at(5)
    voided(ledger, {"C": WatermarkBound(cap=10)}, end=50)
    first = ledger.epoch + 1
    committed(ledger, 20, read=60, carried_since=first)
    assert ledger.next_determinants() == 1
    committed(ledger, 30, read=70, carried_since=first)
    assert ledger.next_determinants() == 1
    # The record is processed, and what it leads to is carried over by the next level.
    committed(ledger, 40, read=80, carried_since=ledger.epoch + 1)
    assert ledger.next_determinants() == 1
    committed(ledger, 50, read=90)
    assert ledger.next_determinants() == ledger.epoch + 1
