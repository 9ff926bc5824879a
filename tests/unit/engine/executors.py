"""Executors with disks of their own, in this process: slots have a home, and homes may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.unit.engine.support import Clock, Local, follower_of

from headrace.engine.driver.driver import Driver
from headrace.engine.driver.local import read_all, reports_in
from headrace.engine.upkeep import held
from headrace.engine.upkeep.fragments import FragmentJob
from headrace.log.holding import HoldingStore
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Report, WorkOrder
from headrace.state.cache import WorkerCache
from headrace.store.disk import DiskStore
from headrace.store.store import Store
from headrace.worker.exchange.envelope import Envelope, tasks_at
from headrace.worker.level import run_level
from headrace.worker.runtime import Runtime


class Executors(Local):
    """A substrate whose tasks run on executors; it is also what the driver knows of their disks."""

    def __init__(self, topology: Topology, store: Store, where: Path, count: int = 2) -> None:
        super().__init__(topology, store)
        self.topology, self.far, self.where = topology, store, where
        self.bytes_max = 10**9
        self.started = 0
        self.moves = False
        self.tasks_now = 0
        self.swapped = 0
        """How many jobs of the keeper run on the wrong executors."""
        self.blind = False
        """Nobody can say what is missing."""
        self.made = self.looks = 0
        self.homes: list[Runtime] = []
        for _ in range(count):
            self.homes.append(self._new())
        self.held = self

    def _new(self) -> Runtime:
        self.started += 1
        disk = DiskStore(self.where / f"executor-{self.started}", self.far.system)
        store = HoldingStore(self.far, disk, self.bytes_max)
        return Runtime(self.topology, store, WorkerCache())

    def full(self) -> None:
        """The disks of all executors are full from now on."""
        for home in self.homes:
            home.store._bytes_max = 0

    def lose(self, *executors: int) -> None:
        """Executors die with their disks; others take their places."""
        for number in executors:
            self.homes[number] = self._new()

    def names_on(self, number: int) -> list[str]:
        disk = self.homes[number].store.disk
        return [found.name for found in disk.walk("state")]

    def _home(self, task: int) -> Runtime:
        return self.homes[task % len(self.homes)]

    def run(self, task: WorkOrder) -> Sequence[Report]:
        self.tasks.append(task)
        self.tasks_now = task.plan.tasks
        rows: list[Envelope] = read_all(self.runtime, task)
        for level in range(1, self.topology.depth + 1):
            arrived: list[list[Envelope]] = [[] for _ in range(tasks_at(task.plan, level))]
            for row in rows:
                arrived[row.partition].append(row)
            rows = []
            for number, received in enumerate(arrived):
                home = self._home(number)
                rows += run_level(home, task, level, number, received)
                home.store.release(task.held_from)
        reports = reports_in(rows)
        return reports if self.disturb is None else self.disturb(task, reports)

    # What the keeper asks -------------------------------------------------

    def _of_slot(self, slot: int) -> Store:
        task = slot % (self.tasks_now or 2)
        return self._home(task + (self.swapped > 0)).store

    def make(self, jobs: Sequence[FragmentJob]) -> Sequence[Any]:
        self.made += 1
        found = [
            held.make(self._of_slot(job.slot), number, job).outcome(job)
            for number, job in enumerate(jobs)
        ]
        self.swapped -= self.swapped > 0
        return found

    def missing(self, segments: Any) -> set[str]:
        self.looks += 1
        if self.blind:
            return set()
        return {
            name
            for slot, names in segments.items()
            for name in held.missing(self._of_slot(slot), names)
        }


def on_executors(
    topology: Topology, store: Store, where: Path, *, count: int = 2, **options: Any
) -> Driver:
    """A driver that has taken over, whose tasks run on new executors."""
    follower = follower_of(topology, store, clock=options.pop("clock", Clock()), **options)
    substrate = Executors(topology, store, where, count)
    object.__setattr__(follower.setup, "substrate", substrate)
    follower.substrate = substrate
    return follower.take_over()
