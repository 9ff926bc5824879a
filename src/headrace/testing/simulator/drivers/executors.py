"""Executors with disks of their own: deltas lie there if the checkpoint is a URL (M2).

Each slot has a home, which tasks usually run on. Executors are lost with their disks, slots change
their homes, with a warning or without, tasks run elsewhere, and disks refuse. What is asked of the
disks by a keeper may find the wrong executor, or no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from headrace.engine.upkeep import held
from headrace.engine.upkeep.fragments import Fragment, FragmentJob
from headrace.errors import StoreError
from headrace.log.holding import HoldingStore
from headrace.plan.epoch import WorkOrder, holds_deltas
from headrace.store.disk import DiskStore
from headrace.store.store import Store
from headrace.system import System
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.disk import Directory, SimulatedDisk

_ROOM = 10**9


class SimulatedExecutors:
    """All executors of a schedule; it is also what drivers know of their disks."""

    def __init__(
        self, chance: Chance, disk: SimulatedDisk, system: System, far: Callable[[], Store]
    ) -> None:
        """`far` opens the checkpoint, as a process that has just started sees it."""
        self._chance, self._disk, self._system, self._far = chance, disk, system, far
        self.dice = Random(f"{chance.seed} executors")
        self.count = self.dice.randint(2, 3)
        self._shift = 0
        """The homes of tasks: the executor with the number of the task and this."""
        self.moves = False
        self._tasks = 1
        self._stores: list[HoldingStore] = []
        self.lost = 0
        """How many deltas were lost with their executors."""
        for number in range(self.count):
            self._stores.append(self._store(number))

    def store(self, executor: int) -> HoldingStore:
        """The checkpoint as the processes of an executor see it."""
        return self._stores[executor]

    def home(self, task: int) -> int:
        """The executor of a task; sometimes another one has time for it."""
        home = (task + self._shift) % self.count
        if self._chance.strikes(kinds.EXECUTORS_LOST, "task"):
            self._chance.note(f"a task of executor {home} runs elsewhere")
            return (home + 1) % self.count
        return home

    def begins(self, order: WorkOrder) -> None:
        """A job begins; slots that are to move do so if nothing holds them."""
        self._tasks = order.plan.tasks
        if self.moves and not holds_deltas(order):
            self._chance.note("slots have gone to other executors, while nothing lies there")
            self.moves = False
            self._shift += 1

    def ended(self, executor: int, order: WorkOrder) -> None:
        """A task has ended on an executor."""
        self._stores[executor].release(order.held_from)

    def turn(self) -> list[int]:
        """Between two turns of drivers; returns the executors that were lost."""
        if self._chance.strikes(kinds.EXECUTORS_LOST, "move"):
            self.moves = True
        if self._chance.strikes(kinds.EXECUTORS_LOST, "swap"):
            self._chance.note("slots have gone to other executors without a warning")
            self._shift += 1
        if self._chance.strikes(kinds.EXECUTORS_LOST, "disk"):
            number = self.dice.randrange(self.count)
            self._chance.note(f"the disk of executor {number} is full")
            self._stores[number]._bytes_max = 0
        if self._chance.strikes(kinds.EXECUTORS_LOST, "turn"):
            share = self.dice.choice((0.4, 0.4, 1.0))
            return self.lose([n for n in range(self.count) if self.dice.random() < share])
        return []

    def lose(self, numbers: Sequence[int]) -> list[int]:
        """Executors are lost with their disks; others take their places."""
        for number in numbers:
            path = self._path(number)
            home = self._disk.find(path)
            gone = _files(home) if isinstance(home, Directory) else 0
            self.lost += gone
            if isinstance(home, Directory):
                self._disk.remove(path)
            self._stores[number] = self._store(number)
            self._chance.note(f"executor {number} is lost with its disk: {gone} deltas")
        return list(numbers)

    # What drivers ask -----------------------------------------------------

    def make(self, jobs: Sequence[FragmentJob]) -> Sequence[Fragment | Exception]:
        """Makes fragments; some tasks run elsewhere, or are lost."""
        found: list[Fragment | Exception] = []
        for number, job in enumerate(jobs):
            if self._chance.strikes(kinds.EXECUTORS_LOST, "fragment"):
                self._chance.note("the task that makes a fragment is lost")
                found.append(StoreError("the task is lost"))
                continue
            store = self._stores[self.home(job.slot % self._tasks)]
            found.append(held.make(store, number, job).outcome(job))
        return found

    def missing(self, segments: Mapping[int, Sequence[str]]) -> set[str]:
        """Which deltas their homes do not have."""
        if self._chance.strikes(kinds.EXECUTORS_LOST, "look"):
            self._chance.note("nobody says which deltas are lost")
            raise StoreError("the job is lost")
        return {
            name
            for slot, names in segments.items()
            for name in held.missing(self._stores[self.home(slot % self._tasks)], names)
        }

    def _store(self, number: int) -> HoldingStore:
        disk = DiskStore(self._path(number), self._system)
        return HoldingStore(self._far(), disk, _ROOM)

    def _path(self, number: int) -> str:
        return f"/executor-{number}"


def _files(home: Directory) -> int:
    return sum(_files(each) if isinstance(each, Directory) else 1 for each in home.names.values())
