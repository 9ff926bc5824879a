"""A substrate in this process with a thread for each task of a level.

It is for experiments with an emulated service time: hooks that sleep let other threads run, so the
slot is the unit of capacity, as on a cluster, and no Spark has to start. Every task has a runtime
of its own, with caches of its own, as a Python worker has. User code that computes gains nothing
here: threads share one interpreter.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from headrace.engine.driver.local import read_all, reports_in
from headrace.engine.upkeep.held import HeldDeltas
from headrace.pipeline.graph.topology import Topology
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import Report, WorkOrder
from headrace.plan.progress import StoreUse
from headrace.state.cache import WorkerCache
from headrace.store.store import Store
from headrace.worker.exchange.envelope import Envelope, tasks_at
from headrace.worker.level import run_level
from headrace.worker.overload.marks import Marks
from headrace.worker.runtime import Runtime

_LOOK_S = 0.05


class GivenUp(BaseException):
    """Ends a task whose job was given up. User code must not catch it."""


class ThreadSubstrate:
    """Runs the tasks of a level side by side."""

    spark = None
    grows = False
    held: HeldDeltas | None = None

    def __init__(self, topology: Topology, store: Store, threads: int) -> None:
        self.parallelism = threads
        self._topology, self._store = topology, store
        self._marks = Marks(store)
        self._reader = self._runtime()
        self._runtimes: dict[tuple[int, int], Runtime] = {}
        """(level, task) -> what its worker would have."""
        self._pool = ThreadPoolExecutor(8 * threads, thread_name_prefix="task")
        self._look: Callable[[], bool] = lambda: False

    def run(self, order: WorkOrder) -> Sequence[Report]:
        """Runs an epoch; returns the reports of all its tasks."""
        rows = read_all(self._reader, order)
        for level in range(1, self._topology.depth + 1):
            arrived: list[list[Envelope]] = [[] for _ in range(tasks_at(order.plan, level))]
            for row in rows:
                arrived[row.partition].append(row)
            rows = self._level(order, level, arrived)
        return reports_in(rows)

    def lose(self, tasks: Sequence[int]) -> None:
        """These workers die: what they had in memory is gone."""
        for at in [at for at in self._runtimes if at[1] in tasks]:
            del self._runtimes[at]

    def give_up_when(self, look: Callable[[], bool]) -> None:
        """`look` says whether the job that runs is to be given up."""
        self._look = look

    def gone(self) -> str | None:
        """Never: this process is running."""
        return None

    def used(self) -> StoreUse:
        """Nothing: tasks use the store of the driver, which counts for itself."""
        return StoreUse()

    def notes(self) -> Sequence[SlotNote]:
        """What was measured in slots since the last call."""
        every = [self._reader, *self._runtimes.values()]
        return [note for runtime in every for note in runtime.take_notes()]

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _level(
        self, order: WorkOrder, level: int, arrived: Sequence[Sequence[Envelope]]
    ) -> list[Envelope]:
        threads: dict[int, int] = {}

        def one(number: int) -> list[Envelope]:
            threads[number] = threading.get_ident()
            runtime = self._runtimes.get((level, number))
            if runtime is None:
                runtime = self._runtimes[level, number] = self._runtime()
            return list(run_level(runtime, order, level, number, list(arrived[number])))

        running = [self._pool.submit(one, number) for number in range(len(arrived))]
        self._await(level, running, threads)
        return [row for future in running for row in future.result()]

    def _await(
        self, level: int, running: Sequence[Future[list[Envelope]]], threads: dict[int, int]
    ) -> None:
        left = set(running)
        while left:
            _, left = wait(left, timeout=_LOOK_S)
            if left and self._look():
                slow = [at for at, future in enumerate(running) if future in left]
                for at in slow:
                    _interrupt(threads.get(at))
                # No commit names what they have made, and the next attempt gets new caches.
                wait(left)
                self.lose(slow)
                raise RuntimeError(f"level {level} was given up")

    def _runtime(self) -> Runtime:
        runtime = Runtime(self._topology, self._store, WorkerCache())
        runtime.watched = self._marks.over
        return runtime


def _interrupt(thread: int | None) -> None:
    """Ends the task in a thread at its next step, as Spark kills a task that is cancelled."""
    if thread is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(GivenUp)
        )
