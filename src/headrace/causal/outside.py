"""Makes the calls: retries with a timeout and backoff.

Invariant: the outcome of a call is always a determinant, for a failure as well as for an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from headrace.causal.journal import IN_DOUBT, UNCERTAIN, TooLate
from headrace.errors import CallUncertain, HeadraceError, ServiceError
from headrace.model.services import CallOptions
from headrace.plan.epoch import Determinant
from headrace.system import REAL, System

ANSWER, FAILED = "answer", "failed"

_Given = TypeVar("_Given")


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
    tries = Tries(name, request, what, options)
    for number in range(options.retries + 1):
        if not _may_try(number, options, deadline, system):
            break
        one = Try()
        try:
            value = _called(call, one, timeout, system)
        except Exception as error:
            settled = tries.judge(error, one, last=number == options.retries)
            if settled is not None:
                return settled
        else:
            return Determinant(name, request, ANSWER, value)
    return tries.outcome()


def try_calls(
    asked: Sequence[tuple[str, bytes]],
    what: str,
    options: CallOptions,
    call: Callable[[Sequence[int], Try], Sequence[bytes | Exception]],
    *,
    deadline: float | None = None,
    system: System = REAL,
) -> list[Determinant]:
    """Tries a batch of calls, given as (name, request), as often as its options allow.

    `call` gets the positions of calls and returns for each its result, or an error that is its
    own. If it raises, all of them have failed. Only calls that have failed are tried again.
    """
    timeout = options.timeout_us / 1e6
    tries = [Tries(name, request, what, options) for name, request in asked]
    found: dict[int, Determinant] = {}
    for number in range(options.retries + 1):
        open_ = [i for i in range(len(asked)) if i not in found]
        if not open_ or not _may_try(number, options, deadline, system):
            break
        one, given = Try(), partial(call, open_)
        results: Sequence[bytes | Exception]
        try:
            results = _called(given, one, timeout, system)
        except Exception as error:
            results = [error] * len(open_)
        for i, result in zip(open_, results, strict=True):
            if isinstance(result, Exception):
                settled = tries[i].judge(result, one, last=number == options.retries)
            else:
                settled = Determinant(*asked[i], ANSWER, result)
            if settled is not None:
                found[i] = settled
    return [found[i] if i in found else tries[i].outcome() for i in range(len(asked))]


def _may_try(number: int, options: CallOptions, deadline: float | None, system: System) -> bool:
    """Pauses before a retry; whether there is time for one more try. TooLate before the first."""
    if number:
        system.sleep(options.pause_us(number) / 1e6)
    if deadline is not None and system.wall_s() + options.timeout_us / 1e6 > deadline:
        if not number:
            raise TooLate
        return False
    return True


class Tries:
    """The failed tries of one call, and what they mean for its outcome."""

    __slots__ = ("_again", "_count", "_failure", "_in_doubt", "_name", "_options", "_request",
                 "_what")  # fmt: skip

    def __init__(self, name: str, request: bytes, what: str, options: CallOptions) -> None:
        self._name, self._request = name, request
        self._what, self._options = what, options
        self._failure, self._in_doubt, self._again = "", False, True
        self._count = 0

    def judge(self, error: Exception, one: Try, *, last: bool) -> Determinant | None:
        """Adds a failed try; returns the outcome if no other try may change it."""
        self._count += 1
        doubts = self._options.doubts
        if isinstance(error, Refusal):
            if not error.later or last:
                again = not self._in_doubt and not (doubts and error.in_doubt)
                return Determinant(self._name, self._request, ANSWER, error.value, again=again)
            self._failure, reached = "the server asked to come again later", error.in_doubt
        elif isinstance(error, Unusable):
            self._failure, self._again = str(error), not doubts
            return self.outcome()
        elif isinstance(error, (Unreachable, TimeoutError)):
            timeout = self._options.timeout_us / 1e6
            self._failure = str(error) or f"no answer within {timeout:g} s"
            reached = one.begun
        else:
            self._failure = f"{type(error).__name__}: {error}"
            reached = isinstance(error, CallUncertain) or _lost_its_answer(error)
        self._in_doubt = self._in_doubt or (doubts and reached)
        return None

    def outcome(self) -> Determinant:
        """The outcome if there are no more tries."""
        counted = f" ({self._count} tries)" if self._count > 1 else ""
        if self._in_doubt:
            message = f"{self._what}{counted}: {self._failure[:3500]}; it {IN_DOUBT}"
            return Determinant(self._name, self._request, UNCERTAIN, message=message)
        message = f"{self._what} failed{counted}: {self._failure}"[:4000]
        return Determinant(self._name, self._request, FAILED, message=message, again=self._again)


def _called(call: Callable[[Try], _Given], one: Try, timeout_s: float, system: System) -> _Given:
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


def answer_or_error(outcome: Determinant | ServiceError) -> bytes | HeadraceError:
    """The answer of a call or, if its outcome is not an answer, its error."""
    if isinstance(outcome, ServiceError):
        return outcome
    try:
        raise_failure(outcome)
    except (ServiceError, CallUncertain) as error:
        return error
    return outcome.value


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
