"""Makes the calls: retries with a timeout and backoff.

Invariant: the outcome of a call is always a determinant, for a failure as well as for an answer.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.causal.journal import IN_DOUBT, UNCERTAIN, TooLate
from headrace.errors import CallUncertain, ServiceError
from headrace.model.services import CallOptions
from headrace.plan.epoch import Determinant
from headrace.system import REAL, System

ANSWER, FAILED = "answer", "failed"


def try_call(
    name: str,
    request: bytes,
    what: str,
    options: CallOptions,
    call: Callable[[Try], bytes],
    *,
    deadline: float | None = None,
    system: System = REAL,
) -> Determinant:
    """Tries a call as often as its options allow. `call` returns its result as bytes.

    If no try was answered, and one may have reached the service, a call that must not repeat is
    uncertain. A call that may repeat, or that certainly had no effect, has failed.
    """
    timeout = options.timeout_us / 1e6
    failure, in_doubt, again = "", False, True
    tries = 0
    for number in range(options.retries + 1):
        if number:
            system.sleep(options.pause_us(number) / 1e6)
        if deadline is not None and system.wall_s() + timeout > deadline:
            if not number:
                raise TooLate
            break
        one, reached = Try(), False
        tries += 1
        try:
            value = _called(call, one, timeout, system)
        except Refusal as refusal:
            if not refusal.later or number == options.retries:
                again = not in_doubt and not (options.doubts and refusal.in_doubt)
                return Determinant(name, request, ANSWER, refusal.value, again=again)
            failure, reached = "the server asked to come again later", refusal.in_doubt
        except Unusable as error:
            failure, again = str(error), not options.doubts
            break
        except (Unreachable, TimeoutError) as error:
            failure, reached = str(error) or f"no answer within {timeout:g} s", one.begun
        except (CallUncertain, *_ANSWER_LOST) as error:
            failure, reached = f"{type(error).__name__}: {error}", True
        except Exception as error:
            failure, reached = f"{type(error).__name__}: {error}", _lost_its_answer(error)
        else:
            return Determinant(name, request, ANSWER, value)
        in_doubt = in_doubt or (options.doubts and reached)
    counted = f" ({tries} tries)" if tries > 1 else ""
    if in_doubt:
        message = f"{what}{counted}: {failure[:3500]}; it {IN_DOUBT}"
        return Determinant(name, request, UNCERTAIN, message=message)
    message = f"{what} failed{counted}: {failure}"[:4000]
    return Determinant(name, request, FAILED, message=message, again=again)


def _called(call: Callable[[Try], bytes], one: Try, timeout_s: float, system: System) -> bytes:
    if not timeout_s:
        return call(one)
    return system.run_within(timeout_s, lambda: call(one), one.leave)


def _lost_its_answer(error: BaseException | None) -> bool:
    """Whether the error of a library means that the answer was lost.

    Then a timeout or a broken connection is among the causes of the error. With
    `raise ... from None` there is no cause, and the call has certainly failed.
    """
    while error is not None:
        if isinstance(error, (TimeoutError, *_ANSWER_LOST)):
            return True
        shown = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or shown
    return False


def raise_failure(outcome: Determinant) -> None:
    """Raises the error of a call whose outcome is not an answer."""
    if outcome.kind == FAILED:
        error = ServiceError(outcome.message)
        error.asked_again = outcome.again
        raise error
    if outcome.kind != ANSWER:
        raise CallUncertain(outcome.message)


class Try:
    """One try of a call: whether it may have reached the service, and whether its caller waits.

    The first of two events decides: the call begins, or the caller stops waiting.
    """

    __slots__ = ("_turn", "begun")

    def __init__(self) -> None:
        self._turn = [True]
        self.begun = False
        """Whether the service may have been reached."""

    def begin(self) -> None:
        """To call just before the service is called. Raises Abandoned if the caller left."""
        if not self.begun:
            try:
                self._turn.pop()
            except IndexError:
                raise Abandoned from None
            self.begun = True

    def leave(self) -> None:
        """The caller stops waiting."""
        try:
            self._turn.pop()
        except IndexError:
            self.begun = True  # the call came first, though it may not have set this yet


class Abandoned(Exception):
    """A try that did not reach the service in time, and will not reach it."""


class Unusable(Exception):
    """An answer that cannot be logged. A retry would not help."""


class Unreachable(Exception):
    """A try that failed. Its message contains nothing that may be a secret."""


class Refusal(Exception):
    """An answer that is not a success."""

    def __init__(self, value: bytes, *, in_doubt: bool, later: bool) -> None:
        """`in_doubt`: it may have had an effect; `later`: a later try may succeed."""
        super().__init__()
        self.value, self.in_doubt, self.later = value, in_doubt, later


_ANSWER_LOST = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
"""Errors of a connection that the server closed: it may have processed the request."""
