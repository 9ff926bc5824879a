"""Python workers as Spark keeps them: processes with caches that run tasks of any slot.

A worker runs one task at a time; while a task is paused in the middle, its worker is busy and other
workers run the next tasks. Each worker records the hooks that it runs: what was called, for which
key, at what time. A task may die at one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.engine.jobs.order_parts import PartsReader
from headrace.model.record import Record, Timer
from headrace.pipeline.graph.graph import Node
from headrace.pipeline.graph.topology import Topology
from headrace.plan.elastic.load import SlotNote
from headrace.plan.rings.chains import last_epoch
from headrace.plan.rings.classes import SlotBase
from headrace.plan.rings.ring import SlotRecords
from headrace.state.backend import OpenState
from headrace.state.cache import WorkerCache
from headrace.state.slots import OpenSlot
from headrace.store.store import Store
from headrace.testing.simulator.checkers.warmth import Rebuilt
from headrace.testing.simulator.drivers.executors import SimulatedExecutors
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.worker.records.context import HookContext
from headrace.worker.runtime import Live, Runtime


class TaskDied(BaseException):
    """The death of a task. Only the files that it has written so far remain."""


class Hook:
    """One call of user code, in a unit of work."""

    __slots__ = ("at", "computation", "key", "kind", "label", "late", "what")

    def __init__(
        self, computation: str, label: str, key: Any, kind: str, at: int, what: Any, late: bool
    ) -> None:
        self.computation, self.label, self.key, self.kind = computation, label, key, kind
        self.at, self.what, self.late = at, what, late


class _WatchedCache(WorkerCache):
    """The cache of a worker, which notes the slots that it had and has built again."""

    def __init__(self, rebuilt: list[Rebuilt]) -> None:
        super().__init__()
        self._rebuilt = rebuilt

    def open(
        self,
        store: Store,
        checkpoint: str,
        computation: str,
        slot: int,
        base: SlotBase,
        records: SlotRecords,
        *,
        bytes_max: int | None = None,
    ) -> OpenSlot:
        had = self._slots.get((store.location, checkpoint, computation, slot))
        known, built = 0 if had is None else had.epoch, self.slots_built
        opened = super().open(
            store, checkpoint, computation, slot, base, records, bytes_max=bytes_max
        )
        if had is not None and self.slots_built > built:
            self._rebuilt.append(Rebuilt(computation, slot, known, last_epoch(base.chains)))
        return opened


class Worker(Runtime):
    """A worker process: the pipeline, a cache, and a record of the hooks that ran."""

    def __init__(
        self,
        topology: Topology,
        store: Store,
        rebuilt: list[Rebuilt],
        opens: OpenState | None = None,
    ) -> None:
        super().__init__(topology, store, _WatchedCache(rebuilt), opens)
        self.hooks: list[Hook] = []
        self.dies_after: int | None = None
        """After how many more hooks the running task dies."""
        self.busy = False
        self.executor = 0
        self.parts = PartsReader()

    def live(self, node: Node) -> Live:
        found = self._live.get(node.name)
        if found is None:
            found = super().live(node)
            found.object_class = _recording(found, self)
        return found

    def called(self, hook: Hook) -> None:
        """A hook begins."""
        self.hooks.append(hook)
        if self.dies_after is not None:
            if self.dies_after == 0:
                self.dies_after = None
                raise TaskDied
            self.dies_after -= 1


def _recording(live: Live, worker: Worker) -> Any:
    """A subclass of the key objects' class whose hooks first report to the worker."""
    base: Any = live.object_class
    name = live.node.name

    def process_record(self: Any, record: Record[Any], ctx: Any) -> None:
        at, value, late = record.timestamp, record.value, record.late
        worker.called(Hook(name, _label(ctx), record.key, "record", at, value, late))
        base.process_record(self, record, ctx)

    def process_timer(self: Any, timer: Timer, ctx: Any) -> None:
        at, tag = timer.timestamp, timer.tag
        worker.called(Hook(name, _label(ctx), ctx.key, timer.clock, at, tag, False))
        base.process_timer(self, timer, ctx)

    hooks = {"process_record": process_record, "process_timer": process_timer}
    return type(base.__name__, (base,), {**hooks, "__module__": base.__module__})


def _label(ctx: HookContext) -> str:
    """The unit of work whose hook this context serves."""
    return ctx.inside()[0].label


class Workers:
    """The pool of workers."""

    def __init__(
        self,
        topology: Topology,
        store: Store,
        chance: Chance,
        count: int,
        opens: OpenState | None = None,
        executors: SimulatedExecutors | None = None,
    ) -> None:
        """`executors`: those that have disks of their own; None: where a worker is does not
        matter."""
        self._topology, self._store, self._chance = topology, store, chance
        self._opens = opens
        self.executors = executors
        self._rebuilt: list[Rebuilt] = []
        self._pool = [self._cold(number) for number in range(count)]

    def _cold(self, number: int = 0) -> Worker:
        executors = self.executors
        if executors is None:
            return Worker(self._topology, self._store, self._rebuilt, self._opens)
        executor = number % executors.count
        made = Worker(self._topology, executors.store(executor), self._rebuilt, self._opens)
        made.executor = executor
        return made

    def lose_executor(self, executor: int) -> None:
        """The workers of an executor are lost; a task that is running goes on as a zombie's does,
        and its worker is not used again."""
        self._pool = [worker for worker in self._pool if worker.executor != executor]

    def take_rebuilt(self) -> list[Rebuilt]:
        """The slots that workers have built again since the last call."""
        found = list(self._rebuilt)
        self._rebuilt.clear()
        return found

    def take_notes(self) -> list[SlotNote]:
        """The notes of all workers."""
        return [note for worker in self._pool for note in worker.take_notes()]

    def lose_all(self) -> None:
        """Every worker that is free is replaced by a cold one."""
        self._pool = [worker if worker.busy else self._cold() for worker in self._pool]

    @contextmanager
    def taken(self, executor: int | None = None) -> Iterator[Worker]:
        """A free worker, or a new one; of this executor. The worker of a task that dies may die
        too."""
        free = [worker for worker in self._pool if not worker.busy]
        if executor is not None:
            free = [worker for worker in free if worker.executor == executor]
        if self._chance.strikes(kinds.WORKER_LOST, "task") or not free:
            if free:
                self._pool.remove(self._chance.choice(free))
                self._chance.note("a worker is lost; a cold one takes its place")
            free = [self._cold(executor or 0)]
            self._pool += free
        worker = self._chance.choice(free)
        worker.busy, worker.hooks, worker.dies_after = True, [], None
        try:
            yield worker
        except BaseException:
            if self._chance.random.random() < 0.5 and worker in self._pool:
                self._pool.remove(worker)
            raise
        finally:
            worker.busy = False
