"""Deliberate bugs in what rides in commits (protocol M1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

from headrace.engine.driver.driver import Driver
from headrace.engine.history.recovery import History
from headrace.plan.ledger import Ledger
from headrace.worker.exchange import emitter

__all__ = [
    "commits_leave_riders_behind",
    "every_attempt_decides_what_rides",
    "the_log_is_trimmed_under_old_epochs",
    "the_log_is_trimmed_under_segments",
]


def the_log_is_trimmed_under_segments() -> AbstractContextManager[Any]:
    """M1: an entry of the log is deleted though a segment of the state rides in it."""
    return patch.object(Ledger, "rides_from", lambda self: None)


def the_log_is_trimmed_under_old_epochs() -> AbstractContextManager[Any]:
    """M1: what rides for a retained epoch before the last is forgotten."""
    needed_from = History.needed_from

    def of_the_last(self: History) -> int:
        kept, self._rides_from = self._rides_from, [self._rides_from[-1]]  # type: ignore[assignment]
        try:
            return needed_from(self)
        finally:
            self._rides_from = kept

    return patch.object(History, "needed_from", of_the_last)


def commits_leave_riders_behind() -> AbstractContextManager[Any]:
    """M1: a commit says what rides in it, and does not carry it."""
    commit = Driver._commit
    return patch.object(
        Driver, "_commit", lambda self, plan, done, riders: commit(self, plan, done, {})
    )


@contextmanager
def every_attempt_decides_what_rides() -> Iterator[None]:
    """M1: one attempt of a task lets its output ride, and the next one writes it."""
    share, turns = emitter.ride_bytes, count()

    def by_turns(*given: Any) -> int:
        return share(*given) if next(turns) % 2 else 0

    with patch.object(emitter, "ride_bytes", by_turns):
        yield
