"""Schedules with a checkpoint interval: what is only written may vanish, or be torn (M).

An executor that dies takes its disk along; a power loss tears what was not synced. Both are files
of the state that were never synced: the disk knows which. Each driver has an interval of its own,
in epochs or in seconds, or none, and may deliver only what is durable. All of it has dice of its
own, so that schedules without the kind stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from headrace.limits import Limits
from headrace.model.source import Timing
from headrace.plan.interval.cadence import Cadence
from headrace.plan.options import COMMITTED, DURABLE, Options
from headrace.store.store import Store
from headrace.system import System
from headrace.testing.simulator.drivers.executors import SimulatedExecutors
from headrace.testing.simulator.drivers.workers import Workers
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.disk import Directory, File, SimulatedDisk
from headrace.testing.simulator.machine.objects import SimulatedObjectStore
from headrace.testing.simulator.workloads.source import SimulatedSource


class WrittenState:
    """The intervals of a schedule's drivers, and the loss of what they have only written."""

    def __init__(
        self, chance: Chance, disk: SimulatedDisk, root: str, workers: Callable[[], Workers]
    ) -> None:
        """`workers` are lost with their caches, so that a loss is noticed."""
        self._chance, self._disk, self._root = chance, disk, root
        self._workers = workers
        self.dice = Random(f"{chance.seed} interval")
        self.held = kinds.EXECUTORS_LOST in chance.kinds and chance.face == kinds.OBJECTS
        """Whether what is only written lies on executors' own disks."""
        self.executors: SimulatedExecutors | None = None
        self.is_on = kinds.WRITTEN_STATE_LOST in chance.kinds or self.held
        self._deliver = DURABLE if self.dice.random() < 0.2 else COMMITTED
        self.lost = 0
        """How many deltas were lost or torn."""

    def executors_on(self, system: System, far: Callable[[], Store]) -> SimulatedExecutors | None:
        """Executors on whose disks lies what is only written; None where a directory has it."""
        if self.held:
            self.executors = SimulatedExecutors(self._chance, self._disk, system, far)
            self.lost = 1  # from outside nobody reaches these disks
        return self.executors

    def far(self, store: SimulatedObjectStore) -> SimulatedObjectStore:
        """An object store; what is not in it may lie on executors' disks, as readers know."""
        store.is_shared = self.held
        return store

    def limits(self, limits: Limits) -> Limits:
        """Most schedules let nothing ride: what rides is durable with its commit."""
        if not self.is_on:
            return limits
        return msgspec.structs.replace(limits, ride_bytes_max=self.dice.choice((0, 0, 0, 2000)))

    def source(self, timing: Timing, records: Mapping[str, Sequence[Any]]) -> SimulatedSource:
        """A source that forgets what it may, unless somebody replays old epochs."""
        made = SimulatedSource(timing, records)
        made.forgets = self.is_on and kinds.READER_FROM_OUTSIDE not in self._chance.kinds
        return made

    def options(self, options: Options) -> Options:
        """The options of the next driver."""
        if not self.is_on:
            return options
        every = self.dice.choice(
            (Cadence(2), Cadence(3), Cadence(3), Cadence(5), Cadence(None, 3.0), Cadence(1))
        )
        if self.executors is not None and self.dice.random() < 0.4:
            self._lose_executors(range(self.executors.count))
        self._chance.note(
            f"the next driver keeps state every {every}; sinks get it {self._deliver}"
        )
        return msgspec.structs.replace(options, checkpoint_every=every, deliver=self._deliver)

    def lose_perhaps(self) -> bool:
        """Between two turns: files vanish, or are torn; returns whether the power fails, too."""
        if not self.is_on:
            return False
        if self.executors is not None:
            self._lose_executors((), turn=True)
            return False
        if self._chance.strikes(kinds.WRITTEN_STATE_LOST, "turn"):
            self._lose()
        return self._chance.strikes(kinds.WRITTEN_STATE_LOST, "power")

    def after_power_loss(self) -> None:
        """Workers had their caches in memory."""
        if self.is_on:
            self._workers().lose_all()

    def _lose_executors(self, numbers: Sequence[int], *, turn: bool = False) -> None:
        """Executors are lost with their disks, and with their workers."""
        if self.executors is not None:
            lost = self.executors.turn() if turn else self.executors.lose(numbers)
            for number in lost:
                self._workers().lose_executor(number)

    def _lose(self) -> None:
        at_risk = self._unsynced(f"{self._root}/state")
        share = self.dice.choice((0.3, 0.7, 1.0))
        lost = 0
        for path, file in at_risk:
            if self.dice.random() >= share:
                continue
            lost += 1
            if self.dice.random() < 0.7:
                self._disk.remove(path)
            else:
                file.data = file.data[: self.dice.randint(0, len(file.data))]
        self.lost += lost
        self._workers().lose_all()
        self._chance.note(f"executors are lost with their disks: {lost} of {len(at_risk)} deltas")

    def _unsynced(self, path: str) -> list[tuple[str, File]]:
        home = self._disk.find(path)
        found: list[tuple[str, File]] = []
        if isinstance(home, Directory):
            for name in sorted(home.names):
                node = home.names[name]
                if isinstance(node, Directory):
                    found += self._unsynced(f"{path}/{name}")
                elif node.synced is None and not name.startswith("."):
                    found.append((f"{path}/{name}", node))
        return found
