"""Visitors that ask: they put requests, wait for answers, repeat themselves, sleep and die.

Each notes what it learns; the checker compares that with the log (I5). Their own random numbers
decide what they do, so that schedules without them stay as they are.
"""

from __future__ import annotations

from random import Random
from typing import Any

from headrace.control.queue import RequestQueue
from headrace.control.requester import Requester
from headrace.engine.history.recovery import recover
from headrace.errors import StoreError, Unheard
from headrace.log.epochlog import EpochLog
from headrace.log.identity import read_identity
from headrace.plan.control import ControlRequest, ControlState
from headrace.testing.simulator.checkers.control_checker import DAMAGE
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.readers import Visitor
from headrace.testing.simulator.drivers.scene import Scene

VERBS = (
    *("pause", "resume", "resume", "stop", "stop", "savepoint", "drop-savepoint", "dance"),
    *("rescale", "rescale", "rescale"),
)
_NAMES = ("one", "two")


class RequesterLife(Visitor):
    """A process that asks one thing, perhaps twice."""

    kind = "requester"

    def __init__(self, scene: Scene, number: int, verb: str = "", *, insists: bool = False) -> None:
        """One that `insists` is a person who neither dies nor gives up."""
        super().__init__(scene, number)
        self._own = own = Random(f"{scene.chance.seed} requester {number}")
        self.skew_us = self.skew_us or own.choice((0, 0, -200_000_000, 200_000_000))
        self.insists = insists
        self.verb = verb or own.choice(VERBS)
        self._expires_us = own.choice((1_000_000, 60_000_000, 9_999_000_000))
        self._command = f"c{number}"
        if not self.insists and number > 1 and own.random() < 0.3:
            self._command = (
                f"c{own.randint(1, number - 1)}"  # somebody else's, or its own of before
            )
        self._again = not self.insists and own.random() < 0.3
        self._turns = 1_000_000 if self.insists else own.choice((3, 20, 60, 400))
        """How many looks it takes before it goes away, having learnt nothing."""
        self.dies_in = 1_000_000 if self.insists or own.random() < 0.7 else own.randint(1, 40)
        """After how many turns it dies."""
        self.haste = own.choice((0.2, 0.6, 0.9))

    def _run(self) -> None:
        scene, store = self._scene, self._scene.new_store()
        identity = read_identity(store)
        if identity is None:
            return
        requester = Requester(store, lambda: self._decided(store))
        for attempt in range(2 if self._again else 1):
            nonce = f"r{self.number}.{attempt}"
            expires = scene.now + self.skew_us + self._expires_us
            arguments = self._arguments()
            request = ControlRequest(
                identity.id,
                nonce,
                self._command,
                self.verb,
                arguments,
                None if self.insists else expires,
            )
            scene.chance.note(f"requester {nonce} asks: {self.verb}, command {self._command}")
            self._ask(requester, request)

    def _arguments(self) -> dict[str, Any]:
        if self.verb == "rescale":
            names = sorted(self._scene.topology.keyed)
            return {"computation": self._own.choice(names), "slots": self._own.randint(1, 4)}
        return {"name": self._own.choice(_NAMES)} if "savepoint" in self.verb else {}

    def _ask(self, requester: Requester, request: ControlRequest) -> None:
        left = self._turns

        def goes_away() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        asked = requester.ask(request, give_up=goes_away)
        requester.wait(asked, done=self._own.random() < 0.5, give_up=goes_away)
        if asked.answer is not None:
            self._scene.learnt[request.nonce] = asked.answer.verdict
            self._scene.chance.note(f"requester {request.nonce} learns: {asked.answer.verdict}")

    def _decided(self, store: Any) -> ControlState:
        return recover(EpochLog(store), 1).ledger.control

    def check_end(self) -> None:
        error = self.failure()
        if error is None or isinstance(error, StoreError | OSError | Unheard) or self.was_away:
            return  # a failing disk, an outage, or so long ago that nothing is known
        raise Violation(
            f"requester {self.number}, {self.verb}: {type(error).__name__}: {error}"
        ) from error


class DamagingLife(RequesterLife):
    """A process that puts what is no request at the end of the queue, and waits for nothing."""

    def _run(self) -> None:
        queue = RequestQueue(self._scene.new_store())
        last = max((int(name) for name in queue.names() if name.isdigit()), default=0)
        if queue.put(last + 1, DAMAGE):
            self._scene.chance.note(f"requester {self.number} puts damage at {last + 1}")
