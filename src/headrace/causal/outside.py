"""The calls themselves: tries with a timeout, and pauses between them.

What comes of a call is always a determinant, a failure as much as an answer.
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
    """Tries a call as often as its options allow; `call` gives its result as bytes.

    Where one of the tries may have got through, and none was answered, a call that must not
    repeat is uncertain. One that may repeat, or of which surely nothing came, has failed.
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
    """Whether a library tells, in its own words, of an answer that never came.

    Its error comes of a time-out or of a broken connection then. `raise ... from None` says
    that it does not: the call has surely failed.
    """
    while error is not None:
        if isinstance(error, (TimeoutError, *_ANSWER_LOST)):
            return True
        shown = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or shown
    return False


def raise_failure(outcome: Determinant) -> None:
    """Raises what a call came to, where it did not come to an answer."""
    if outcome.kind == FAILED:
        error = ServiceError(outcome.message)
        error.asked_again = outcome.again
        raise error
    if outcome.kind != ANSWER:
        raise CallUncertain(outcome.message)


class Try:
    """One try of a call: whether it came as far as the outside, and whether its caller still waits.

    Whoever takes the turn first decides: the call, when it begins, or the one who no longer waits.
    """

    __slots__ = ("_turn", "begun")

    def __init__(self) -> None:
        self._turn = [True]
        self.begun = False
        """Whether the outside may have been reached."""

    def begin(self) -> None:
        """The outside is about to be reached; Abandoned where its caller no longer waits."""
        if not self.begun:
            try:
                self._turn.pop()
            except IndexError:
                raise Abandoned from None
            self.begun = True

    def leave(self) -> None:
        """The caller no longer waits."""
        try:
            self._turn.pop()
        except IndexError:
            self.begun = True  # it has the turn, though it may not have said so yet


class Abandoned(Exception):
    """A try that did not reach the outside in time, and does not any more."""


class Unusable(Exception):
    """An answer that cannot be logged; no further try would make it so."""


class Unreachable(Exception):
    """A try that failed; its message holds nothing that may be a secret."""


class Refusal(Exception):
    """An answer that tells of no success."""

    def __init__(self, value: bytes, *, in_doubt: bool, later: bool) -> None:
        """`in_doubt`: it may have had an effect; `later`: a later try may better it."""
        super().__init__()
        self.value, self.in_doubt, self.later = value, in_doubt, later


_ANSWER_LOST = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
"""How Python says that the other side went away: what it had been asked, it may have done."""
