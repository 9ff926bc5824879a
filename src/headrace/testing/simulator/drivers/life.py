"""One life of a simulated driver: from its takeover to its end, its death, or its fencing."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec

from headrace import failpoints
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.setup import Setup
from headrace.errors import (
    EpochFailed,
    Fenced,
    HeadraceError,
    IncompatibleState,
    NondeterministicCode,
    SinkError,
    StoreError,
    UserCodeError,
)
from headrace.model.values.keys import HASH_SPACE
from headrace.plan.decisions.next_step import Finish, Wait
from headrace.plan.elastic.settings import OFF
from headrace.plan.options import Options
from headrace.plan.rings.wanted import Move, Wanted
from headrace.plan.state.applied import SEGMENTS
from headrace.plan.state.choice import StateChoice
from headrace.testing.simulator.checkers.points import POINTS
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.scene import Scene
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.fiber import Fiber, Killed
from headrace.testing.simulator.machine.world import SLOTS_MAX

_DELICATE = (
    "after-merge-copy",
    "after-record-write",
    "before-commit-write",
    "before-claim",
    "after-claim",
    "after-publish",
    "after-high-water",
    "before-collect",
)
"""Failpoints where a driver that dies, or sleeps and wakes, is most dangerous."""

_ONCE = ("before-takeover", "after-takeover")
"""Failpoints that a driver reaches only once."""

_ANYWHERE = tuple(
    name
    for name in failpoints.NAMES
    if name not in (*failpoints.ASKED, *failpoints.OF_STATE_STORES)
)
"""Failpoints that drivers of every schedule reach."""

_CALLS = ("after-intent-write", "after-call", "after-result-write")
"""The same, where hooks call the outside."""

_EXCUSED = (SinkError, StoreError, EpochFailed)
"""Errors with which a driver may stop after faults; the next driver continues."""


STRAGGLER_S = 5.0
"""How much longer than usual a job may take before slow slots are looked for."""


class Life:
    """A driver, the fiber it runs in, and where it will die."""

    kind = "driver"

    def __init__(self, scene: Scene, number: int) -> None:
        chance = scene.chance
        self._scene = scene
        self.number = number
        self.fiber = Fiber(self._run)
        self.strands: list[Fiber] = []
        """The threads beside the main one."""
        self.current = self.fiber
        """The thread that runs while the process has its turn."""
        self.calls = 0
        """How many system calls it has made in this turn."""
        self.asleep = False
        """Whether the whole process was stopped, until it is woken."""
        self.follower: Follower | None = None
        self.finished = False
        self.remembered: set[str] = set()
        """What a process remembers outside of objects: directories known to be durable."""
        self.sleeps = False
        """Whether it was stopped in the middle of something."""
        self.waits_until: int | None = None
        self.refused_copy = False
        """Whether it has refused a state store that was put back to an older copy."""
        self.took_over = False
        """Whether its generation is in the log."""
        self.skew_us = 0
        self._disturbances = chance.disturbances
        if chance.strikes(kinds.CLOCK_JUMPS, "life"):
            self.skew_us = chance.random.randint(-3_600_000_000, 3_600_000_000)
            chance.note(f"driver {number}: its clock is off by {self.skew_us // 1_000_000} s")
        self._dies_at = self._sleeps_at = ""
        self._dies_in: int | None = None
        self._arrivals: Counter[str] = Counter()
        """Failpoint -> how many more arrivals there until it dies or sleeps."""
        if chance.strikes(kinds.DRIVER_DIES, "life"):
            if chance.random.random() < 0.7:
                self._dies_at = self._some_failpoint(chance)
            else:
                self._dies_in = chance.random.randint(1, 400)
        self.power_fails_in: int | None = None
        """After how many more system calls the power fails."""
        self.took_the_power = False
        if chance.strikes(kinds.POWER_FAILS, "life"):
            self.power_fails_in = chance.random.randint(1, 400)
        if chance.strikes(kinds.DRIVER_PAUSES, "life"):
            self._sleeps_at = self._some_failpoint(chance)

    def _some_failpoint(self, chance: Chance) -> str:
        names: tuple[str, ...] = _ANYWHERE if chance.random.random() < 0.5 else _DELICATE
        if self._scene.topology.uses_services() and chance.random.random() < 0.5:
            names = _CALLS
        if self._scene.opens is not None and chance.random.random() < 0.4:
            names = failpoints.OF_STATE_STORES
        name = chance.choice(names)
        times = chance.random.randint(1, 3)
        self._arrivals[name] = 1 if name in _ONCE else times
        return name

    @property
    def is_zombie(self) -> bool:
        """Whether another driver has taken over since."""
        follower = self.follower
        if follower is None or not follower.has_read:
            return False
        return follower.log.generation < self._scene.log.generation

    @property
    def knows_checkpoint(self) -> bool:
        """Whether it has seen the checkpoint, and so must not create a new one."""
        return self.took_over or (self.follower is not None and bool(self.follower.checkpoint))

    # How it runs ----------------------------------------------------------

    def _run(self) -> None:
        scene = self._scene
        slots = None
        if scene.chance.strikes(kinds.RING_CHANGES, "life"):
            slots = scene.chance.random.randint(1, 4)
        options = self._options(slots)
        setup = Setup(
            scene.topology,
            f"code-{scene.code_version}",
            scene.new_store(),
            scene.substrate,
            options,
            clock=lambda: max(1, scene.now + self.skew_us),
            seeds=lambda: scene.chance.random.getrandbits(63),
            choose_run=scene.tuning.choose_run,
            opens=scene.opens,
        )
        self.follower = follower = Follower(setup)
        self._lead(follower)

    def _options(self, slots: int | None) -> Options:
        balances = kinds.LOAD_MOVES in self._scene.chance.kinds
        policy, scale = self._scene.tuning.elastic if balances else (OFF, None)
        options = Options(
            slots=slots,
            balance=policy,
            scale=scale,
            max_slots=SLOTS_MAX,
            epoch_records=self._scene.epoch_records,
            retain_epochs=self._scene.tuning.retain_epochs,
            background=self._scene.background,
            listens=self._scene.chance.is_asked,
            state=StateChoice(SEGMENTS if self._scene.opens is None else "memory"),
            straggler_s=STRAGGLER_S if kinds.SLOT_SLEEPS in self._scene.chance.kinds else None,
        )
        return self._scene.written.options(options)

    def _lead(self, follower: Follower) -> None:
        """Takes over and steps, without retries: it ends with the first error."""
        scene = self._scene
        driver = follower.take_over()
        while True:
            self.fiber.pause()
            self._change_ring(driver)
            self._change_tasks(driver)
            self._limit_slots(driver)
            try:
                step = driver.step()
            except SinkError:
                scene.substrate.excuse()
                if scene.chance.random.random() < 0.5:
                    continue  # the epoch is committed; it is delivered with the next one
                raise
            if isinstance(step, Finish):
                driver.close()
                self.finished = True
                return
            self.waits_until = step.until or 0 if isinstance(step, Wait) else None

    def _change_ring(self, driver: Driver) -> None:
        """Wants another ring of one computation: a part of it moves, or its slots are others."""
        chance, ledger, tuning = self._scene.chance, driver.ledger, self._scene.tuning
        if not ledger.rings:
            return
        if tuning.moves_back and ledger.announced and tuning.rings.random() < 0.8:
            return  # it would not come if others were always wanted first
        dice = chance.random
        if tuning.rings_left and tuning.rings.random() < (0.8 if tuning.moves_back else 0.45):
            dice = tuning.rings
            tuning.rings_left -= 1
        elif not chance.strikes(kinds.RING_CHANGES, "step"):
            return
        name = dice.choice(sorted(ledger.rings))
        how, wanted = _wanted_back(dice) if tuning.moves_back else _wanted(dice)
        chance.note(f"another ring of {name} is wanted: {how}")
        self._scene.log.load.replaced(name)
        ledger.wanted[name] = wanted

    def _change_tasks(self, driver: Driver) -> None:
        """Deals the slots of the next plan to another number of tasks (J10)."""
        chance = self._scene.chance
        if not chance.strikes(kinds.TASKS_CHANGE, "step"):
            return
        tasks = chance.random.randint(1, 5)
        chance.note(f"slots are dealt to {tasks} tasks")
        driver.settings = msgspec.structs.replace(driver.settings, tasks=tasks)

    def _limit_slots(self, driver: Driver) -> None:
        """Gives slots of the next plans limits at random (P2)."""
        chance = self._scene.chance
        limited: dict[str, int] = {}
        if chance.strikes(kinds.SLOTS_LIMITED, "step"):
            for name, slots in sorted(driver.ledger.slots.items()):
                for slot in sorted({*slots, *range(2)}):
                    limit = chance.choice((None, 0, 0, 1, 1, 2, 4))
                    if limit is not None:
                        limited[f"{name}/{slot}"] = limit
            chance.note(f"slots have limits: {limited}")
        elif driver.settings.limited and self._scene.tuning.limits_stay:
            # Each is at least 1, so that all records run in the end.
            limited = {label: max(1, n) for label, n in driver.settings.limited.items()}
        elif not driver.settings.limited or chance.random.random() < 0.6:
            return  # limits stay for a while
        driver.settings = msgspec.structs.replace(driver.settings, limited=limited)

    def pause(self) -> None:
        """The running thread gives its turn back."""
        self.current.pause()

    def wake(self, uptime_s: float) -> None:
        """The process continues after it was stopped."""
        self.asleep = False

    def refused(self) -> None:
        """This driver was refused by an outage."""

    def slowed(self, seconds: float) -> None:
        """The running thread waits for a slow answer."""
        self.current.wakes_at = self._scene.uptime_s() + seconds
        self.pause()

    def kill(self) -> None:
        """The process dies, with all its threads."""
        for fiber in (self.fiber, *self.strands):
            self.current = fiber
            fiber.kill()
        self.current = self.fiber

    # Its end --------------------------------------------------------------

    def reached(self, failpoint: str) -> bool:
        """The driver is at a failpoint and may die there. Returns whether it sleeps there."""
        self.took_over |= failpoint == "after-takeover"
        if failpoint not in (self._dies_at, self._sleeps_at):
            return False
        self._arrivals[failpoint] -= 1
        if self._arrivals[failpoint]:
            return False
        if failpoint == self._dies_at:
            self.die(failpoint)
        return True

    def called(self, what: str) -> None:
        """The driver makes a system call and may die there."""
        if self._dies_in is not None:
            self._dies_in -= 1
            if self._dies_in <= 0:
                self.die(what)
        if self.power_fails_in is not None:
            self.power_fails_in -= 1
            if self.power_fails_in <= 0:
                self.took_the_power = True
                self.die(what)

    def die(self, where: str) -> None:
        """The process dies."""
        self._scene.chance.note(f"driver {self.number} dies at {where}")
        self.fiber.dead = True
        raise Killed

    def check_end(self) -> None:
        """Raises Violation where it ended in a way that is not allowed."""
        error = self.fiber.error
        scene = self._scene
        if error is None or isinstance(error, Killed):
            return
        if isinstance(error, Violation):
            raise error
        scene.chance.note(f"driver {self.number} stops: {type(error).__name__}: {str(error)[:160]}")
        if isinstance(error, Fenced):
            # A driver that was overtaken during its start may find that the log was trimmed.
            if not self.is_zombie and self.took_over:
                raise Violation(f"driver {self.number} was fenced, but none took over: {error}")
            return
        if isinstance(error, HeadraceError) and self.is_zombie:
            return
        stops_with = getattr(scene.workload, "stops_with", "")
        if stops_with and isinstance(error, UserCodeError) and stops_with in str(error):
            return  # intended by its hooks; the next start must get past it
        dice = not getattr(scene.workload, "repeats", True) and scene.written.is_on
        if dice and isinstance(error, NondeterministicCode):
            scene.stopped = True  # lost state cannot be made again: it must stop, never differ
            return
        if self._excused(error) or self._refused_older_copy(error):
            return
        raise Violation(f"driver {self.number} stopped: {type(error).__name__}: {error}") from error

    def _refused_older_copy(self, error: BaseException) -> bool:
        """Whether it refuses a state store that was put back (O6); then a person repairs that."""
        server = self._scene.state_server
        refused = isinstance(error, IncompatibleState) and "older copy" in str(error)
        if server is None or not refused or not server.older:
            return False
        server.repaired()
        self.refused_copy = True
        return True

    def _excused(self, error: BaseException) -> bool:
        disturbed = self._scene.chance.disturbances > self._disturbances
        return isinstance(error, _EXCUSED) and disturbed


_BLOCKS = 8
"""Into how many intervals rings are cut where these move back and forth."""


def _wanted_back(dice: Random) -> tuple[str, Wanted]:
    """Moves of some of few intervals between three slots, so that many of them come back.

    Sometimes one slot gets everything: the others end, and begin again later.
    """
    size = HASH_SPACE // _BLOCKS
    if dice.random() < 0.15:
        to = dice.randrange(3)
        return f"everything goes to {to}", Wanted(moves=(Move(0, HASH_SPACE - 1, to),))
    moves = []
    for _ in range(dice.randint(1, 3)):
        first = dice.randrange(_BLOCKS)
        last = min(_BLOCKS - 1, first + dice.choice((0, 0, 1, 3)))
        moves.append(Move(first * size, (last + 1) * size - 1, dice.randrange(3)))
    told = ", ".join(f"{m.low // size} to {m.last // size} go to {m.to}" for m in moves)
    return f"eighths {told}", Wanted(moves=tuple(moves))


def _wanted(dice: Random) -> tuple[str, Wanted]:
    """Another number of slots, or some moves of intervals that begin and end at points."""
    if dice.random() < 0.3:
        slots = dice.randint(1, 4)
        return f"{slots} slots", Wanted(slots=slots)
    step = HASH_SPACE // POINTS
    moves = []
    for _ in range(dice.randint(1, 3)):
        first = dice.randrange(POINTS)
        last = dice.randrange(first, min(POINTS, first + dice.choice((4, 16, 64))))
        moves.append(Move(first * step, (last + 1) * step - 1, dice.randint(0, 3)))
    told = ", ".join(f"{m.low // step} to {m.last // step} go to {m.to}" for m in moves)
    return told, Wanted(moves=tuple(moves))
