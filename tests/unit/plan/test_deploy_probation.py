"""Who may lead: the code in force, hand-over, probation, confirmation and rollback (L1 to L6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.rings import lead

from headrace import IncompatibleState
from headrace.plan.counters import Counters
from headrace.plan.deploy import code as codes
from headrace.plan.deploy import fold
from headrace.plan.deploy.code import (
    CANDIDATE,
    CONFIRMED,
    GUARD,
    ROLLED_BACK,
    STANDBY,
    START,
    CodeState,
    ConfirmBody,
    DeployWish,
    GenerationBody,
    Handover,
    LapseBody,
)
from headrace.plan.deploy.comparison import FORWARD, RESTORE
from headrace.plan.deploy.contract import Contract
from headrace.plan.deploy.handover import judge_wish, next_move
from headrace.plan.deploy.roles import LeadingRole, NotInForce, generation_of
from headrace.plan.epoch import Commit, OutboxFile, SlotDelta, SplitState
from headrace.plan.ledger import Ledger
from headrace.plan.watermarks import Mark

A, B = Contract("p"), Contract("p", feedback=("x",))


def led(ledger: Ledger, role: str, fingerprint: str, **more: Any) -> bool:
    """A driver takes over, as `generation_of` allows it; whether it went back to a savepoint."""
    wanted = LeadingRole(role, fingerprint, A if fingerprint == "a" else B, **more)
    body = generation_of(ledger.code, wanted, ledger.generation + 1)
    ledger.generation += 1
    return fold.led(ledger, body)


def commit(ledger: Ledger, segment: str, **more: Any) -> None:
    epoch = ledger.epoch + 1
    given = {
        "ins": {"C": epoch}, "outs": {"C": epoch}, "outbox": [], "staged": [],
        "splits": {"in": {"s": SplitState(epoch * 10, Mark(epoch, epoch))}},
        "counters": Counters(records=10), "newest": epoch, "rings": {"C": 1},
        "deltas": {"C": {0: SlotDelta(segment, 1, 10)}}, **more,
    }  # fmt: skip
    lead(ledger, Commit(epoch=epoch, **given), epoch)
    fold.committed(ledger, None)


def handover(mode: str = RESTORE, *, to: str = "n1", epoch: int = 2, **more: Any) -> Handover:
    return Handover(to, "b", B, mode, epoch, 3, 60.0, **more)


def at_two(mode: str = RESTORE) -> Ledger:
    """A ledger at epoch 2, handed over by code a to candidate n1 with code b."""
    ledger = Ledger()
    led(ledger, START, "a")
    commit(ledger, "s1")
    commit(ledger, "s2")
    fold.handed_over(ledger, handover(mode))
    return ledger


def wish(**more: Any) -> DeployWish:
    given = {"mode": FORWARD, "expects": "a", "confirm_after": 3, "seconds": 60.0, "expires": 1000}
    return DeployWish("n1", "b", B, **(given | more))


def test_the_first_start_puts_its_code_in_force() -> None:
    ledger = Ledger()
    led(ledger, START, "a")
    assert (ledger.code.fingerprint, ledger.code.contract) == ("a", A)
    led(ledger, STANDBY, "a")
    with pytest.raises(NotInForce):
        led(ledger, STANDBY, "b")


def test_a_log_of_an_older_version_names_no_code() -> None:
    ledger = Ledger()
    fold.led(ledger, msgspec.json.decode(b'{"generation":1}', type=GenerationBody))
    assert ledger.code == CodeState()
    led(ledger, STANDBY, "a")
    assert ledger.code.fingerprint == "a"


def test_a_start_with_other_code_says_which_is_in_force() -> None:
    ledger = Ledger()
    led(ledger, START, "a")
    with pytest.raises(IncompatibleState, match=r"in force is a, and this is b.*--replace"):
        led(ledger, START, "b", replace=False)
    led(ledger, START, "b", replace=True)
    assert ledger.code.contract == B


def test_only_the_candidate_takes_a_hand_over_and_only_once() -> None:
    ledger = at_two()
    for role, code, more in [
        (STANDBY, "a", {}),
        (STANDBY, "b", {}),
        (CANDIDATE, "b", {"candidate": "n2"}),
    ]:
        with pytest.raises(NotInForce):
            led(ledger, role, code, **more)
    led(ledger, CANDIDATE, "b", candidate="n1")
    assert ledger.code.probation is not None and ledger.code.probation.taken == 2
    with pytest.raises(NotInForce):
        led(ledger, CANDIDATE, "b", candidate="n1")


def test_a_candidate_that_slept_finds_that_the_guard_took_over() -> None:
    ledger = at_two()
    led(ledger, GUARD, "a")
    assert ledger.code.fingerprint == "a" and ledger.code.probation is None
    with pytest.raises(NotInForce):
        led(ledger, CANDIDATE, "b", candidate="n1")


def test_a_guard_cannot_take_back_what_is_confirmed() -> None:
    ledger = at_two()
    led(ledger, CANDIDATE, "b", candidate="n1")
    commit(ledger, "s3")
    fold.confirm(ledger, ConfirmBody("n1"))
    assert (ledger.code.fingerprint, ledger.code.contract) == ("b", B)
    assert ledger.code.last is not None and ledger.code.last.verdict == CONFIRMED
    with pytest.raises(NotInForce):
        led(ledger, GUARD, "a")
    # A generation of a guard that came too late says nothing either.
    before = ledger.code
    assert not fold.led(ledger, GenerationBody(9, GUARD, "a"))
    assert ledger.code == before


def test_a_restore_goes_back_to_the_hand_over_and_numbers_go_on() -> None:
    ledger = at_two()
    before = fold.copy_of(ledger)
    led(ledger, CANDIDATE, "b", candidate="n1")
    for segment in ("s3", "s4"):
        commit(ledger, segment, keys={"C": {"in": "other"}})
    assert ledger.code.probation is not None and ledger.code.probation.commits == 2
    assert led(ledger, GUARD, "a", reason="it failed")
    assert ledger.epoch == 4
    assert ledger.segments() == {"s1", "s2"} and ledger.splits["in"]["s"].position == 20
    for name in ("ins", "outs", "splits", "rings", "slots", "outbox", "keys", "newest", "counters"):
        assert getattr(ledger, name) == getattr(before, name), name
    assert ledger.saved is None and ledger.code.held == 2
    end = ledger.code.last
    assert end is not None and (end.verdict, end.reason) == (ROLLED_BACK, "it failed")
    commit(ledger, "s5")
    assert ledger.epoch == 5 and ledger.code.held is None
    assert ledger.segments() == {"s1", "s2", "s5"}


def test_a_forward_rollback_goes_on_from_the_last_commit() -> None:
    ledger = at_two(FORWARD)
    led(ledger, CANDIDATE, "b", candidate="n1")
    commit(ledger, "s3")
    assert not led(ledger, GUARD, "a")
    assert ledger.segments() == {"s1", "s2", "s3"} and ledger.code.held is None
    assert ledger.code.fingerprint == "a"


def test_the_savepoint_travels_in_a_snapshot() -> None:
    ledger = at_two()
    led(ledger, CANDIDATE, "b", candidate="n1")
    commit(ledger, "s3")
    read = msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger)
    led(read, GUARD, "a")
    assert read.segments() == {"s1", "s2"} and read.epoch == 3


def test_a_start_in_probation() -> None:
    ledger = at_two()
    with pytest.raises(IncompatibleState, match=r"on probation.*--confirm"):
        led(ledger, START, "b", replace=True)
    with pytest.raises(IncompatibleState, match=r"on probation"):
        led(ledger, START, "c", replace=True, confirm=True)
    other = fold.copy_of(ledger)
    other.code, other.saved = ledger.code, ledger.saved
    led(other, START, "a")
    assert other.code.last is not None and other.code.last.verdict == ROLLED_BACK
    led(ledger, START, "b", confirm=True)
    assert ledger.code.fingerprint == "b" and ledger.code.probation is None


def test_a_wish_waits_until_nothing_waits() -> None:
    ledger = Ledger()
    led(ledger, START, "a")
    commit(ledger, "s1", outbox=[OutboxFile("f", "L", "back", "x", 0, 1)])
    ledger.code = codes.wished(ledger.code, wish(drain=("L",), feeds={"D": ("C",), "E": ("D",)}))
    assert next_move(ledger, acknowledged=1, wall=10) is None
    commit(ledger, "s2")
    assert next_move(ledger, acknowledged=1, wall=10) is None  # a sink lacks epoch 2
    made = next_move(ledger, acknowledged=2, wall=10)
    assert isinstance(made, Handover) and (made.epoch, made.starts) == (2, {"D": 2})
    fold.handed_over(ledger, made)
    assert ledger.ins["D"] == 2 and ledger.code.wish is None


def test_a_wish_lapses() -> None:
    ledger = Ledger()
    led(ledger, START, "a")
    commit(ledger, "s1", outbox=[OutboxFile("f", "L", "back", "x", 0, 1)])
    ledger.code = codes.wished(ledger.code, wish(drain=("L",)))
    made = next_move(ledger, acknowledged=1, wall=1000)
    assert isinstance(made, LapseBody) and "for L had not drained" in made.reason
    fold.lapsed(ledger, made)
    assert ledger.code.wish is None and next_move(ledger, 1, 1000) is None


def test_there_is_one_probation_at_a_time() -> None:
    ledger = at_two()
    assert "on probation" in judge_wish(ledger, wish())
    ledger = Ledger()
    led(ledger, START, "a")
    assert judge_wish(ledger, wish()) == ""
    assert "in force is a" in judge_wish(ledger, wish(expects="z"))
    led(ledger, START, "b")
    assert "already" in judge_wish(ledger, wish(expects="b"))


def test_state_that_is_given_up_is_back_after_a_rollback() -> None:
    ledger = Ledger()
    led(ledger, START, "a")
    commit(ledger, "s1")
    fold.handed_over(ledger, handover(epoch=1, dropped=("C",)))
    assert ledger.segments() == set()
    led(ledger, GUARD, "a")
    assert ledger.segments() == {"s1"}
