"""An epoch's budget: cancelled when spent, doubled when that did not help."""

from __future__ import annotations

import threading
from typing import Any

from headrace.engine.spark.deadline import BUDGET_MIN_S, Deadline


class Context:
    """What a deadline asks of Spark's context."""

    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.cancelled = threading.Event()

    def setInterruptOnCancel(self, wanted: bool) -> None:
        assert wanted

    def addJobTag(self, tag: str) -> None:
        self.tags.add(tag)

    def removeJobTag(self, tag: str) -> None:
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag: str) -> None:
        assert tag in self.tags
        self.cancelled.set()


def deadline(context: Any, seconds: float | None) -> Deadline:
    return Deadline(context, seconds)


def test_jobs_are_cancelled_when_the_budget_is_spent_and_the_next_try_has_twice_as_long() -> None:
    context = Context()
    made = deadline(context, 0.01)
    with made.watch() as expiry:
        assert context.cancelled.wait(10)
    assert expiry.happened
    assert made.budget == 0.02
    assert not context.tags


def test_a_try_that_ends_in_time_resets_the_budget() -> None:
    context = Context()
    made = deadline(context, 0.01)
    with made.watch():
        assert context.cancelled.wait(10)
    made._asked = 60.0
    with made.watch() as expiry:
        pass
    assert not expiry.happened
    assert made.budget == 60.0


def test_without_a_wish_the_budget_follows_the_slowest_epoch() -> None:
    made = deadline(Context(), None)
    assert made.budget == BUDGET_MIN_S
    made.took(30.0)
    made.took(1.0)
    assert made.budget == 600.0
