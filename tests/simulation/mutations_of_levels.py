"""Deliberate bugs that only some workloads can find: weak levels, ties, jobs run without need."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import Any
from unittest.mock import patch

import msgspec

from headrace.engine.driver import takeover
from headrace.engine.driver.delivery import Deliverer
from headrace.errors import SinkError
from headrace.log.epochlog import FailAtOnce
from headrace.plan.decisions import verdict as verdict_module
from headrace.worker.records import ordered

__all__ = [
    "acknowledged_epochs_are_passed_over",
    "equal_outputs_are_not_one",
    "refused_rows_are_handed_over_again",
    "skipped_records_are_not_counted",
    "ties_fall_as_they_come",
    "undelivered_rows_are_not_told",
    "weak_rows_that_were_refused_are_let_go",
    "weak_rows_that_were_refused_run_their_job_again",
]


def equal_outputs_are_not_one() -> AbstractContextManager[Any]:
    """B3: a label that is reported twice drops the epoch, though both made the same."""
    by_host = verdict_module._by_host

    def strict(topology: Any, task: Any, reports: Any) -> Any:
        if len({report.label for report in reports}) < len(reports):
            return verdict_module.RunAgain("a label was reported twice")
        return by_host(topology, task, reports)

    return patch.object(verdict_module, "_by_host", strict)


def ties_fall_as_they_come() -> AbstractContextManager[Any]:
    """D8: records of one instant are taken in the order of their arrival."""

    def order(row: Any) -> Any:
        timestamp, index, _, epoch, position = row[0]
        return timestamp, index, epoch, position

    return patch.object(ordered, "_order", order)


def weak_rows_that_were_refused_are_let_go() -> AbstractContextManager[Any]:
    """At-least-once: a sink refuses what comes before the commit, and the epoch is committed."""
    deliver_weak = Deliverer.deliver_weak

    def careless(self: Deliverer, commit: Any, riders: Any) -> None:
        with suppress(SinkError), _without_patience(self):
            deliver_weak(self, commit, riders)

    return patch.object(Deliverer, "deliver_weak", careless)


def weak_rows_that_were_refused_run_their_job_again() -> AbstractContextManager[Any]:
    """At-least-once: what is away while weak rows are delivered begins the epoch anew."""
    deliver_weak = Deliverer.deliver_weak

    def hasty(self: Deliverer, commit: Any, riders: Any) -> None:
        with _without_patience(self):
            deliver_weak(self, commit, riders)

    return patch.object(Deliverer, "deliver_weak", hasty)


def _without_patience(deliverer: Deliverer) -> AbstractContextManager[Any]:
    return patch.object(deliverer, "_waiter", FailAtOnce())


def skipped_records_are_not_counted() -> AbstractContextManager[Any]:
    """At-most-once: what was skipped after a crash is told to nobody."""
    skipping = takeover.skipping

    def silent(graph: Any, ledger: Any) -> Any:
        void = skipping(graph, ledger)
        return None if void is None else msgspec.structs.replace(void, records=0)

    return patch.object(takeover, "skipping", silent)


def undelivered_rows_are_not_told() -> AbstractContextManager[Any]:
    """At-most-once: rows that are passed over are told to nobody."""
    pass_over = Deliverer._pass_over

    def silent(self: Deliverer, outlet: Any, commit: Any) -> None:
        told = self.undelivered
        pass_over(self, outlet, commit)
        self.undelivered = told

    return patch.object(Deliverer, "_pass_over", silent)


def refused_rows_are_handed_over_again() -> AbstractContextManager[Any]:
    """At-most-once: a sink that raised is handed the same rows a second time."""
    deliver_to = Deliverer._deliver_to

    def forgetful(self: Deliverer, outlet: Any, commit: Any, water: int) -> None:
        self._handed.clear()
        deliver_to(self, outlet, commit, water)

    return patch.object(Deliverer, "_deliver_to", forgetful)


def acknowledged_epochs_are_passed_over() -> AbstractContextManager[Any]:
    """At-most-once: a driver that takes over tells of rows that its sink had acknowledged."""
    catch_up = Deliverer.catch_up

    def gloomy(self: Deliverer, commits: Any, *given: Any) -> None:
        catch_up(self, commits, *given)
        for outlet in self._outlets.values():
            for _, commit in commits if outlet.name in self._at_most_once else ():
                self._pass_over(outlet, commit)

    return patch.object(Deliverer, "catch_up", gloomy)
