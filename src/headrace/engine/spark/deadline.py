"""When Spark jobs are cancelled: at a deadline, or when a slot holds them up.

A hung executor is treated as a lost one.

Spark detects a hung executor by its missing heartbeats after `spark.network.timeout`, which is two
minutes unless the session says otherwise. An epoch need not wait that long. When its budget is
spent, its jobs are cancelled and the plan runs again. Spark still counts the core of the hung task
as taken, so the next attempt runs elsewhere. Whatever the hung task writes when it wakes up, no
commit names it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

BUDGET_MIN_S = 60.0
BUDGET_TIMES = 20.0
DOUBLINGS_MAX = 6


class Deadline:
    """How long an epoch's job may take: the configured time, or an estimate from past epochs."""

    def __init__(self, context: SparkContext, seconds: float | None) -> None:
        self._context = context
        self._asked = seconds
        self._slowest = 0.0
        self._expired = 0

    @property
    def budget(self) -> float:
        """Seconds. It doubles with every expiry in a row, because a slow job need not be hung."""
        base = self._asked or max(BUDGET_MIN_S, BUDGET_TIMES * self._slowest)
        return base * 2.0 ** min(self._expired, DOUBLINGS_MAX)

    @contextmanager
    def watch(self) -> Iterator[Expiry]:
        """Cancels the jobs of this thread when the budget is spent."""
        tag = f"headrace-{secrets.token_hex(6)}"
        expiry = Expiry()

        def cancel() -> None:
            expiry.happened = True
            self._context.cancelJobsWithTag(tag)

        timer = threading.Timer(self.budget, cancel)
        timer.daemon = True
        self._context.addJobTag(tag)
        # Otherwise a cancelled task that waits for a hung executor's shuffle files keeps its core.
        self._context.setInterruptOnCancel(True)
        timer.start()
        try:
            yield expiry
        finally:
            timer.cancel()
            self._context.removeJobTag(tag)
            self._expired = self._expired + 1 if expiry.happened else 0

    def took(self, seconds: float) -> None:
        """Notes that an epoch's job succeeded and took this long."""
        self._slowest = max(self._slowest, seconds)


class Expiry:
    """Whether a deadline has passed."""

    happened = False


LOOKS_EVERY_S = 0.5


class JobMonitor:
    """Asks a few times per second whether the running job is to be given up, and cancels it."""

    def __init__(self, context: SparkContext, look: Callable[[], bool]) -> None:
        self._context, self._look = context, look
        self._tag = f"headrace-{secrets.token_hex(6)}"
        self._tagged: int | None = None
        self._lock = threading.Lock()
        self._runs = False
        self._ended = threading.Event()
        thread = threading.Thread(target=self._watch, name="headrace-stragglers", daemon=True)
        thread.start()

    @contextmanager
    def over(self) -> Iterator[None]:
        """While the job of this thread runs, it may be cancelled."""
        if self._tagged != threading.get_ident():  # a tag belongs to a thread, and stays
            self._context.addJobTag(self._tag)
            self._context.setInterruptOnCancel(True)
            self._tagged = threading.get_ident()
        with self._lock:
            self._runs = True
        try:
            yield
        finally:
            with self._lock:
                self._runs = False

    def end(self) -> None:
        """Watches no more."""
        self._ended.set()
        if self._tagged == threading.get_ident():
            self._context.removeJobTag(self._tag)

    def _watch(self) -> None:
        while not self._ended.wait(LOOKS_EVERY_S):
            if self._is_to_be_given_up():
                with self._lock:
                    # Asked again: the next job may have begun meanwhile.
                    if self._is_to_be_given_up():
                        self._context.cancelJobsWithTag(self._tag)

    def _is_to_be_given_up(self) -> bool:
        return self._runs and self._look()
