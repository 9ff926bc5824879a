"""Marks of slow slots: a task that runs long says how far it has come (P1).

A mark is a volatile file, and advice: the driver reads it when a job takes longer than usual. A
thread writes it, so hooks do not count anything for it. Only processes in which a clock passes have
one: Spark's workers. Nothing that a task produces depends on marks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from headrace.errors import StoreError
from headrace.log import paths
from headrace.plan.counters import Counters
from headrace.plan.decisions.stragglers import WorkMark
from headrace.plan.epoch import WorkOrder
from headrace.store.store import Store

POLL_S_MIN = 0.05
IDLE_S = 30.0
"""The thread ends when no slot has run for so long."""


def write_mark(store: Store, epoch: int, mark: WorkMark) -> None:
    """Writes a mark. If the store does not take it, the driver learns less."""
    try:
        store.write_volatile(paths.work_mark(epoch, mark.label), msgspec.msgpack.encode(mark))
    except (OSError, StoreError):
        pass


class _Running:
    """A slot that runs."""

    def __init__(self, order: WorkOrder, label: str, counters: Counters, records: int) -> None:
        self.plan, self.every_s = order.plan, order.mark_after_s
        self.label, self.counters, self.records = label, counters, records
        self.began_s = time.monotonic()
        self.marks_at_s = self.began_s + self.every_s

    def mark(self, now_s: float) -> WorkMark:
        """How far it has come."""
        self.marks_at_s = now_s + self.every_s
        done = min(self.counters.hooks, self.records)
        seconds = now_s - self.began_s
        return WorkMark(self.label, seconds, self.records, done, self.plan.wall)


class Marks:
    """Writes the marks of all slots that run in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._running: list[_Running] = []
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    @contextmanager
    def over(
        self, order: WorkOrder, label: str, counters: Counters, records: int
    ) -> Iterator[None]:
        """While a slot runs over so many records, marks say how far it has come."""
        if not order.mark_after_s:
            yield
            return
        running = _Running(order, label, counters, records)
        with self._lock:
            self._running.append(running)
            if self._thread is None or self._process != os.getpid():
                self._process = os.getpid()
                self._thread = threading.Thread(
                    target=self._run, name="headrace-marks", daemon=True
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(running)

    def _run(self) -> None:
        idle_since = time.monotonic()
        while True:
            with self._lock:
                now = time.monotonic()
                if self._running:
                    idle_since = now
                elif now - idle_since > IDLE_S:
                    self._thread = None
                    return
                due = [running for running in self._running if running.marks_at_s <= now]
                shortest = min((running.every_s for running in self._running), default=1.0)
            for running in due:
                write_mark(self._store, running.plan.epoch, running.mark(now))
            time.sleep(max(POLL_S_MIN, shortest / 4))
