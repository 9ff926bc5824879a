"""Deliberate bugs in control through the store: each a clause of section I taken out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from headrace.control.queue import RequestQueue
from headrace.control.requester import Requester
from headrace.engine.driver import control as control_module
from headrace.engine.driver import follower as follower_module
from headrace.engine.driver.control import Controller
from headrace.engine.history import recovery
from headrace.engine.leading import standby
from headrace.errors import StoreError
from headrace.log import paths
from headrace.plan.control import ASKED, STOPPED, Answer, ControlState, answer_of
from headrace.plan.decisions import effects
from headrace.plan.decisions.control import Damage

__all__ = [
    "answers_come_before_their_entry",
    "commands_have_no_ids",
    "damage_blocks_the_queue",
    "expiry_is_judged_by_each_leader",
    "foreign_answers_are_believed",
    "foreign_names_are_a_reason_to_move_on",
    "new_leaders_answer_only_what_they_decide",
    "pauses_end_with_their_leader",
    "requests_are_a_heap",
    "savepoints_keep_no_files",
    "silence_means_expired",
    "standbys_go_on_from_a_stop",
    "starts_go_on_from_a_stop_that_is_not_complete",
    "stops_are_in_memory",
    "unsettled_requests_move_on",
]

ASKS, STANDBY_DRIVER, RIVAL = "requester", "standby driver", "rival driver"
DIES, FAILS, CLOCKS, PAUSES = "driver dies", "disk fails", "clock jumps", "driver pauses"
NEEDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(__all__, (ASKS,)),
    "answers_come_before_their_entry": (ASKS, DIES),
    "expiry_is_judged_by_each_leader": (ASKS, CLOCKS, DIES),
    "new_leaders_answer_only_what_they_decide": (ASKS, DIES),
    "pauses_end_with_their_leader": (ASKS, RIVAL),
    "standbys_go_on_from_a_stop": (ASKS, STANDBY_DRIVER, DIES),
    "starts_go_on_from_a_stop_that_is_not_complete": (ASKS, DIES),
    "unsettled_requests_move_on": (ASKS, FAILS),
}
"""Mutation -> kinds without which no schedule can find it; others would only take time."""


def requests_are_a_heap() -> AbstractContextManager[Any]:
    """I1: requests are names in a directory, and a leader takes whichever it finds."""

    def read_from(self: RequestQueue, position: int, count: int) -> list[Any]:
        found = [int(name) for name in self.names() if name.isdigit()]
        return [each for at in found[:count] if (each := self.read(at)) is not None]

    return patch.object(RequestQueue, "read_from", read_from)


def damage_blocks_the_queue() -> AbstractContextManager[Any]:
    """I2: a leader waits until somebody puts a request where it finds damage."""
    read_from = RequestQueue.read_from

    def careful(self: RequestQueue, position: int, count: int) -> list[Any]:
        found = read_from(self, position, count)
        good = [not isinstance(each, Damage) for each in found]
        return found if all(good) else found[: good.index(False)]

    return patch.object(RequestQueue, "read_from", careful)


def unsettled_requests_move_on() -> AbstractContextManager[Any]:
    """I1: a put that failed and cannot be seen is tried at the next position."""

    def settle(self: Requester, asked: Any, data: bytes, give_up: Any) -> Any:
        while True:
            failure = self._put(asked.position, data)
            try:
                found = self._queue.read(asked.position)
            except (OSError, StoreError):
                found = None
            if getattr(found, "nonce", None) == asked.request.nonce:
                return asked
            asked.position += 1
            if failure is not None and give_up():
                raise StoreError("given up")
            self._pause.wait(0.2)

    return patch.object(Requester, "_settle", settle)


def foreign_names_are_a_reason_to_move_on() -> AbstractContextManager[Any]:
    """I1: a requester that finds another's request does not look whether its own was decided."""

    def settle(self: Requester, asked: Any, data: bytes, give_up: Any) -> Any:
        while True:
            self._put(asked.position, data)
            try:
                found = self._queue.read(asked.position)
                if getattr(found, "nonce", None) == asked.request.nonce:
                    return asked
                if found is not None:
                    asked.position += 1
                    continue
                if self._is_decided(asked):
                    return asked
            except (OSError, StoreError):
                if give_up():
                    raise
            self._pause.wait(0.2)

    return patch.object(Requester, "_settle", settle)


@contextmanager
def answers_come_before_their_entry() -> Iterator[None]:
    """I4: a requester learns a verdict before the log has it."""
    append, ride = Controller._append, Controller.ride

    def hasty(self: Controller, body: Any) -> None:
        for outcome in body.outcomes:
            if outcome.position:
                self._queue.put_answer(answer_of(outcome))
        append(self, body)

    def hasty_ride(self: Controller) -> Any:
        found = ride(self)
        for outcome in found:
            self._queue.put_answer(answer_of(outcome))
        return found

    with patch.object(Controller, "_append", hasty), patch.object(Controller, "ride", hasty_ride):
        yield


def new_leaders_answer_only_what_they_decide() -> AbstractContextManager[Any]:
    """I4: what an earlier leader has decided and not answered is never answered."""
    begin = Controller.begin

    def careless(self: Controller) -> None:
        for outcome in self._history.ledger.control.outcomes:
            self._answered[outcome.position] = "done"
        begin(self)

    return patch.object(Controller, "begin", careless)


def silence_means_expired() -> AbstractContextManager[Any]:
    """I5: a requester that is not answered says that its request has expired."""
    wait = Requester.wait

    def impatient(self: Requester, asked: Any, **options: Any) -> Any:
        wait(self, asked, **options)
        if asked.answer is None:
            r = asked.request
            asked.answer = Answer(asked.position, r.nonce, r.command, r.verb, "expired", 0)
        return asked

    return patch.object(Requester, "wait", impatient)


def foreign_answers_are_believed() -> AbstractContextManager[Any]:
    """I5: the answer at a requester's position is its own, whatever nonce it has."""

    def look(self: Requester, asked: Any) -> None:
        asked.answer = self._queue.answer(asked.position)
        asked.done = self._queue.answer(asked.position, paths.DONE)

    return patch.object(Requester, "_look", look)


@contextmanager
def expiry_is_judged_by_each_leader() -> Iterator[None]:
    """I6: a leader refuses what has expired by its clock, and the log does not say so."""
    settle, ride = Controller.settle, Controller.ride

    def refuse(self: Controller) -> None:
        self._collect()
        ledger = self._history.ledger
        while self._heard:
            at = ledger.control.cursor + 1
            outcome = control_module.decide_request(
                self._heard[0], at, ledger, self._facts, self._clock()
            )
            if outcome.verdict != "expired":
                return
            self._queue.put_answer(answer_of(outcome))
            self._heard.clear()

    def settling(self: Controller) -> bool:
        refuse(self)
        return settle(self)

    def riding(self: Controller) -> Any:
        refuse(self)
        return ride(self)

    with patch.object(Controller, "settle", settling), patch.object(Controller, "ride", riding):
        yield


def commands_have_no_ids() -> AbstractContextManager[Any]:
    """I7: a command that is repeated takes effect again."""
    return patch.object(ControlState, "has_taken", lambda self, command: False)


def stops_are_in_memory() -> AbstractContextManager[Any]:
    """I9: a stop is no state of the ledger."""
    return patch.dict(effects.EFFECTS, {"stop": lambda ledger, outcome: None})


@contextmanager
def standbys_go_on_from_a_stop() -> Iterator[None]:
    """I9: whoever takes over ends the stop."""

    def fold(ledger: Any, body: Any) -> None:
        if ledger.control.stop:
            ledger.control = msgspec.structs.replace(ledger.control, stop="")

    with (
        patch.object(recovery, "fold_generation", fold),
        patch.object(follower_module, "STOPPED", "never"),
        patch.object(standby, "STOPPED", "never"),
    ):
        yield


def starts_go_on_from_a_stop_that_is_not_complete() -> AbstractContextManager[Any]:
    """I9: a start by a person ends a stop that was taken and not completed."""

    def fold(ledger: Any, body: Any) -> None:
        person = bool(body.fingerprint) and not body.by_itself
        if person and ledger.control.stop in (ASKED, STOPPED):
            ledger.control = msgspec.structs.replace(ledger.control, stop="")

    return patch.object(recovery, "fold_generation", fold)


def pauses_end_with_their_leader() -> AbstractContextManager[Any]:
    """I9: whoever takes over goes on, though the pipeline is paused."""
    fold_generation = recovery.fold_generation

    def fold(ledger: Any, body: Any) -> None:
        fold_generation(ledger, body)
        ledger.control = msgspec.structs.replace(ledger.control, paused=False)

    return patch.object(recovery, "fold_generation", fold)


def savepoints_keep_no_files() -> AbstractContextManager[Any]:
    """I10: collection deletes what a savepoint needs."""
    return patch.object(Controller, "saved_files", lambda self: frozenset())
