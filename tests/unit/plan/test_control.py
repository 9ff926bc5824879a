"""Decisions on requests, and what they change in the ledger."""

import msgspec
import pytest

from headrace.errors import CorruptCheckpoint
from headrace.limits import Limits
from headrace.plan.control import (
    ASKED,
    COMMANDS_KEPT,
    STOPPED,
    TAKEN,
    ControlRequest,
    Outcome,
    Savepoint,
    answer_of,
    done_of,
)
from headrace.plan.decisions.control import DECIDERS, Damage, LeaderFacts, decide_request
from headrace.plan.decisions.effects import (
    EFFECTS,
    fold_control,
    fold_done,
    fold_generation,
    fold_outcomes,
)
from headrace.plan.deploy.code import CANDIDATE, GUARD, STANDBY, START, GenerationBody
from headrace.plan.entries import ControlBody
from headrace.plan.ledger import Ledger
from headrace.plan.rings.manifest import first_slot
from headrace.plan.rings.refs import RingRef

FACTS = LeaderFacts("id", "code", ("Count",))
PERSON = GenerationBody(9, START, "code")


def ledger(**fields):
    made = Ledger(epoch=5, rings={"Count": RingRef.even(2)}, slots=slots_of(2), wall=100)
    return msgspec.structs.replace(made, **fields)


def slots_of(number):
    return {"Count": {slot: first_slot(slot) for slot in range(number)}}


def request(verb="pause", nonce="n1", **fields):
    values = {"checkpoint": "id", "command": nonce, "arguments": {}, **fields}
    return ControlRequest(nonce=nonce, verb=verb, **values)


def decided(known, *requests, wall=1000):
    """The ledger after these requests; returns their outcomes."""
    found = []
    for each in requests:
        outcome = decide_request(each, known.control.cursor + 1, known, FACTS, wall)
        fold_outcomes(known, [outcome])
        found.append(outcome)
    return found


def rescale(slots, nonce="n1", **fields):
    return request("rescale", nonce, arguments={"computation": "Count", "slots": slots}, **fields)


@pytest.mark.parametrize(
    ("given", "verdict", "message"),
    [
        (Damage("torn"), "damaged", "torn"),
        (request(checkpoint="other"), "foreign", "for checkpoint other"),
        (request("dance"), "unknown", "no verb 'dance'; there are: pause"),
        (request(expires=999), "expired", "after it had expired"),
        (request(expires=1000), "taken", ""),
        (request("rescale"), "refused", "no computation None with a key; there are: Count"),
        (rescale(0), "refused", "1 to 10,000 slots, not 0"),
        (rescale(True), "refused", "slots, not True"),
        (rescale("8"), "refused", "slots, not '8'"),
        (rescale(8), "taken", ""),
        (rescale(8, expects={"slots": 2}), "taken", ""),
        (rescale(8, expects={"slots": 3}), "refused", "expects slots 3, and that is 2 now"),
        (request(expects={"fingerprint": "x"}), "refused", "that is 'code' now"),
        (request(expects={"moon": 1}), "refused", "that is None now"),
        (request("savepoint"), "refused", "a name of 1 to 100 characters, not None"),
        (request("savepoint", arguments={"name": "a\nb"}), "refused", "cannot be printed"),
        (request("savepoint", arguments={"name": "x" * 101}), "refused", "characters"),
        (request("drop-savepoint", arguments={"name": "s"}), "refused", "there are: none"),
    ],
)
def test_every_request_gets_an_outcome_and_the_queue_goes_on(given, verdict, message):
    known = ledger()
    [outcome] = decided(known, given)
    assert (outcome.verdict, outcome.position) == (verdict, 1)
    assert message in outcome.message
    assert known.control.cursor == 1 and known.wall == 1000
    assert known.control.outcomes[-1].arguments == {}, "a snapshot stays small"


def test_a_savepoint_needs_a_committed_epoch():
    [outcome] = decided(ledger(epoch=0), request("savepoint", arguments={"name": "s"}))
    assert outcome.verdict == "refused" and "no epoch is committed yet" in outcome.message


def test_a_command_takes_effect_once_however_often_it_is_repeated():
    known = ledger()
    first, second = decided(known, rescale(8, "n1", command="c"), rescale(4, "n2", command="c"))
    assert (first.verdict, second.verdict) == ("taken", "repeated")
    assert known.wanted["Count"].slots == 8


def test_a_command_that_was_refused_may_be_tried_again():
    verdicts = [o.verdict for o in decided(
        ledger(), rescale(0, "n1", command="c"), rescale(4, "n2", command="c")
    )]  # fmt: skip
    assert verdicts == ["refused", "taken"]


def test_pause_and_resume_are_states_of_the_ledger():
    known = ledger()
    decided(known, request("pause", "a"))
    assert known.control.paused
    decided(known, request("resume", "b"))
    assert not known.control.paused
    assert [o.done for o in known.control.outcomes] == [
        "paused after epoch 5", "resumed after epoch 5",
    ]  # fmt: skip


def test_a_stop_is_asked_then_complete_and_only_a_start_by_a_person_ends_it():
    known = ledger()
    decided(known, request("stop"))
    assert known.control.stop == ASKED
    fold_generation(known, PERSON)
    assert known.control.stop == ASKED, "a stop that is not complete is completed first"
    fold_control(known, ControlBody(stopped=True))
    assert known.control.stop == STOPPED
    assert known.control.outcomes[0].done == "stopped after epoch 5"
    for role in (START, STANDBY, GUARD, CANDIDATE):
        fold_generation(known, GenerationBody(9, role, "code", by_itself=True))
    fold_generation(known, GenerationBody(9, START))
    assert known.control.stop == STOPPED, "neither a standby, nor a program, nor a tool"
    fold_generation(known, PERSON)
    assert known.control.stop == ""


def test_a_rescale_is_wanted_until_its_ring_is_committed():
    known = ledger()
    decided(known, rescale(8))
    fold_done(known)
    assert known.wanted["Count"].slots == 8 and not known.control.outcomes[0].done
    known.wanted, known.slots, known.epoch = {}, slots_of(8), 6
    fold_done(known)
    assert known.control.outcomes[0].done == "Count has 8 slots since epoch 6"


def test_a_later_rescale_supersedes_an_earlier_one():
    known = ledger()
    decided(known, rescale(8, "a"), rescale(3, "b"))
    assert known.wanted["Count"].slots == 3
    assert known.control.outcomes[0].done == "superseded by a later request"
    decided(known, rescale(2, "c"))
    assert known.wanted == {}
    assert [o.done for o in known.control.outcomes][1:] == [
        "superseded by a later request", "Count has 2 slots already",
    ]  # fmt: skip


def test_savepoints_are_listed_until_they_are_dropped():
    known = ledger()
    saved = Savepoint("s", 5, 1000, "savepoints/s")
    outcome = Outcome(1, "n", "n", "savepoint", TAKEN, 1000, about="s", savepoint=saved)
    fold_outcomes(known, [outcome])
    assert known.control.savepoints == {"s": saved}
    [again] = decided(known, request("savepoint", "m", arguments={"name": "s"}))
    assert again.verdict == "refused" and "already, of epoch 5" in again.message
    decided(known, request("drop-savepoint", "o", arguments={"name": "s"}))
    assert known.control.savepoints == {}


def test_only_the_last_outcomes_are_kept():
    known = ledger()
    limits = Limits(outcomes_kept=2)
    for at in range(1, 5):
        fold_outcomes(known, [Outcome(at, f"n{at}", f"n{at}", "pause", TAKEN, at)], limits)
    assert [o.position for o in known.control.outcomes] == [3, 4]
    assert known.control.at(2) is None and known.control.at(4) is not None
    assert known.control.has_taken("n1"), "commands are remembered longer than their outcomes"
    for at in range(5, 5 + COMMANDS_KEPT):
        fold_outcomes(known, [Outcome(at, f"n{at}", f"n{at}", "pause", TAKEN, at)], limits)
    assert not known.control.has_taken("n4") and known.control.has_taken("n5")


@pytest.mark.parametrize("position", [1, 3])
def test_an_outcome_out_of_order_means_that_the_log_is_damaged(position):
    known = ledger()
    decided(known, request())
    with pytest.raises(CorruptCheckpoint, match=f"request {position} is decided after request 1"):
        fold_outcomes(known, [Outcome(position, "n", "n", "pause", TAKEN, 1)])


def test_what_is_asked_in_the_process_of_the_leader_has_no_position():
    known = ledger()
    fold_outcomes(known, [Outcome(0, "n", "n", "pause", TAKEN, 1)])
    assert known.control.paused and known.control.cursor == 0


def test_every_verb_with_an_effect_has_a_rule():
    assert set(EFFECTS) <= set(DECIDERS)


def test_answers_are_functions_of_the_outcome():
    outcome = Outcome(3, "n", "c", "pause", TAKEN, 7, "m", done="paused after epoch 5")
    assert answer_of(outcome).message == "m" and answer_of(outcome).verdict == TAKEN
    assert done_of(outcome).message == "paused after epoch 5" and done_of(outcome).verdict == "done"


def test_the_ledger_survives_encoding():
    known = ledger()
    decided(known, rescale(8), request("stop", "b"))
    again = msgspec.json.decode(msgspec.json.encode(known), type=Ledger)
    assert again.control == known.control and again.wanted == known.wanted
