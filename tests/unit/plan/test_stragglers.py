"""Limits of slots: when they come, how they follow the time of jobs, and when they go."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.limits import Limits
from headrace.plan.counters import Counters
from headrace.plan.decisions.stragglers import (
    WorkMark,
    budget_s,
    limits_after,
    limits_of_plan,
    limits_of_stragglers,
    slowed,
)
from headrace.plan.epoch import CARRIED, FEEDBACK, OutboxFile, Plan, Report
from headrace.plan.overload import SlotLimit
from headrace.plan.watermarks import UNBOUNDED

TARGET_S = 1.0
WALL = 5


def plan(**given: Any) -> Plan:
    fields: dict[str, Any] = {"reads": [], "injectors": {}, "rings": {}}
    return Plan(7, WALL, 1, "", **fields, **given)


def report(label: str, *, carried: int = 0, shed: int = 0, fed_back: int = 0) -> Report:
    files = (OutboxFile("f", "C", "s", label, 0, carried, kind=CARRIED),) if carried else ()
    files += (OutboxFile("g", "C", "s", label, 0, fed_back, kind=FEEDBACK),) if fed_back else ()
    counters = Counters(shed_of={"s": shed} if shed else {})
    return Report(label, "C", "", UNBOUNDED, "", outbox=files, counters=counters)


def found(*marks: WorkMark, slots: int = 8, **given: Any) -> dict[str, int]:
    mine = [msgspec.structs.replace(mark, wall=WALL) for mark in marks]
    other = WorkMark("C/7", 60.0, 100, 1, WALL - 1)  # of an earlier plan, which was voided
    limits = limits_of_stragglers([*mine, other], plan(**given), {"C": slots}, TARGET_S)
    return {label: limit.records for label, limit in limits.items()}


def test_a_job_is_looked_into_when_it_takes_much_longer_than_the_median() -> None:
    assert budget_s([1.0, 9.0, 1.2], 2.0) == 3.2
    assert budget_s([1.0, 9.0], 2.0) is None, "workers take time to start"
    assert budget_s([1.0], 2.0, Limits(straggler_jobs_min=1)) == 3.0


def test_the_limit_is_what_a_slot_manages_in_the_time_of_an_epoch() -> None:
    assert found(WorkMark("C/3", 10.0, records=5000, done=2000)) == {"C/3": 200}


def test_a_slot_that_does_not_say_how_far_it_is_has_come_less_than_to_its_end() -> None:
    assert found(WorkMark("C/3", 10.0, records=5000, done=0)) == {"C/3": 250}


def test_a_slot_always_processes_something_and_never_all() -> None:
    assert found(WorkMark("C/3", 60.0, records=5, done=1)) == {"C/3": 1}
    assert found(WorkMark("C/3", 0.001, records=5, done=5)) == {"C/3": 4}


def test_where_most_slots_are_slow_no_single_slot_is() -> None:
    marks = [WorkMark(f"C/{i}", 10.0, 100, 50) for i in range(5)]
    assert found(*marks, slots=8) == {}
    assert found(*marks[:4], slots=8).keys() == {"C/0", "C/1", "C/2", "C/3"}
    assert found(marks[0], slots=1) == {}, "smaller epochs are the answer"


def test_a_plan_is_voided_once_per_straggler() -> None:
    assert found(WorkMark("C/3", 10.0, 100, 50), limits={"C/3": 80}) == {}


def test_a_limit_that_was_too_low_follows_the_time_of_the_job() -> None:
    known = {"C/0": SlotLimit(100, calm=3)}

    def after(job_s: float) -> int:
        changed = limits_after(known, [report("C/0", carried=9)], job_s, TARGET_S)
        assert changed is not None and changed["C/0"].calm == 0
        return changed["C/0"].records

    assert [after(s) for s in (0.8, 1.0, 1.25, 0.01, 99.0)] == [125, 100, 80, 200, 50]


def test_a_slot_that_drops_records_has_not_managed_them() -> None:
    changed = limits_after({"C/0": SlotLimit(9)}, [report("C/0", shed=1)], 0.5, TARGET_S)
    assert changed == {"C/0": SlotLimit(18)}


def test_a_limit_goes_when_it_was_enough_for_two_periods() -> None:
    limits = Limits(limit_period_epochs=2)
    known = {"C/0": SlotLimit(100)}
    seen = []
    while known:
        changed = limits_after(known, [report("C/0", fed_back=3)], 1.0, TARGET_S, limits)
        assert changed is not None
        known = changed
        seen.append({label: limit.calm for label, limit in known.items()})
    assert seen == [{"C/0": 1}, {"C/0": 2}, {"C/0": 3}, {}]


def test_a_slot_that_a_ring_no_longer_has_loses_its_limit() -> None:
    assert limits_after({"C/9": SlotLimit(5)}, [report("C/0")], 1.0, TARGET_S) == {}


def test_without_limits_nothing_is_changed() -> None:
    assert limits_after({}, [report("C/0", carried=1)], 9.0, TARGET_S) is None


def test_a_plan_has_the_limits_of_its_slots_and_no_others() -> None:
    known = {"C/0": SlotLimit(5), "C/7": SlotLimit(6), "D/1": SlotLimit(7)}
    slots = {"C": [0, 1], "D": [1]}
    assert limits_of_plan(known, {"C/1": 0, "D/1": 2}, slots) == {"C/0": 5, "C/1": 0, "D/1": 2}


def test_less_is_read_while_many_records_wait() -> None:
    limits = {"C/0": SlotLimit(10), "C/1": SlotLimit(100)}
    assert slowed(1000, {}, limits) == 1000
    assert slowed(1000, {"C/0": 40, "C/1": 400}, limits) == 1000
    assert slowed(1000, {"C/0": 60}, limits) == 500
    assert slowed(1000, {"C/0": 10_000}, limits) == 1
    assert slowed(1000, {"C/5": 10_000}, limits) == 1000, "a ring has moved since"
