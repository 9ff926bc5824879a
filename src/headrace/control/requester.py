"""A requester: puts a request into the queue, and waits for what the log says about it (I1, I5).

It concludes nothing from silence and nothing from its own clock. What it may believe:

- an answer, or an outcome in the log, with its own nonce: that is what became of its request;
- an answer, or a kept outcome, of its position with another nonce: its request was not heard, and
  only then is it put again, at a later position, with the same nonce and command.

Everything else means that it is not known. It may die at any time: its request then is in the
queue, or is not, and is decided once in either case.

It is given what the log says (`decided`), and knows nothing of leases or drivers.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.control.queue import RequestQueue
from headrace.control.request import encode_request
from headrace.errors import StoreError, Unheard
from headrace.log import paths
from headrace.plan.control import Answer, ControlRequest, ControlState, answer_of, done_of
from headrace.store.store import Store

LOOK_S = 0.2
"""How often it looks for an answer."""
LOG_EVERY_S = 2.0
"""How often it reads the log as well, in case that an answer was lost."""


class QueuedRequest(msgspec.Struct):
    """A request that is in the queue."""

    request: ControlRequest
    position: int
    answer: Answer | None = None
    """The answer to it, once it is known."""
    done: Answer | None = None
    """The second answer, once the effect is complete."""


class Requester:
    """Asks one thing after another of the pipeline on a checkpoint."""

    def __init__(self, store: Store, decided: Callable[[], ControlState]) -> None:
        """`decided` reads what the log says about requests."""
        self._store = store
        self._queue = RequestQueue(store)
        self._decided = decided
        self._pause = store.system.event()

    def ask(
        self, request: ControlRequest, *, give_up: Callable[[], bool] = lambda: False
    ) -> QueuedRequest:
        """Puts a request at the end of the queue, and returns when it is known to be in it.

        `give_up` is asked while the store does not answer: StoreError if it says so; the outcome
        of the put is unknown then.
        """
        data = encode_request(request)
        self._queue.make()
        first = max(self._queue.last(), self._decided().cursor) + 1
        return self._settle(QueuedRequest(request, first), data, give_up)

    def _settle(
        self, asked: QueuedRequest, data: bytes, give_up: Callable[[], bool]
    ) -> QueuedRequest:
        """Puts at the next position until the request is in; nothing is left unsettled (I1)."""
        while True:
            failure = self._put(asked.position, data)
            try:
                position, found = asked.position, self._queue.read(asked.position)
                if isinstance(found, ControlRequest) and found.nonce == asked.request.nonce:
                    return asked
                # Its own may have been decided and trimmed, and another put there since.
                if self._is_decided(asked):
                    return asked
                if asked.position != position:
                    continue
                if found is not None:
                    asked.position += 1
                    continue
            except (OSError, StoreError) as error:
                failure = error
            if failure is not None and give_up():
                raise StoreError(
                    f"request {asked.position} could not be put, or its put was not answered: "
                    f"{failure}"
                )
            self._pause.wait(LOOK_S)

    def _put(self, position: int, data: bytes) -> Exception | None:
        try:
            self._queue.put(position, data)
        except (OSError, StoreError) as error:
            return error  # its outcome is unknown: it is read back
        return None

    def _is_decided(self, asked: QueuedRequest) -> bool:
        """Whether its own request was decided; moves on where another one was at its position."""
        answer = self._queue.answer(asked.position)
        if answer is None:
            return self._in_log(asked)
        if answer.nonce == asked.request.nonce:
            asked.answer = answer
            return True
        asked.position += 1
        return False

    def _in_log(self, asked: QueuedRequest) -> bool:
        """The same, by what the log says."""
        known = self._decided()
        if known.cursor < asked.position:
            return False
        mine = [each for each in known.outcomes if each.nonce == asked.request.nonce]
        if mine:
            asked.position, asked.answer = mine[-1].position, answer_of(mine[-1])
            asked.done = done_of(mine[-1]) if mine[-1].done else None
            return True
        if known.at(asked.position) is None:
            raise Unheard(
                f"request {asked.position} ({asked.request.verb}) was decided so long ago that its "
                "outcome is not known any more: look at the pipeline, and ask again if needed"
            )
        asked.position = known.cursor + 1
        return False

    def wait(
        self,
        asked: QueuedRequest,
        *,
        done: bool = False,
        give_up: Callable[[], bool] = lambda: False,
    ) -> QueuedRequest:
        """Waits for the answer, or with `done` for the second one too.

        It returns without one when `give_up` says so: then nothing is known, and the request may
        still be taken.
        """
        looked = self._store.system.uptime_s()
        while not self._is_over(asked, done) and not give_up():
            now = self._store.system.uptime_s()
            try:
                position = asked.position
                self._look(asked)
                if not self._is_over(asked, done) and now - looked >= LOG_EVERY_S:
                    looked = now
                    self._in_log(asked)
                if asked.position != position and asked.answer is None:
                    self._settle(asked, encode_request(asked.request), give_up)
                    continue
            except (OSError, StoreError):
                pass  # The store is unavailable: what is asked stays asked.
            if not self._is_over(asked, done):
                self._pause.wait(LOOK_S)
        return asked

    def _is_over(self, asked: QueuedRequest, done: bool) -> bool:
        answer = asked.answer
        waits = done and answer is not None and answer.verdict == "taken" and asked.done is None
        return answer is not None and not waits

    def _look(self, asked: QueuedRequest) -> None:
        """Reads the answers at its position; one with another nonce means: not heard."""
        if asked.answer is None:
            answer = self._queue.answer(asked.position)
            if answer is None:
                return
            if answer.nonce != asked.request.nonce:
                asked.position += 1
                return
            asked.answer = answer
        if asked.done is None:
            done = self._queue.answer(asked.position, paths.DONE)
            if done is not None and done.nonce == asked.request.nonce:
                asked.done = done
