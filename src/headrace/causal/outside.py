"""The calls themselves: tries with a timeout, and pauses between them.

What comes of a call is always a determinant, a failure as much as an answer.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable

from headrace.causal.journal import TooLate
from headrace.errors import CallUncertain, ServiceError
from headrace.model.services import CallOptions
from headrace.plan.epoch import Determinant

ANSWER, FAILED = "answer", "failed"

_Done = tuple[bytes, BaseException | None]


def tried(
    name: str,
    request: bytes,
    what: str,
    options: CallOptions,
    call: Callable[[], bytes],
    *,
    deadline: float | None = None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Determinant:
    """Tries a call as often as its options allow; `call` gives its result as bytes."""
    timeout = options.timeout_us / 1e6
    failure = ""
    for number in range(options.retries + 1):
        if number:
            sleep((options.backoff_us << (number - 1)) / 1e6)
        if deadline is not None and clock() + timeout > deadline:
            if not number:
                raise TooLate
            break
        try:
            value = _within(timeout, call) if timeout else call()
        except Unfinished as late:
            if number == options.retries:
                return Determinant(name, request, ANSWER, late.value)
            failure = "the server asked to come again later"
        except Unusable as error:
            failure = str(error)
            break
        except Unreachable as error:
            failure = str(error)
        except TimeoutError as error:
            failure = str(error) or f"no answer within {timeout:g} s"
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        else:
            return Determinant(name, request, ANSWER, value)
    tries = f" ({options.retries + 1} tries)" if options.retries else ""
    return Determinant(name, request, FAILED, message=f"{what} failed{tries}: {failure}"[:4000])


def raised(outcome: Determinant) -> None:
    """Raises what a call came to, where it did not come to an answer."""
    if outcome.kind == FAILED:
        raise ServiceError(outcome.message)
    if outcome.kind != ANSWER:
        raise CallUncertain(outcome.message)


class Unusable(Exception):
    """An answer that cannot be logged; no further try would make it so."""


class Unreachable(Exception):
    """A try that failed, told without anything that may be a secret."""


class Unfinished(Exception):
    """An answer that a later try may better."""

    def __init__(self, value: bytes) -> None:
        super().__init__()
        self.value = value


_idle: list[_Helper] = []
"""Threads that wait for a call. A forked process has none of them."""
os.register_at_fork(after_in_child=_idle.clear)


class _Helper(threading.Thread):
    """Makes calls one after another; who waits for one may stop waiting."""

    def __init__(self) -> None:
        super().__init__(name="headrace-call", daemon=True)
        self.inbox: queue.SimpleQueue[tuple[Callable[[], bytes], queue.SimpleQueue[_Done]]] = (
            queue.SimpleQueue()
        )
        self.start()

    def run(self) -> None:
        while True:
            call, answer = self.inbox.get()
            done: _Done
            try:
                done = call(), None
            except BaseException as error:
                done = b"", error
            _idle.append(self)
            answer.put(done)
            del call, answer, done  # while it waits it keeps nothing alive


def _within(timeout: float, call: Callable[[], bytes]) -> bytes:
    """Runs a call in another thread: nothing else bounds a function that hangs.

    The thread of a call that timed out goes on, and its result is not looked at.
    """
    try:
        helper = _idle.pop()
    except IndexError:
        helper = _Helper()
    answer: queue.SimpleQueue[_Done] = queue.SimpleQueue()
    helper.inbox.put((call, answer))
    try:
        value, error = answer.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError(f"no answer within {timeout:g} s") from None
    if error is not None:
        raise error
    return value
