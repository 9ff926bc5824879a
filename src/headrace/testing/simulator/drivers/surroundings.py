"""The events around drivers that run as `headrace run` starts them.

Time passes while they wait; outages begin and end; the lease is damaged; their threads get their
turns; standbys start; readers read the checkpoint; requesters ask things of the pipeline.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.conducted import ConductedLife
from headrace.testing.simulator.drivers.copiers import Copier, StoreCopier
from headrace.testing.simulator.drivers.life import Life
from headrace.testing.simulator.drivers.readers import Reader, Visitor
from headrace.testing.simulator.drivers.requesters import DamagingLife, RequesterLife
from headrace.testing.simulator.drivers.scene import Scene
from headrace.testing.simulator.drivers.state_readers import StateReader
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.leases import Leases
from headrace.testing.simulator.machine.fiber import Fiber

LIVES_MAX = 50
TURNS_MAX = 400


class Schedule(Scene, Protocol):
    """A scene, with the actions that its surroundings need."""

    lives: list[Life]
    leases: Leases

    def start(self, *, standby: bool) -> Life:
        """A driver is started."""

    def new_life(self) -> Life:
        """A driver is started by a person, without a fault."""

    def turn(self, life: Life) -> None:
        """A driver runs until it pauses or ends."""

    def resume(self, life: Life, fiber: Fiber) -> None:
        """One thread of a process runs until it pauses."""

    def time_passes(self, microseconds: int) -> None:
        """Both clocks move on."""


class Surroundings:
    """Everything outside the drivers of one simulation."""

    def __init__(self, schedule: Schedule) -> None:
        self._of = schedule
        self._own = Random(f"{schedule.chance.seed} surroundings")
        self.readers: list[Visitor] = []
        self.state_readers: list[Visitor] = []
        self.requesters: list[RequesterLife] = []
        self._damage = Random(f"{schedule.chance.seed} damaged requests")
        self._damage_left = self._damage.choice((0, 0, 0, 0, 2))
        """How often somebody may still put damage into the queue."""

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
        if self._of.log.commits and self._of.chance.strikes(kinds.STATE_COPIED, "turn"):
            self.readers.append(Copier(self._of, len(self.readers) + 1))
        for reader in self.readers:
            if not reader.fiber.done and self._of.chance.random.random() < reader.haste:
                self._read_on(reader)

    def _read_on(self, visitor: Visitor) -> None:
        self._of.resume(visitor, visitor.fiber)
        if visitor.fiber.done:
            visitor.check_end()

    def everybody(self) -> list[Life]:
        """All processes."""
        return [*self._of.lives, *self.readers, *self.state_readers, *self.requesters]

    def state_readers_run(self) -> None:
        """Starts readers of the state store, and gives them turns (O8)."""
        server, opens = self._of.state_server, self._of.opens
        if server is None or opens is None or not server.tables:
            return
        if self._of.chance.strikes(kinds.READER_OF_STATE_STORE, "turn"):
            number = len(self.state_readers) + 1
            checkpoint = next(iter(server.tables))
            copies = Random(f"{self._of.chance.seed} copies {number}").random() < 0.4
            self.state_readers.append(
                StoreCopier(self._of, number)
                if copies
                else StateReader(self._of, number, opens, checkpoint)
            )
        for reader in self.state_readers:
            if not reader.fiber.done and self._own.random() < reader.haste:
                self._read_on(reader)

    @property
    def is_asked(self) -> bool:
        """Whether requests belong to this schedule."""
        return self._of.chance.is_asked

    def is_supervised(self) -> bool:
        """Whether the next start is that of a program, and not of a person."""
        return self.is_asked and self._own.random() < 0.3

    def requesters_run(self, *, calm: bool = False) -> None:
        """Starts requesters, and gives them turns; somebody always ends a pause at last."""
        if not self.is_asked or self._of.log.away or self._of.outages.is_vanished:
            return
        if self._of.log.length and self._of.chance.strikes(kinds.REQUESTER, "turn"):
            self._comes("")
        if self._of.log.commits and self._of.chance.strikes(kinds.COMPACTION_ASKED, "turn"):
            self._comes("compact")
        if self._damage_left and self._of.log.length and self._damage.random() < 0.1:
            self._damage_left -= 1
            self.requesters.append(DamagingLife(self._of, len(self.requesters) + 1))
        insists = any(r.insists and not r.fiber.done for r in self.requesters)
        if self._of.log.control.paused and not insists and (calm or self._own.random() < 0.05):
            self._comes("resume", insists=True)
        for each in self.requesters:
            due = each.fiber.wakes_at <= self._of.uptime_s()
            if each.fiber.done or not due or (not calm and self._own.random() >= each.haste):
                continue
            each.dies_in -= 1
            if each.dies_in <= 0:
                self._of.chance.note(f"requester {each.number} dies")
                each.kill()
            else:
                self._read_on(each)
        self._of.log.control.check_learnt(self._of.learnt)

    def _comes(self, verb: str, *, insists: bool = False) -> None:
        number = len(self.requesters) + 1
        self.requesters.append(RequesterLife(self._of, number, verb, insists=insists))

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
        self.requesters_run()
        if (
            len(alive) < 3
            and not self._of.log.away
            and self._of.chance.strikes(kinds.STANDBY_DRIVER, "turn")
        ):
            self._of.start(standby=True)

    def readers_end(self) -> None:
        """All readers run to their end without further faults."""
        for reader in (*self.readers, *self.state_readers):
            while not reader.fiber.done:
                self._read_on(reader)

    def lives_end(self) -> None:
        """All drivers run to their end, and then one more, which finds nothing to do.

        A stop that is still in the queue ends that one too; then a person starts the next.
        """
        of = self._of
        for each in self.requesters:
            each.kill()  # what is in the queue is decided, whether or not anybody waits for it
        of.new_life()
        # A leader first: while others had their turns, its own loop would seem to be stuck.
        for life in sorted(of.lives, key=lambda life: not _leads(life)):
            self._ends(life)
        while _goes_on(of.lives[-1]) and len(of.lives) < LIVES_MAX:
            self._ends(of.new_life())
        if not of.lives[-1].finished:
            raise Violation("the last driver did not read all input")

    def _ends(self, life: Life) -> None:
        life.wake(self._of.uptime_s())
        for _ in range(TURNS_MAX):
            if life.fiber.done:
                return
            self._of.turn(life)
            self._of.time_passes(1_000_000)
            self.threads_run()
            self.requesters_run(calm=True)
        raise Violation(f"driver {life.number} does not end")

    def check_requests(self, kept: int) -> None:
        """At the end every request has its answer."""
        if not self.is_asked:
            return
        self._of.log.control.check_learnt(self._of.learnt)
        self._of.log.control.check_answers(kept)


def _leads(life: Life) -> bool:
    return isinstance(life, ConductedLife) and life.leads


def _goes_on(life: Life) -> bool:
    """Whether a person starts the next one: it was stopped, or a state store had to be repaired."""
    return life.refused_copy or (isinstance(life, ConductedLife) and life.reason == "stopped")
