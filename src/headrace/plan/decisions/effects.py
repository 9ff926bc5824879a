"""What outcomes of requests change in the ledger: the fold of control through the store (I). Pure.

Every driver that reads the same log has the same wanted state: paused, stopping, wanted rings,
savepoints. Nothing of a request counts before its outcome is folded here.

`EFFECTS` names what each verb does. A verb without an effect of its own in the ledger has none
here; what a later entry completes (`stopped`, the commit of a wanted ring) is noted as done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headrace.errors import CorruptCheckpoint
from headrace.limits import LIMITS, Limits
from headrace.plan.control import (
    ASKED,
    COMPACT,
    DEPLOY,
    DROP_SAVEPOINT,
    MAKE_DURABLE,
    PAUSE,
    RESCALE,
    RESUME,
    ROLLBACK,
    SAVEPOINT,
    STOP,
    STOPPED,
    TAKEN,
    Outcome,
)
from headrace.plan.deploy import code as codes
from headrace.plan.deploy.code import GenerationBody
from headrace.plan.deploy.fold import done_with_deploy
from headrace.plan.entries import ControlBody
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import is_split
from headrace.plan.rings.wanted import Wanted


def fold_generation(ledger: Ledger, body: GenerationBody) -> None:
    """A driver begins to lead; a start by a person ends the state "stopped" (I9).

    A generation without code is that of a tool, which changes the state of a stopped pipeline.
    """
    person = bool(body.fingerprint) and not body.by_itself
    if person and ledger.control.stop == STOPPED:
        ledger.control = msgspec.structs.replace(ledger.control, stop="")


def fold_control(ledger: Ledger, body: ControlBody, limits: Limits = LIMITS) -> None:
    """An entry of kind `control`."""
    fold_outcomes(ledger, body.outcomes, limits)
    if body.stopped:
        for each in ledger.control.outcomes:
            if each.verb == STOP and each.verdict == TAKEN and not each.done:
                text = f"stopped after epoch {ledger.epoch}"
                ledger.control = ledger.control.done(each.nonce, text)
        ledger.control = msgspec.structs.replace(ledger.control, stop=STOPPED)


def fold_outcomes(ledger: Ledger, outcomes: Sequence[Outcome], limits: Limits = LIMITS) -> None:
    """Decisions on requests, in the order of the queue; each position is decided once (I2)."""
    for outcome in outcomes:
        if outcome.position not in (0, ledger.control.cursor + 1):
            raise CorruptCheckpoint(
                f"request {outcome.position} is decided after request {ledger.control.cursor}: "
                "entries of the log are missing; restore them from a copy"
            )
        ledger.control = ledger.control.with_outcome(outcome, limits.outcomes_kept)
        ledger.wall = max(ledger.wall, outcome.wall)
        effect = EFFECTS.get(outcome.verb)
        if outcome.verdict == TAKEN and effect is not None:
            effect(ledger, outcome)


def fold_done(ledger: Ledger) -> None:
    """After a commit: a wanted ring that is wanted no more was committed, and so was a merge."""
    if ledger.control.compact:
        _fold_compacted(ledger)
    for each in ledger.control.outcomes:
        if each.verb != RESCALE or each.verdict != TAKEN or each.done:
            continue
        wanted = ledger.wanted.get(each.about)
        if wanted is None or wanted.by != wanted_by(each):
            slots = len(ledger.slots.get(each.about, ()))
            text = f"{each.about} has {slots} slots since epoch {ledger.epoch}"
            ledger.control = ledger.control.done(each.nonce, text)


def wanted_by(outcome: Outcome) -> str:
    """What a wanted ring says about the request that it comes from."""
    return f"request {outcome.nonce}"


def _pause(ledger: Ledger, outcome: Outcome) -> None:
    control = msgspec.structs.replace(ledger.control, paused=True)
    ledger.control = control.done(outcome.nonce, f"paused after epoch {ledger.epoch}")


def _resume(ledger: Ledger, outcome: Outcome) -> None:
    control = msgspec.structs.replace(ledger.control, paused=False)
    ledger.control = control.done(outcome.nonce, f"resumed after epoch {ledger.epoch}")


def _stop(ledger: Ledger, outcome: Outcome) -> None:
    ledger.control = msgspec.structs.replace(ledger.control, stop=ASKED)


def _rescale(ledger: Ledger, outcome: Outcome) -> None:
    name, slots = outcome.about, int(outcome.arguments["slots"])
    for each in ledger.control.outcomes:
        is_older = each.verb == RESCALE and each.about == name and each.nonce != outcome.nonce
        if is_older and each.verdict == TAKEN and not each.done:
            text = "superseded by a later request"
            ledger.control = ledger.control.done(each.nonce, text)
    if len(ledger.slots.get(name, ())) == slots:
        ledger.wanted = {n: wanted for n, wanted in ledger.wanted.items() if n != name}
        ledger.control = ledger.control.done(outcome.nonce, f"{name} has {slots} slots already")
        return
    wanted = Wanted(slots=slots, reason="as a request asks", by=wanted_by(outcome))
    ledger.wanted = {**ledger.wanted, name: wanted}


def _savepoint(ledger: Ledger, outcome: Outcome) -> None:
    saved = outcome.savepoint
    if saved is None:
        raise CorruptCheckpoint(f"the log takes savepoint {outcome.about!r} and does not say which")
    savepoints = {**ledger.control.savepoints, saved.name: saved}
    control = msgspec.structs.replace(ledger.control, savepoints=savepoints)
    ledger.control = control.done(outcome.nonce, f"{saved.name} holds epoch {saved.epoch}")


def _drop_savepoint(ledger: Ledger, outcome: Outcome) -> None:
    left = {n: saved for n, saved in ledger.control.savepoints.items() if n != outcome.about}
    control = msgspec.structs.replace(ledger.control, savepoints=left)
    ledger.control = control.done(outcome.nonce, f"{outcome.about} was dropped")


def _deploy(ledger: Ledger, outcome: Outcome) -> None:
    if (earlier := ledger.code.wish) is not None:
        done_with_deploy(ledger, earlier.candidate, "superseded by a later request")
    ledger.code = codes.wished(ledger.code, codes.wish_in(outcome.arguments))


def _rollback(ledger: Ledger, outcome: Outcome) -> None:
    ledger.code = codes.withdrawn(ledger.code, "a person has asked to take it back")
    text = "the driver on probation lets go, and the guard takes over"
    ledger.control = ledger.control.done(outcome.nonce, text)


def _compact(ledger: Ledger, outcome: Outcome) -> None:
    names = [outcome.about] if outcome.about else list(ledger.slots)
    asked = {name: ledger.epoch for name in names}
    ledger.control = msgspec.structs.replace(
        ledger.control, compact={**ledger.control.compact, **asked}
    )
    _fold_compacted(ledger)


def _fold_compacted(ledger: Ledger) -> None:
    """Notes for which computations all segments up to the asked epoch are merged."""
    left = {
        name: until
        for name, until in ledger.control.compact.items()
        if any(is_split(slot.entries, until) for slot in ledger.slots.get(name, {}).values())
    }
    ledger.control = msgspec.structs.replace(ledger.control, compact=left)
    for each in ledger.control.outcomes:
        if each.verb == COMPACT and each.verdict == TAKEN and not each.done:
            if each.about in left or (not each.about and left):
                continue
            text = f"{each.about or 'all state'} is compacted since epoch {ledger.epoch}"
            ledger.control = ledger.control.done(each.nonce, text)


def _made_durable(ledger: Ledger, outcome: Outcome) -> None:
    epoch = ledger.interval.durable(ledger.epoch)
    ledger.control = ledger.control.done(outcome.nonce, f"epoch {epoch} is durable")


EFFECTS: dict[str, Callable[[Ledger, Outcome], None]] = {
    PAUSE: _pause,
    RESUME: _resume,
    STOP: _stop,
    RESCALE: _rescale,
    SAVEPOINT: _savepoint,
    DROP_SAVEPOINT: _drop_savepoint,
    DEPLOY: _deploy,
    ROLLBACK: _rollback,
    COMPACT: _compact,
    MAKE_DURABLE: _made_durable,
}
"""Verb -> what a taken request changes in the ledger."""
