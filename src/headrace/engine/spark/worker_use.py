"""Adds up what workers have asked of the store.

A worker reports its sum since it began, with the rows that go straight to the driver. So a report
that is lost, repeated or late does no harm: the next one contains it.
"""

from __future__ import annotations

import threading

from headrace.plan.progress import StoreUse

PROCESSES_MAX = 1024
"""How many processes are remembered. Spark ends idle workers, and starts new ones."""


class WorkerUse:
    """The sum over all worker processes."""

    def __init__(self) -> None:
        self.total = StoreUse()
        self._lock = threading.Lock()
        """Jobs beside the epochs report from threads of their own."""
        self._last: dict[str, StoreUse] = {}
        """Process -> its last report, the most recent process at the end."""

    def note(self, process: str, use: StoreUse) -> None:
        """Takes a report of a process."""
        with self._lock:
            before = self._last.pop(process, StoreUse())
            if use.reads + use.asked < before.reads + before.asked:
                use = before  # two tasks of a process have reported, and the first comes last
            self._last[process] = use
            self.total = self.total + (use - before)
            if len(self._last) > PROCESSES_MAX:
                del self._last[next(iter(self._last))]
