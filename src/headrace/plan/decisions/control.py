"""Decides on requests: every request gets exactly one outcome (I2, I6, I7). Pure.

`DECIDERS` names the rule of each verb. A rule returns None where the request is taken, or the
reason why it is refused. It may look at the ledger, at the request and at what the leader knows
(`LeaderFacts`), and at nothing else. `plan/decisions/effects.py` says what a taken one changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from headrace.plan.control import (
    COMPACT,
    DAMAGED,
    DEPLOY,
    DROP_SAVEPOINT,
    EXPIRED,
    FOREIGN,
    MAKE_DURABLE,
    PAUSE,
    REFUSED,
    REPEATED,
    RESCALE,
    RESUME,
    ROLLBACK,
    SAVEPOINT,
    STOP,
    STOPPED,
    TAKEN,
    TEXT_CHARACTERS_MAX,
    UNKNOWN,
    ControlRequest,
    Outcome,
    is_epoch,
)
from headrace.plan.deploy.code import wish_in
from headrace.plan.deploy.handover import judge_wish
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import is_split

SLOTS_MAX = 10_000
SAVEPOINTS_MAX = 64
NAME_CHARACTERS_MAX = 100


class Damage(msgspec.Struct, frozen=True):
    """A position of the queue that holds no request: damaged, too large, or not ours."""

    reason: str


class LeaderFacts(msgspec.Struct, frozen=True):
    """What the leader knows beside the ledger."""

    checkpoint: str
    fingerprint: str
    computations: tuple[str, ...]
    """Keyed computations: those that have slots."""


Decider = Callable[[ControlRequest, Ledger, LeaderFacts], str | None]


def decide_request(
    found: ControlRequest | Damage, position: int, ledger: Ledger, facts: LeaderFacts, wall: int
) -> Outcome:
    """The outcome of the request at a position; `wall` is the time that its entry bears."""
    if isinstance(found, Damage):
        return Outcome(position, "", "", "", DAMAGED, wall, found.reason[:TEXT_CHARACTERS_MAX])
    verdict, message = _verdict(found, ledger, facts, wall)
    taken = verdict == TAKEN
    about = found.arguments.get("computation") or found.arguments.get("name") or ""
    return Outcome(
        position,
        found.nonce[:NAME_CHARACTERS_MAX],
        found.command[:NAME_CHARACTERS_MAX],
        found.verb[:NAME_CHARACTERS_MAX],
        verdict,
        wall,
        message[:TEXT_CHARACTERS_MAX],
        str(about)[:NAME_CHARACTERS_MAX],
        found.arguments if taken else {},
    )


def _verdict(
    request: ControlRequest, ledger: Ledger, facts: LeaderFacts, wall: int
) -> tuple[str, str]:
    if request.checkpoint != facts.checkpoint:
        return FOREIGN, f"it is for checkpoint {request.checkpoint}; this is {facts.checkpoint}"
    if ledger.control.has_taken(request.command):
        return REPEATED, "an earlier request for the same command was taken"
    if request.expires is not None and wall > request.expires:
        return EXPIRED, f"it was read {(wall - request.expires) / 1e6:,.1f} s after it had expired"
    decider = DECIDERS.get(request.verb)
    if decider is None:
        return UNKNOWN, f"there is no verb {request.verb!r}; there are: {', '.join(DECIDERS)}"
    reason = _unexpected(request, ledger, facts) or decider(request, ledger, facts)
    return (TAKEN, "") if reason is None else (REFUSED, reason)


def _unexpected(request: ControlRequest, ledger: Ledger, facts: LeaderFacts) -> str | None:
    """Why the state is not the one that the request was computed from (I7)."""
    for name, expected in request.expects.items():
        found = _found(name, request, ledger, facts)
        if found != expected:
            return f"it expects {name} {expected!r}, and that is {found!r} now"
    return None


def _found(
    name: str, request: ControlRequest, ledger: Ledger, facts: LeaderFacts
) -> int | str | None:
    if name == "fingerprint":
        return facts.fingerprint
    if name == "epoch":
        return ledger.epoch
    computation = str(request.arguments.get("computation"))
    if name == "slots" and computation in ledger.slots:
        return len(ledger.slots[computation])
    return None


def _always(request: ControlRequest, ledger: Ledger, facts: LeaderFacts) -> str | None:
    return None


def _stop(request: ControlRequest, ledger: Ledger, facts: LeaderFacts) -> str | None:
    return "it is stopped already" if ledger.control.stop == STOPPED else None


def _rescale(request: ControlRequest, ledger: Ledger, facts: LeaderFacts) -> str | None:
    name, slots = request.arguments.get("computation"), request.arguments.get("slots")
    if name not in facts.computations:
        have = ", ".join(facts.computations) or "none"
        return f"there is no computation {name!r} with a key; there are: {have}"
    if type(slots) is not int or not 1 <= slots <= SLOTS_MAX:
        return f"a computation has 1 to {SLOTS_MAX:,} slots, not {slots!r}"
    return None


def _savepoint(request: ControlRequest, ledger: Ledger, facts: LeaderFacts) -> str | None:
    name, known = request.arguments.get("name"), ledger.control.savepoints
    if ledger.code.probation is not None:
        return "a deploy is on probation: take the savepoint when it is confirmed or taken back"
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        return f"a savepoint has a name of 1 to {NAME_CHARACTERS_MAX} characters, not {name!r}"
    if not name.isprintable() or name.startswith("-"):
        return f"{name!r} is not a name: it begins with '-', or cannot be printed"
    if is_epoch(name):
        return f"{name!r} is the number of an epoch: choose a name that is no number"
    if name in known:
        return f"there is a savepoint {name!r} already, of epoch {known[name].epoch}: drop it first"
    if len(known) >= SAVEPOINTS_MAX:
        return f"there are {len(known)} savepoints, and no more are kept: drop one first"
    if ledger.applied.copies:
        kept = ledger.applied.backend
        return f"state={kept!r} keeps no history, so a savepoint could not be restored"
    if not ledger.epoch:
        return "no epoch is committed yet, so there is nothing to keep"
    return None


def _drop_savepoint(request: ControlRequest, ledger: Ledger, facts: LeaderFacts) -> str | None:
    name, known = request.arguments.get("name"), ledger.control.savepoints
    if name not in known:
        return f"there is no savepoint {name!r}; there are: {', '.join(known) or 'none'}"
    return None


def _deploy(request: ControlRequest, ledger: Ledger, facts: LeaderFacts) -> str | None:
    try:
        wish = wish_in(request.arguments)
    except msgspec.ValidationError as error:
        return f"it is not a deploy that this driver understands: {error}"
    return judge_wish(ledger, wish) or None


def _rollback(request: ControlRequest, ledger: Ledger, facts: LeaderFacts) -> str | None:
    if ledger.code.probation is not None:
        return None
    last = ledger.code.last
    was = f": the last deploy was {last.verdict} at epoch {last.epoch}" if last else ""
    return f"no deploy is on probation{was}; to go back, deploy the former code"


def _compact(request: ControlRequest, ledger: Ledger, facts: LeaderFacts) -> str | None:
    name = request.arguments.get("computation")
    if name is not None and name not in ledger.slots:
        have = ", ".join(sorted(ledger.slots)) or "none"
        return f"there is no computation {name!r} with state; there are: {have}"
    names = ledger.slots if name is None else [str(name)]
    slots = [slot for each in names for slot in ledger.slots[each].values()]
    if ledger.control.paused and any(is_split(slot.entries, ledger.epoch) for slot in slots):
        return (
            "the pipeline is paused, and the next commit would have to adopt what is merged: "
            "resume it, or stop it, and ask again"
        )
    return None


DECIDERS: Mapping[str, Decider] = {
    PAUSE: _always,
    RESUME: _always,
    STOP: _stop,
    RESCALE: _rescale,
    SAVEPOINT: _savepoint,
    DROP_SAVEPOINT: _drop_savepoint,
    DEPLOY: _deploy,
    ROLLBACK: _rollback,
    COMPACT: _compact,
    MAKE_DURABLE: _always,
}
"""Verb -> its rule."""

PREPARED = frozenset({SAVEPOINT, MAKE_DURABLE})
"""Verbs whose outcome names files that must be durable first: an entry of their own has them."""
