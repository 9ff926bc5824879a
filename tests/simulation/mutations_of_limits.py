"""Deliberate bugs around limits of slots and carried records, each a clause of section P."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec
from tests.property.limits.mutations import (
    cap_per_slot,
    carried_rows_stay_with_their_slot,
    late_at_processing,
    new_first,
    no_cap,
    no_hold,
    the_end_waits_for_nothing,
)

from headrace.engine.driver import driver as driver_module
from headrace.engine.jobs import stragglers as stragglers_watch
from headrace.engine.upkeep import collection
from headrace.plan.ledger import Ledger
from headrace.worker import level
from headrace.worker.overload import limit, shed

__all__ = [
    "cap_per_slot",
    "carried_rows_stay_with_their_slot",
    "clocks_in_tasks_decide",
    "dropped_records_are_not_counted",
    "late_at_processing",
    "limits_are_not_in_the_plan",
    "new_first",
    "no_cap",
    "no_hold",
    "stragglers_are_given_up_again",
    "the_end_waits_for_nothing",
    "waiting_records_are_collected",
    "waiting_records_are_forgotten",
]


def clocks_in_tasks_decide() -> AbstractContextManager[Any]:
    """P1: a task stops where its own clock says so, and each attempt at another record."""
    cut = limit.cut
    turns = iter(range(10**9))

    def by_clock(arrivals: Any, records: int) -> Any:
        return cut(arrivals, records + next(turns) % 3)

    return patch.object(limit, "cut", by_clock)


def limits_are_not_in_the_plan() -> AbstractContextManager[Any]:
    """P2: what a worker remembers is the limit, and another worker has another one."""
    within, workers = limit.within_limit, {}  # type: ignore[var-annotated]

    def own(run: Any, waiting: Any, fresh: Any) -> Any:
        number = workers.setdefault(id(run.emitter.runtime), len(workers))
        limits = {label: 1 + number % 3 for label in run.order.plan.limits}
        plan = msgspec.structs.replace(run.order.plan, limits=limits)
        run.emitter.order = msgspec.structs.replace(run.order, plan=plan)
        return within(run, waiting, fresh)

    return patch.object(level, "within_limit", own)


def stragglers_are_given_up_again() -> AbstractContextManager[Any]:
    """P7: a plan is voided because of a slot that has a limit, and so is the next one."""
    found = stragglers_watch.limits_of_stragglers

    def forgetful(marks: Any, plan: Any, *given: Any) -> Any:
        return found(marks, msgspec.structs.replace(plan, limits={}), *given)

    return patch.object(stragglers_watch, "limits_of_stragglers", forgetful)


def dropped_records_are_not_counted() -> AbstractContextManager[Any]:
    """P2: an overloaded slot drops records, and tells nobody."""
    without_shed = shed.without_shed

    def silent(run: Any, arrivals: Any, records: int) -> Any:
        kept = without_shed(run, arrivals, records)
        run.emitter.counters.shed_of = {}
        return kept

    return patch.object(limit, "without_shed", silent)


def waiting_records_are_collected() -> AbstractContextManager[Any]:
    """C8: files with records that wait are not among those that commits need."""
    needed_by = collection.needed_by

    def careless(*given: Any, **more: Any) -> Any:
        found = needed_by(*given, **more)
        return replace(found, outbox=frozenset())

    return patch.object(driver_module, "needed_by", careless)


def waiting_records_are_forgotten() -> AbstractContextManager[Any]:
    """P2: a commit drops the records that the slots of its epoch carried."""
    committed = Ledger.committed

    def forgetful(self: Ledger, commit: Any, *given: Any, **more: Any) -> None:
        kept = [file for file in commit.outbox if file.kind != "carried"]
        committed(self, msgspec.structs.replace(commit, outbox=kept), *given, **more)

    return patch.object(Ledger, "committed", forgetful)
