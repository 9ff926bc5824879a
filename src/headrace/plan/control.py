"""Control through the store: requests, their outcomes, and what the ledger keeps of them (I). Pure.

A request asks something of a pipeline: pause, stop, rescale. The leader decides each request once,
in the order of the queue, and the outcome is part of an entry of the log. Everything that follows
from a request follows from its outcome, so a new leader continues as the old one would have.

This module knows neither the store nor the clock: `control/` reads and writes requests,
`plan/decisions/control.py` decides on them, `plan/decisions/effects.py` folds their outcomes.
"""

from __future__ import annotations

from typing import Any

import msgspec

TAKEN = "taken"
REPEATED = "repeated"
EXPIRED = "expired"
REFUSED = "refused"
DAMAGED = "damaged"
FOREIGN = "foreign"
UNKNOWN = "unknown"

PAUSE, RESUME, STOP, RESCALE = "pause", "resume", "stop", "rescale"
SAVEPOINT, DROP_SAVEPOINT = "savepoint", "drop-savepoint"
DEPLOY, ROLLBACK = "deploy", "rollback"
COMPACT, MAKE_DURABLE = "compact", "checkpoint"

ASKED, STOPPED = "asked", "stopped"
"""The states of a stop: an outcome has taken it; the leader has completed it."""

COMMANDS_KEPT = 256
"""How many commands that were taken the ledger remembers: none of them takes effect again."""

TEXT_CHARACTERS_MAX = 2000
"""How long a message in an outcome may be."""


EPOCH_DIGITS_MAX = 18


class ControlRequest(msgspec.Struct, frozen=True):
    """What somebody asks of a pipeline. It is data, complete in itself, and never code."""

    checkpoint: str
    """The id of the checkpoint: a request that was copied with a checkpoint counts for none."""
    nonce: str
    """Names this request; by it a requester finds its own outcome."""
    command: str
    """Names the command: of two requests for one command, only one takes effect."""
    verb: str
    arguments: dict[str, Any] = {}
    expires: int | None = None
    """The wall time (microseconds) after which it must not take effect; judged by the leader."""
    expects: dict[str, int | str] = {}
    """What it was computed from; under anything else it is refused."""
    by: str = ""
    """Who asks, for people."""


class Savepoint(msgspec.Struct, frozen=True):
    """A past state of the pipeline that is kept until it is dropped by name."""

    name: str
    epoch: int
    wall: int
    """When it was taken."""
    snapshot: str
    """The file with the ledger of that epoch."""
    bytes: int = 0
    """About how large its state is."""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The decision on one request. There is exactly one per request, and the log has it."""

    position: int
    """The place of the request in the queue; 0 if it was asked in the leader's own process."""
    nonce: str
    command: str
    verb: str
    verdict: str
    """taken, repeated, expired, refused, damaged, foreign (checkpoint) or unknown (verb)."""
    wall: int
    """The wall time of the decision, by which `expires` was judged (I6)."""
    message: str = ""
    about: str = ""
    """The computation or the savepoint that it is about."""
    arguments: dict[str, Any] = {}
    """The arguments of the request, if it was taken; the ledger does not keep them."""
    savepoint: Savepoint | None = None
    """The savepoint that was taken."""
    done: str = ""
    """How the effect was completed, once it is; the ledger computes it."""


class Answer(msgspec.Struct, frozen=True):
    """What the requester reads: a copy of what the log says about its request."""

    position: int
    nonce: str
    command: str
    verb: str
    verdict: str
    """That of the outcome; `done` in the second answer, when the effect is complete."""
    wall: int
    message: str = ""


class ControlState(msgspec.Struct, frozen=True):
    """What the ledger knows of requests: how far the queue is decided, and the wanted state."""

    cursor: int = 0
    """The last position of the queue that has an outcome."""
    outcomes: tuple[Outcome, ...] = ()
    """The last outcomes, oldest first."""
    commands: tuple[str, ...] = ()
    """The last commands that were taken, oldest first: longer than their outcomes are kept."""
    paused: bool = False
    stop: str = ""
    """"" (none), "asked" (taken, not completed) or "stopped"."""
    savepoints: dict[str, Savepoint] = {}
    compact: dict[str, int] = {}
    """Computation -> the epoch up to which all its segments are to be merged, as a request asks."""

    def with_outcome(self, outcome: Outcome, kept: int) -> ControlState:
        """The state after one more outcome; `kept`: how many are remembered."""
        brief = msgspec.structs.replace(outcome, arguments={}, savepoint=None)
        taken = (outcome.command,) if outcome.verdict == TAKEN else ()
        return msgspec.structs.replace(
            self,
            cursor=max(self.cursor, outcome.position),
            outcomes=(*self.outcomes, brief)[-kept:],
            commands=(*self.commands, *taken)[-COMMANDS_KEPT:],
        )

    def done(self, nonce: str, text: str) -> ControlState:
        """The state after the effect of a request is complete."""
        found = tuple(
            msgspec.structs.replace(each, done=text) if each.nonce == nonce else each
            for each in self.outcomes
        )
        return msgspec.structs.replace(self, outcomes=found)

    def has_taken(self, command: str) -> bool:
        """Whether a request for this command has taken effect, as far as that is remembered."""
        return command in self.commands

    def at(self, position: int) -> Outcome | None:
        """The outcome of a position; None if it is not decided, or not kept any more."""
        return next((each for each in self.outcomes if each.position == position), None)


def is_epoch(name: str) -> bool:
    """Whether a text is the number of an epoch, and so no name of a savepoint."""
    return name.isascii() and name.isdigit() and len(name) <= EPOCH_DIGITS_MAX


def answer_of(outcome: Outcome) -> Answer:
    """The answer to a request."""
    return Answer(
        outcome.position,
        outcome.nonce,
        outcome.command,
        outcome.verb,
        outcome.verdict,
        outcome.wall,
        outcome.message,
    )


def done_of(outcome: Outcome) -> Answer:
    """The second answer, when the effect is complete."""
    return msgspec.structs.replace(answer_of(outcome), verdict="done", message=outcome.done)
