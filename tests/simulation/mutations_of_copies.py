"""Deliberate bugs that only two copies of one checkpoint can find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from headrace.engine.driver import delivery
from headrace.engine.driver.delivery import Deliverer
from headrace.sinks.files import FileSink
from headrace.sinks.high_water import HighWaterMark

__all__ = [
    "claims_and_marks_name_no_commit",
    "copies_are_told_apart_by_numbers",
    "copies_show_rows_in_epochs_without_rows",
    "sinks_that_went_ahead_are_not_noticed",
]


def claims_and_marks_name_no_commit() -> AbstractContextManager[Any]:
    """F3: whoever loses a claim completes the winner's delivery, though it is a copy's."""
    return patch.object(HighWaterMark, "require", lambda self, *given: None)


def sinks_that_went_ahead_are_not_noticed() -> AbstractContextManager[Any]:
    """F3: an epoch that a sink has is skipped, whoever delivered it."""

    def trusting(self: Deliverer, outlet: Any, commit: Any) -> None:
        self._deliver_to(outlet, commit, delivery.high_water(outlet))

    return patch.object(Deliverer, "_deliver_own", trusting)


@contextmanager
def copies_are_told_apart_by_numbers() -> Iterator[None]:
    """F3: neither the driver nor the sink asks whose epoch is there."""
    with claims_and_marks_name_no_commit(), sinks_that_went_ahead_are_not_noticed():
        yield


def copies_show_rows_in_epochs_without_rows() -> AbstractContextManager[Any]:
    """F3: who has no rows of an epoch does not look for the claim of a copy that has some."""
    return patch.object(FileSink, "_keep_empty", lambda self, *given: None)
