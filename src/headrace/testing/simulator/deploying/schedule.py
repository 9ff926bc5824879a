"""One schedule of deploys: several codes over one checkpoint, until all input is visible (L).

Drivers die or sleep at entries of the log and anywhere else, code fails at some record, guards are
hasty, two candidates ask at once, and puts are lost, late or unreported. When the faults are over,
an operator starts the code that the log names, and the pipeline must come to its end.
"""

from __future__ import annotations

from random import Random
from typing import Any

from headrace.engine.deploy.candidate import DeployOptions
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.setup import Setup
from headrace.plan.control import RESCALE, ROLLBACK
from headrace.plan.options import Options
from headrace.store.disk import DiskStore
from headrace.store.store import Store
from headrace.testing.simulator.checkers.deploy_checker import OUT, DeployChecker
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.deploying.codes import KEYS, A, AckedSource, B, C, Codes
from headrace.testing.simulator.deploying.drivers import (
    CANDIDATE,
    REQUESTER,
    STANDBY,
    START,
    DeployLife,
)
from headrace.testing.simulator.drivers.substrate import SimulatedSubstrate
from headrace.testing.simulator.drivers.workers import Workers
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.disk import SimulatedDisk
from headrace.testing.simulator.machine.fiber import Fiber
from headrace.testing.simulator.machine.objects import ObjectServer, SimulatedObjectStore
from headrace.testing.simulator.machine.syscalls import Fault, Syscalls
from headrace.testing.simulator.machine.world import SimulatedSystem, Tuning, at_failpoints
from headrace.testing.simulator.workloads.records import stamped
from headrace.testing.simulator.workloads.sink import SimulatedSink

ROOT = "/checkpoint"
START_US = 1_700_000_000_000_000
TURNS_MAX = 1500
CALM_TURNS_MAX = 3000
OPERATORS_MAX = 8
LIVES_MAX = 20
REQUESTS_MAX = 6
_OF_LEADERS = ("before-handover-write", "after-handover-write")
_OF_CANDIDATES = ("after-takeover", "before-confirm-write", "before-confirm-write")
_AT_ENTRIES = (
    *_OF_LEADERS,
    "before-confirm-write",
    "before-takeover",
    "after-takeover",
    "before-commit-write",
    "after-commit-write",
    "before-delivery",
    "after-publish",
    "before-collect",
    "before-plan-write",
)


class Deploys:
    """The state of one schedule."""

    def __init__(self, chance: Chance) -> None:
        self.chance, self.random = chance, chance.random
        count = self.random.randint(20, 60)
        self._count = count
        self._records = stamped(self.random, count, lambda i, at: {"n": i, "at": at})
        self._shown = dict.fromkeys(self._records, 0)
        self._share = 0.0
        """Which part of the input may have arrived by now."""
        self._codes = Codes(self.random, count)
        self._tuning = Tuning(chance)
        self.disk = SimulatedDisk()
        self._now, self._uptime = START_US, 0
        files = Syscalls(self.disk, self._gate, lambda: self._now / 1e6)
        files.remembered = lambda: self._running.remembered if self._running else set()
        self.system = SimulatedSystem(files, chance, lambda: self._now / 1e6, self._tuning.limits)
        self.system.uptime, self.system.running = self.uptime_s, lambda: self._running
        self.system.on_sleep = self._naps
        self._server = ObjectServer(self.disk, lambda: self._now / 1e6)
        entries = self._tuning.limits.log_directory_entries
        self.log = DeployChecker(self.disk, ROOT, entries)
        self._running: DeployLife | None = None
        self.lives: list[DeployLife] = []
        self._sources: list[AckedSource] = []
        self._faults = True
        self._asked = 0
        self._lease_s = self.random.uniform(2, 6)
        self._patience_s = self.random.choice((1.0, 5.0, 30.0))
        """How long guards wait: with the first they are hasty."""
        self._haste = self.random.choice((0.003, 0.01, 0.03))
        self._epoch_records = self.random.randint(1, 3)
        self._wakes = self.random.choice((0.01, 0.03, 0.1))
        """The probability that a process that sleeps is woken in a turn."""
        self._seldom = Random(f"{chance.seed} confirmations")
        """Decides who dies before it confirms: few processes come so far."""

    def run(self) -> None:
        """Runs the schedule; raises Violation where a promise was broken."""
        with at_failpoints(self._reached):
            try:
                self._busy()
                self._calm()
            finally:
                for life in self.lives:
                    self._kill(life)
        self.log.check_end(self._count, KEYS)

    # The course of a schedule ---------------------------------------------

    def _busy(self) -> None:
        self._start(A, START)
        for _ in range(self.random.randint(0, 2)):
            self._start(A, STANDBY)
        self._turns(self.random.randint(20, 120), 0.2)
        self._start(B, CANDIDATE)
        self._turns(self.random.randint(10, 300), 0.5)
        if self.random.random() < 0.5:
            self._start(C, CANDIDATE)
            self._turns(self.random.randint(50, 300), 0.7)
        if self.random.random() < 0.5:
            self._start(self.random.choice((A, B, C)), CANDIDATE)
            self._turns(self.random.randint(50, 300), 0.9)

    def _calm(self) -> None:
        """Without faults, whoever is started with the code in force brings it to its end."""
        self._faults = False
        for life in self.lives:
            life.dies_in, life.dies_at, life.sleeps_at, life.asleep = None, "", "", False
        while self.system.files.late or self._server.late:
            self._land()
        for _ in range(OPERATORS_MAX):
            self._turns(CALM_TURNS_MAX, 1.0, until_all_end=True)
            self.log.catch_up()
            if self.log.probation is None and len(self.log.look()) == self._count:
                return
            self._start(self.log.in_force, START)
        raise Violation(f"{OPERATORS_MAX} operators did not bring it to its end")

    def _start(self, code: str, role: str) -> DeployLife:
        options = None
        if role == CANDIDATE:
            options = DeployOptions(
                confirm_after=self.random.choice((1, 2, 3, 4, 5, 50, 50)),
                probation_s=self._patience_s,
                expires_s=self.random.choice((5.0, 60.0, 600.0)),
                tried_epochs=0,
            )
        life = DeployLife(self, len(self.lives) + 1, code, role, options)
        if self._faults and self.random.random() < (0.5 if role == CANDIDATE else 0.3):
            if self.random.random() < 0.6:
                own = _OF_CANDIDATES if role == CANDIDATE else _OF_LEADERS
                names = own if self.random.random() < 0.5 else _AT_ENTRIES
                life.dies_at = self.random.choice(names)
            else:
                life.dies_in = self.random.randint(20, 600)
        if self._faults and self.random.random() < 0.4:
            life.sleeps_at = self.random.choice(_AT_ENTRIES)
        self.note(f"{life} starts")
        self.lives.append(life)
        return life

    def _ask(self) -> None:
        """Somebody asks for another ring, or to take back what is on probation."""
        verb, arguments = ROLLBACK, dict[str, Any]()
        if self.random.random() < 0.8:
            verb, arguments = RESCALE, {"computation": "Stage", "slots": self.random.randint(1, 4)}
        life = DeployLife(self, len(self.lives) + 1, "", REQUESTER, request=(verb, arguments))
        self.note(f"{life} asks: {verb} {arguments}")
        self.lives.append(life)
        self._asked += 1

    def _turns(self, count: int, share: float, *, until_all_end: bool = False) -> None:
        """Some turns, while up to this share of the input arrives."""
        self._share = share
        for turn in range(min(count, CALM_TURNS_MAX if until_all_end else TURNS_MAX)):
            alive = [life for life in self.lives if not life.fiber.done]
            if not alive and until_all_end:
                return
            if self._faults and self._lacks_a_driver(alive) and self.random.random() < 0.1:
                alive.append(self._start(self.log.in_force, START))
            if until_all_end and turn == CALM_TURNS_MAX // 2 and self._lacks_a_driver(alive):
                # A candidate waits for a driver to hand over: an operator starts one.
                alive.append(self._start(self.log.in_force, START))
            asks = self._faults and self.log.epoch > 1 and self._asked < REQUESTS_MAX
            if asks and self.random.random() < 0.01:
                self._ask()
            if alive:
                self._turn(alive)
            if turn % 4 == 0:
                self.log.look()
        if until_all_end:
            names = ", ".join(str(life) for life in self.lives if not life.fiber.done)
            raise Violation(f"{names} do not end; {self.log.code} is in force")

    def _lacks_a_driver(self, alive: list[DeployLife]) -> bool:
        """Whether an operator sees that no driver of the code in force, or on probation, runs."""
        found = self.log.probation
        codes = {self.log.in_force, found.code if found is not None else ""}
        return not any(life.code in codes for life in alive) and len(self.lives) < LIVES_MAX

    def _turn(self, alive: list[DeployLife]) -> None:
        awake = [life for life in alive if not life.asleep]
        stopped = [life for life in alive if life.asleep]
        if stopped and (not awake or self.random.random() < self._wakes):
            life = self.random.choice(stopped)
            life.asleep = False
            self.note(f"{life} wakes")
        else:
            due = [life for life in awake if life.fiber.wakes_at <= self.uptime_s()]
            life = self.random.choice(due or awake)
        self._resume(life, life.fiber)
        if life.fiber.done:
            life.check_end()
        self._between(alive)

    def _between(self, alive: list[DeployLife]) -> None:
        self._pass(self.random.randint(1, 400_000))
        awake = [life for life in alive if not life.asleep and not life.fiber.done]
        wakes = [f.wakes_at for life in awake for f in (life.fiber, *life.strands) if not f.done]
        if wakes and min(wakes) > self.uptime_s():
            self._pass(int((min(wakes) - self.uptime_s()) * 1e6) + 1)
        for life in awake:
            for fiber in life.strands:
                is_due = fiber.wakes_at <= self.uptime_s()
                if is_due and not (life.asleep or fiber.done or life.fiber.done):
                    self._resume(life, fiber)
        for split in self._records if self.random.random() < 0.5 or not self._faults else ():
            whole = len(self._records[split])
            more = int(self._share * whole + 0.999) - self._shown[split]
            more = max(0, min(more, self.random.randint(0, 2) if self._faults else whole))
            self._shown[split] += more
            for source in self._sources:
                source.show(split, more)
        if (self.system.files.late or self._server.late) and self.random.random() < 0.3:
            self._land()

    def _resume(self, life: DeployLife, fiber: Fiber) -> None:
        self._running, life.current = life, fiber
        try:
            fiber.resume()
        finally:
            self._running, life.current = None, life.fiber
        if isinstance(fiber.error, Violation):
            raise fiber.error
        if life.fiber.dead or life.fiber.done:
            self._kill(life)
        self.log.catch_up()

    def _kill(self, life: DeployLife) -> None:
        self._running = life
        life.kill()
        self._running = None

    # What processes are given ---------------------------------------------

    def follower(self, life: DeployLife) -> Follower:
        """A follower with code, sinks and workers of its own."""
        sink = SimulatedSink("passed", OUT, self.chance)
        topology, source = self._codes.topology(
            life.code,
            self._records,
            self._shown,
            sink,
            self.log.acknowledged,
            fails=life.role == CANDIDATE,  # who is started later has it corrected
        )
        self._sources.append(source)
        store = self.new_store()
        options = Options(
            slots=2,
            epoch_records=self._epoch_records,
            retain_epochs=self._tuning.retain_epochs,
            background=False,
            standby=life.role == STANDBY,
            lease_s=self._lease_s,
            stuck_s=60.0,
            give_up_s=None,
            replace=False,
        )
        workers = Workers(topology, store, self.chance, 1)
        return Follower(
            Setup(
                topology,
                life.code,
                store,
                SimulatedSubstrate(topology, workers, self.chance),
                options,
                clock=lambda: self._now,
                seeds=lambda: self.random.getrandbits(63),
                choose_run=self._tuning.choose_run,
            )
        )

    def new_store(self) -> Store:
        """The checkpoint as a process that has just started sees it."""
        if self.chance.face == kinds.DISK:
            return DiskStore(ROOT, self.system)
        store = SimulatedObjectStore(self._server, ROOT, self.system, self._gate)
        store.pause = self._naps
        return store

    def uptime_s(self) -> float:
        """The monotonic clock."""
        return self._uptime / 1e6

    def note(self, what: str) -> None:
        """Adds a line to the trace."""
        self.chance.note(f"[{self.log.length}] {what}")

    def generation(self) -> int:
        """The last generation in the log."""
        self.log.catch_up()
        return self.log.generation

    # Faults ---------------------------------------------------------------

    def _pass(self, microseconds: int) -> None:
        self._now += microseconds
        self._uptime += microseconds

    def _naps(self, seconds: float) -> None:
        self._pass(int(seconds * 1e6))
        if self._running is not None:
            self._running.pause()

    def _reached(self, failpoint: str) -> None:
        life = self._running
        if life is None:
            return
        self.log.catch_up()  # entries of this turn may be trimmed before it ends
        life.reached(failpoint)
        confirms = self._faults and failpoint == "before-confirm-write"
        if confirms and self._seldom.random() < 0.3:
            life.die(failpoint)
        if self._faults and failpoint == "before-takeover" and self.random.random() < 0.3:
            life.sleep(failpoint)  # what it knows of the log is old when it goes on
            self._running = life

    def _gate(self, call: str, path: str) -> Fault | None:
        """A process makes a call: it may die, sleep or lose its turn, or the call goes wrong."""
        life = self._running
        if life is None:
            return None
        life.called(f"{call} {path}")
        decisive = call in ("link", "put") and ("/log/" in path or "/control/" in path)
        if self.random.random() < (0.3 if decisive else self._haste):
            life.pause()
            self._running = life
            life.called(f"{call} {path}")
        if not self._faults or not decisive:
            return None
        dice = self.random.random()
        if dice < 0.02:
            life.sleep(f"{call} {path}")
            self._running = life
            life.called(f"{call} {path}")
        elif dice < 0.08:
            fault = self.random.choice((Fault.UNREPORTED, Fault.REFUSED, Fault.LATE))
            self.note(f"{life}: {call} {path} {fault.value}")
            return fault
        return None

    def _land(self) -> None:
        if self._server.late:
            what, land = self._server.late.pop(0)
            self.note(f"late, but done: {what}")
            land()
            return
        what, act = self.system.files.late.pop(0)
        self.note(f"late, but done: {what}")
        try:
            act()
        except OSError:
            pass  # another process was first


def deploys_of(seed: int) -> bool:
    """Whether a seed runs a schedule of deploys instead of a workload."""
    return Random(f"{seed} deploys").random() < 0.04
