"""A process of a deploy schedule: a start, a standby or a candidate, in the engine's own loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.engine.commands import Remote
from headrace.engine.deploy.candidate import DeployOptions, prepare
from headrace.engine.driver.follower import Follower
from headrace.engine.leading.loop import RunControl, run_loop
from headrace.errors import (
    Fenced,
    HeadraceError,
    IncompatibleState,
    InvalidPipeline,
    Unheard,
    UserCodeError,
)
from headrace.plan.control import DEPLOY
from headrace.plan.deploy.code import arguments_of
from headrace.store.store import Store
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.deploying.codes import MISTAKE
from headrace.testing.simulator.machine.fiber import Fiber, Killed
from headrace.testing.simulator.machine.threads import SimulatedEvent

if TYPE_CHECKING:
    from threading import Event

START, STANDBY, CANDIDATE, REQUESTER = "start", "standby", "candidate", "requester"

_REFUSALS = (
    "the deploy is refused",
    "in force",
    "on probation",
    "has not taken place",
    "does not run",
    "is stopped",
)
"""Words of the refusals that a driver may end with."""


class DeployScene(Protocol):
    """What a process may know of its schedule."""

    def uptime_s(self) -> float: ...
    def follower(self, life: DeployLife) -> Follower: ...
    def new_store(self) -> Store: ...
    def note(self, what: str) -> None: ...
    def generation(self) -> int: ...


class _Turns(SimulatedEvent):
    """Is never set by a person; other processes have their turns between two steps."""

    def __init__(self, life: DeployLife, scene: DeployScene) -> None:
        super().__init__(lambda: life, scene.uptime_s)
        self._life = life

    def is_set(self) -> bool:
        self._life.current.wakes_at = 0.0
        self._life.pause()
        return super().is_set()


class DeployLife:
    """One process, from its start to its end or death."""

    def __init__(
        self,
        scene: DeployScene,
        number: int,
        code: str,
        role: str,
        options: DeployOptions | None = None,
        request: tuple[str, dict[str, Any]] | None = None,
    ) -> None:
        """`request`: the verb and the arguments that a requester asks for."""
        self._scene, self.number, self.code, self.role = scene, number, code, role
        self._deploy, self._request = options, request
        self.fiber = Fiber(self._run if request is None else self._ask)
        self.strands: list[Fiber] = []
        self.current = self.fiber
        self.asleep = False
        self.dies_in: int | None = None
        """After how many more calls it dies."""
        self.dies_at = self.sleeps_at = ""
        """Failpoints."""
        self.remembered: set[str] = set()
        self.follower: Follower | None = None
        self.reason = ""

    def __str__(self) -> str:
        return f"driver {self.number} ({self.role}, code {self.code})"

    def _run(self) -> None:
        self.follower = follower = self._scene.follower(self)
        candidate = ""
        if self._deploy is not None:
            tell = lambda kind, text: self._scene.note(f"{self}: {text}")  # noqa: E731
            wish = prepare(follower, self._deploy, tell)
            remote = Remote(follower.store)
            self._scene.note(f"{self} asks, mode {wish.mode}")
            remote.ask(DEPLOY, arguments_of(wish), done=False, timeout_s=60.0)
            candidate = wish.candidate
        control = RunControl(cast("Event", _Turns(self, self._scene)))
        self.reason = run_loop(follower, control, candidate=candidate).reason
        self._scene.note(f"{self} ends: {self.reason}")

    def _ask(self) -> None:
        """Asks something else of the pipeline, which must go on with its deploy all the same."""
        if self._request is not None:
            verb, arguments = self._request
            Remote(self._scene.new_store()).ask(verb, arguments, done=False, timeout_s=30.0)
            self._scene.note(f"{self}: {verb} {arguments} was taken")

    # As a process ---------------------------------------------------------

    def pause(self) -> None:
        """The running thread gives its turn back."""
        self.current.pause()

    def reached(self, failpoint: str) -> None:
        """It is at a failpoint, where it may die or fall asleep."""
        if failpoint == self.dies_at:
            self.die(failpoint)
        if failpoint == self.sleeps_at:
            self.sleeps_at = ""
            self.sleep(failpoint)

    def called(self, what: str) -> None:
        """It makes a call, where it may die."""
        if self.fiber.dead:
            raise Killed
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in <= 0:
                self.die(what)

    def die(self, where: str) -> None:
        """The process dies."""
        self._scene.note(f"{self} dies at {where}")
        self.fiber.dead = True
        raise Killed

    def sleep(self, where: str) -> None:
        """The whole process stops for a while."""
        self._scene.note(f"{self} sleeps at {where}")
        self.asleep = True
        self.pause()

    def kill(self) -> None:
        """The process dies, with all its threads."""
        for fiber in (self.fiber, *self.strands):
            self.current = fiber
            fiber.kill()
        self.current = self.fiber

    # Its end --------------------------------------------------------------

    def check_end(self) -> None:
        """Raises Violation if it ended in a way that is not allowed."""
        error: Any = self.fiber.error
        if error is None or isinstance(error, Killed):
            return
        if isinstance(error, Violation):
            raise error
        self._scene.note(
            f"{self} stops: {type(error).__name__}: {str(error).splitlines()[0][:160]}"
        )
        if isinstance(error, Fenced | Unheard):
            return
        if isinstance(error, UserCodeError) and MISTAKE in str(error):
            return
        told = isinstance(error, IncompatibleState | InvalidPipeline)
        if told and any(words in str(error) for words in _REFUSALS):
            return
        # A driver that was overtaken may miss what others have deleted since.
        overtaken = self.follower is not None and (
            self.follower.log.generation < self._scene.generation()
        )
        if isinstance(error, HeadraceError) and overtaken:
            return
        raise Violation(f"{self} stopped: {type(error).__name__}: {error}") from error
