"""What a driver that follows decides: by the log, the lease, and its own clock (L1, L4, L5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.engine.leading.lease import (
    DONE,
    HELD,
    RELEASED,
    KeepWaiting,
    LeaderFinished,
    Lease,
    LeaseObserver,
    TakeOver,
)
from headrace.engine.leading.watch import CodeWatch, DeployFailed, Superseded
from headrace.plan.deploy import code as codes
from headrace.plan.deploy.code import CANDIDATE, GUARD, STANDBY, CodeState, DeployWish, Handover
from headrace.plan.deploy.comparison import RESTORE
from headrace.plan.deploy.contract import Contract
from headrace.plan.epoch import Plan
from headrace.plan.ledger import Ledger

P = Contract("p")
WISH = DeployWish("n1", "b", P, RESTORE, "a", 3, 10.0, 2**62)


def ledger(code: CodeState, plan: int = 0) -> Ledger:
    made = Ledger(code=code)
    if plan:
        made.open_plan = Plan(plan, plan, 0, "", [], {}, {})
    return made


def on_probation(taken: int = 0, **more: Any) -> CodeState:
    code = codes.handed_over(CodeState("a", P), Handover("n1", "b", P, RESTORE, 7, 3, 10.0))
    found = msgspec.structs.replace(code.probation, taken=taken, **more)
    return msgspec.structs.replace(code, probation=found)


def lease(generation: int, count: int = 1, state: str = HELD, reason: str = "") -> Lease:
    return Lease(generation, count, 3.0, 7, state, reason)


def watch(code: str, candidate: str = "") -> CodeWatch:
    return CodeWatch(code, LeaseObserver(3.0), candidate)


def test_a_standby_of_the_code_in_force_judges_by_the_lease() -> None:
    mine = watch("a")
    assert isinstance(mine.look(ledger(CodeState("a", P)), 4, lease(4), 0.0), KeepWaiting)
    verdict = mine.look(ledger(CodeState("a", P)), 4, lease(4), 4.0)
    assert isinstance(verdict, TakeOver) and verdict.role == STANDBY


def test_a_driver_ends_when_other_code_is_in_force() -> None:
    mine = watch("a")
    mine.look(ledger(CodeState("a", P)), 4, lease(4), 0.0)
    verdict = mine.look(ledger(CodeState("b", P)), 5, lease(5), 1.0)
    assert isinstance(verdict, Superseded) and verdict.was_in_force
    verdict = watch("a").look(ledger(CodeState("b", P)), 5, lease(5), 1.0)
    assert isinstance(verdict, Superseded) and not verdict.was_in_force


def test_a_candidate_takes_only_a_hand_over_to_it() -> None:
    mine = watch("b", "n1")
    before = ledger(codes.wished(CodeState("a", P), WISH))
    assert isinstance(mine.look(before, 4, lease(4), 0.0), KeepWaiting)
    # Not even when the leader is dead: that would be a deploy without a word.
    assert isinstance(mine.look(before, 4, lease(4), 99.0), KeepWaiting)
    assert isinstance(mine.look(before, 4, lease(4, 2, DONE), 99.0), DeployFailed)
    verdict = mine.look(ledger(on_probation()), 4, lease(4, 3, RELEASED), 100.0)
    assert isinstance(verdict, TakeOver) and verdict.role == CANDIDATE
    other = watch("b", "n2").look(ledger(on_probation()), 4, lease(4, 3, RELEASED), 100.0)
    assert isinstance(other, DeployFailed) and "superseded" in other.text
    superseded = watch("b", "n2").look(before, 4, lease(4, 4), 101.0)
    assert isinstance(superseded, DeployFailed)
    begun = mine.look(ledger(on_probation(taken=5)), 5, lease(5), 102.0)
    assert isinstance(begun, KeepWaiting)


def test_a_candidate_learns_that_its_deploy_has_ended() -> None:
    lapsed = msgspec.structs.replace(
        CodeState("a", P), last=codes.DeployEnd("n1", codes.LAPSED, 7, "it came late")
    )
    verdict = watch("b", "n1").look(ledger(lapsed), 4, lease(4), 0.0)
    assert isinstance(verdict, DeployFailed) and "it came late" in verdict.text


def test_a_guard_waits_for_the_candidate_by_its_own_clock() -> None:
    mine = watch("a")
    untaken = ledger(on_probation())
    released = lease(4, 9, RELEASED, "handed over to n1")
    assert isinstance(mine.look(untaken, 4, released, 100.0), KeepWaiting)
    assert isinstance(mine.look(untaken, 4, released, 109.9), KeepWaiting)
    verdict = mine.look(untaken, 4, released, 110.0)
    assert isinstance(verdict, TakeOver) and verdict.role == GUARD
    assert "has not taken over" in verdict.text


def test_the_time_begins_again_when_the_candidate_has_taken_over() -> None:
    mine = watch("a")
    mine.look(ledger(on_probation()), 4, lease(4, 9, RELEASED), 100.0)
    taken = ledger(on_probation(taken=5))
    assert isinstance(mine.look(taken, 5, lease(5), 109.0), KeepWaiting)
    assert isinstance(mine.look(taken, 5, lease(5, 2), 111.0), KeepWaiting)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (lease(5, 3, RELEASED, "UserCodeError: a mistake"), "a mistake"),
        (lease(5, 1), "silent"),
    ],
)
def test_a_guard_takes_back_when_the_candidate_lets_go_or_is_silent(
    found: Lease, words: str
) -> None:
    mine, taken = watch("a"), ledger(on_probation(taken=5))
    mine.look(taken, 5, lease(5, 1), 100.0)
    verdict = mine.look(taken, 5, found, 104.0)
    assert isinstance(verdict, TakeOver) and (verdict.role, verdict.generation) == (GUARD, 5)
    assert words in verdict.text


def test_a_guard_takes_back_when_an_epoch_hangs() -> None:
    mine, code = watch("a"), on_probation(taken=5)
    for at in range(10):
        assert isinstance(mine.look(ledger(code, 8), 5, lease(5, at), 100.0 + at), KeepWaiting)
    assert isinstance(mine.look(ledger(code, 9), 5, lease(5, 11), 110.0), KeepWaiting)
    verdict = mine.look(ledger(code, 9), 5, lease(5, 12), 120.0)
    assert isinstance(verdict, TakeOver) and "epoch 9 has been open for 10 s" in verdict.text


def test_a_guard_takes_back_when_a_person_asks() -> None:
    verdict = watch("a").look(
        ledger(on_probation(taken=5, withdrawn="a person has asked")), 5, lease(5), 0.0
    )
    assert isinstance(verdict, TakeOver) and verdict.role == GUARD


def test_a_guard_whose_clock_was_stopped_by_an_outage_waits_again() -> None:
    mine, untaken = watch("a"), ledger(on_probation())
    mine.look(untaken, 4, lease(4, 9, RELEASED), 100.0)
    mine.unreadable()
    assert isinstance(mine.look(untaken, 4, lease(4, 9, RELEASED), 115.0), KeepWaiting)


def test_a_standby_of_the_new_code_waits_for_the_end_of_the_probation() -> None:
    taken = ledger(on_probation(taken=5))
    assert isinstance(watch("b").look(taken, 5, lease(5), 0.0), KeepWaiting)
    assert isinstance(watch("b").look(taken, 5, lease(5, 1, RELEASED), 9.0), KeepWaiting)


def test_a_standby_ends_with_its_leader() -> None:
    verdict = watch("a").look(ledger(CodeState("a", P)), 4, lease(4, 1, DONE, "end"), 0.0)
    assert isinstance(verdict, LeaderFinished)
