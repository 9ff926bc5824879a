"""Tries of a call, and what they come to: an answer, a failure, or a doubt."""

from __future__ import annotations

import threading
import time

import pytest
from tests.unit.systems import Hurried

from headrace.causal.outside import Abandoned, Refusal, Try, Unreachable, Unusable, try_call
from headrace.errors import CallUncertain
from headrace.model.services import BACKOFF_MAX_US, WITH_COMMIT, CallOptions
from headrace.plan.epoch import Determinant

ONCE = CallOptions(timeout_us=100_000, retries=2, backoff_us=1000)
AGAIN = CallOptions(timeout_us=100_000, retries=2, backoff_us=1000, uncertain="again")
EACH = CallOptions(timeout_us=100_000, retries=2, backoff_us=1000, log=WITH_COMMIT)


def came_to(options: CallOptions, *acts: object) -> Determinant:
    """What comes of a call whose tries do this, one after another."""
    left = list(acts)

    def call(one: Try) -> bytes:
        act = left.pop(0)
        if act == "hangs before":
            time.sleep(0.3)
            one.begin()
        one.begin()
        if act == "hangs":
            time.sleep(0.3)
        if isinstance(act, BaseException):
            raise act
        return b"answer"

    return try_call("n", b"r", "x", options, call, system=Hurried())


def refused() -> Unreachable:
    return Unreachable("nobody listens")


def busy() -> Refusal:
    return Refusal(b"busy", in_doubt=False, later=True)


def broken() -> Refusal:
    return Refusal(b"broken", in_doubt=True, later=True)


@pytest.mark.parametrize("options", [ONCE, AGAIN, EACH])
def test_a_later_try_may_be_answered(options: CallOptions) -> None:
    for first in (refused(), busy(), broken(), ValueError("x"), ConnectionResetError("x")):
        assert came_to(options, first, 0).value == b"answer"


@pytest.mark.parametrize("doubt", [ConnectionResetError("x"), CallUncertain("x"), "hangs"])
def test_a_try_that_may_have_got_through_makes_the_call_uncertain_if_it_must_not_repeat(
    doubt: object,
) -> None:
    acts = (ValueError("x"), doubt, ValueError("last"))
    found = came_to(ONCE, *acts)
    assert (found.kind, found.again) == ("uncertain", False)
    assert "ValueError: last" in found.message and "(3 tries)" in found.message
    for options in (AGAIN, EACH):
        found = came_to(options, *acts)
        assert (found.kind, found.again) == ("failed", True)


def test_a_try_that_never_came_as_far_as_the_outside_has_failed() -> None:
    found = came_to(ONCE, "hangs before", "hangs before", "hangs before")
    assert (found.kind, found.again) == ("failed", True)
    assert found.message == "x failed (3 tries): no answer within 0.1 s"


def test_a_try_that_nobody_waits_for_does_not_reach_the_outside_any_more() -> None:
    one = Try()
    one.leave()
    with pytest.raises(Abandoned):
        one.begin()
    assert not one.begun
    other = Try()
    other.begin()
    other.begin()
    other.leave()
    assert other.begun


def test_either_the_call_begins_or_it_is_left_never_both() -> None:
    for _ in range(200):
        one, begun = Try(), []

        def begin(one: Try = one, begun: list[bool] = begun) -> None:
            try:
                one.begin()
                begun.append(True)
            except Abandoned:
                begun.append(False)

        thread = threading.Thread(target=begin)
        thread.start()
        one.leave()
        thread.join()
        assert begun == [one.begun]


def test_an_answer_that_refuses_may_be_asked_for_again_unless_there_was_a_doubt() -> None:
    last = Refusal(b"no", in_doubt=False, later=False)
    assert came_to(ONCE, last).again
    assert came_to(ONCE, busy(), busy(), busy()).again
    assert not came_to(ONCE, broken(), last).again
    assert not came_to(ONCE, Refusal(b"no", in_doubt=True, later=False)).again
    assert came_to(AGAIN, broken(), broken(), broken()).again
    assert came_to(ONCE, last).kind == "answer"


def test_an_answer_that_cannot_be_used_was_one_and_is_not_tried_for_again() -> None:
    found = came_to(ONCE, Unusable("too large"))
    assert (found.kind, found.again) == ("failed", False)
    assert came_to(AGAIN, Unusable("too large")).again


def test_pauses_double_up_to_half_a_minute() -> None:
    options = CallOptions(retries=20)
    pauses = [options.pause_us(number) for number in range(1, 21)]
    assert pauses[:3] == [100_000, 200_000, 400_000] and pauses[-1] == BACKOFF_MAX_US
    assert options.longest_us() == 21 * options.timeout_us + sum(pauses)
    assert CallOptions(backoff_us=60_000_000).pause_us(3) == 60_000_000


def wrapped(cause: BaseException | None) -> OSError:
    """An error of a library's own kind, which comes of another."""
    error = OSError("Read timed out")
    error.__cause__ = cause
    return error


def test_a_timeout_in_the_words_of_a_library_is_a_doubt() -> None:
    for cause in (TimeoutError(), ConnectionResetError()):
        assert came_to(ONCE, wrapped(cause)).kind == "uncertain"
    found = came_to(ONCE, wrapped(None), wrapped(None), wrapped(None))
    assert found.kind == "failed" and found.again


def test_a_service_says_with_from_none_that_a_call_has_surely_failed() -> None:
    error = wrapped(None)
    error.__context__, error.__suppress_context__ = TimeoutError(), True
    assert came_to(ONCE, error, error, error).kind == "failed"
