"""The events around drivers that run as `headrace run` starts them.

Time passes while they wait; outages begin and end; the lease is damaged; their threads get their
turns; standbys start; readers read the checkpoint.
"""

from __future__ import annotations

from typing import Protocol

from headrace.testing.simulator.drivers.life import Life
from headrace.testing.simulator.drivers.readers import Reader
from headrace.testing.simulator.drivers.scene import Scene
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.leases import Leases
from headrace.testing.simulator.machine.fiber import Fiber


class Schedule(Scene, Protocol):
    """A scene, with the actions that its surroundings need."""

    lives: list[Life]
    leases: Leases

    def start(self, *, standby: bool) -> Life:
        """A driver is started."""

    def resume(self, life: Life, fiber: Fiber) -> None:
        """One thread of a process runs until it pauses."""

    def time_passes(self, microseconds: int) -> None:
        """Both clocks move on."""


class Surroundings:
    """Everything outside the drivers of one simulation."""

    def __init__(self, schedule: Schedule) -> None:
        self._of = schedule
        self.readers: list[Reader] = []

    def due(self, alive: list[Life]) -> Life:
        """A driver that can continue. One that was stopped stays so for a while."""
        stopped = [life for life in alive if life.asleep]
        awake = [life for life in alive if not life.asleep]
        if stopped and (not awake or self._of.chance.random.random() < 0.07):
            life = self._of.chance.choice(stopped)
            life.wake(self._of.uptime_s())
            return life
        due = [life for life in awake if life.fiber.wakes_at <= self._of.uptime_s()]
        return self._of.chance.choice(due or awake)

    def threads_run(self) -> None:
        """Runs the due threads beside drivers' loops; those of a stopped process do not run."""
        for life in [life for life in self._of.lives if life.strands]:
            for fiber in life.strands:
                is_due = fiber.wakes_at <= self._of.uptime_s()
                if is_due and not (life.asleep or fiber.done or life.fiber.done):
                    self._of.resume(life, fiber)

    def _readers_run(self) -> None:
        """Starts readers of the checkpoint, and gives them turns."""
        if self._of.log.commits and self._of.chance.strikes(kinds.READER_FROM_OUTSIDE, "turn"):
            self.readers.append(Reader(self._of, len(self.readers) + 1))
        for reader in self.readers:
            if not reader.fiber.done and self._of.chance.random.random() < reader.haste:
                self._read_on(reader)

    def _read_on(self, reader: Reader) -> None:
        self._of.resume(reader, reader.fiber)
        if reader.fiber.done:
            reader.check_end()

    def goes_on(self) -> None:
        """Lets the surroundings act once, between two turns of drivers."""
        alive = [life for life in self._of.lives if not life.fiber.done]
        awake = [life for life in alive if not life.asleep]
        wakes = [f.wakes_at for life in awake for f in (life.fiber, *life.strands) if not f.done]
        if wakes and len(awake) == len(alive) and min(wakes) > self._of.uptime_s():
            self._of.time_passes(
                int((min(wakes) - self._of.uptime_s()) * 1e6) + 1
            )  # all drivers wait
        self._of.outages.end()
        known = all(life.knows_checkpoint for life in alive)
        mounted = self._of.chance.face == kinds.DISK
        self._of.outages.begin(may_vanish=known and mounted)
        self._of.leases.spoil(alive)
        self.threads_run()
        self._readers_run()
        if (
            len(alive) < 3
            and not self._of.log.away
            and self._of.chance.strikes(kinds.STANDBY_DRIVER, "turn")
        ):
            self._of.start(standby=True)

    def readers_end(self) -> None:
        """All readers run to their end without further faults."""
        for reader in self.readers:
            while not reader.fiber.done:
                self._read_on(reader)
