"""Commands to a pipeline from outside: through the checkpoint's store, from any machine (I).

`Remote("s3://bucket/orders").pause()` puts a request, waits for what the log says about it, and
returns that. Whoever may write into a checkpoint may command its pipeline: there is no port and no
token. Where no driver hears, it says so; it never concludes that from its own clock alone.
"""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.control.requester import QueuedRequest, Requester
from headrace.engine.history.recovery import recover
from headrace.engine.leading.alone import leader_of
from headrace.engine.leading.lease import HELD, Lease, read_lease
from headrace.engine.primitives.durable import durable_epoch
from headrace.errors import HeadraceError, IncompatibleState, InvalidPipeline, Unheard
from headrace.log.epochlog import EpochLog
from headrace.log.identity import read_identity
from headrace.plan.control import (
    COMPACT,
    DROP_SAVEPOINT,
    MAKE_DURABLE,
    PAUSE,
    REPEATED,
    RESCALE,
    RESUME,
    ROLLBACK,
    SAVEPOINT,
    STOP,
    STOPPED,
    TAKEN,
    ControlRequest,
    ControlState,
)
from headrace.plan.ledger import Ledger
from headrace.store.location import checkpoint_store, no_checkpoint
from headrace.store.store import Store

EXPIRES_S = 600.0
"""How long a request stays in the queue before a leader refuses it, by default."""
SLOW_S = 3.0
"""An effect that takes longer is announced."""
SILENCE_LEASES = 3
"""A leader whose lease has not changed for so many lengths does not hear."""
SILENCE_S_MIN = 10.0


class CommandResult(msgspec.Struct, frozen=True):
    """What became of a command."""

    verdict: str
    """taken, or repeated if an earlier request for the same command was taken."""
    message: str
    """How its effect was completed; empty if it was not waited for."""
    position: int
    """Its place in the queue of requests."""


class Remote:
    """A pipeline that runs elsewhere, by the location of its checkpoint."""

    def __init__(self, checkpoint: str | os.PathLike[str] | Store) -> None:
        self.store = checkpoint_store(checkpoint)
        identity = read_identity(self.store)
        if identity is None:
            raise no_checkpoint(self.store)
        self.id, self.pipeline = identity.id, identity.pipeline

    def pause(self, **options: Any) -> CommandResult:
        """Pauses after the current epoch; a driver that takes over stays paused."""
        return self.ask(PAUSE, {}, **options)

    def resume(self, **options: Any) -> CommandResult:
        """Continues after a pause."""
        return self.ask(RESUME, {}, **options)

    def stop(self, **options: Any) -> CommandResult:
        """Stops after the current epoch; standbys end as well, until a person starts it again."""
        return self.ask(STOP, {}, **options)

    def rescale(self, computation: str, slots: int, **options: Any) -> CommandResult:
        """Gives a computation another number of slots."""
        return self.ask(RESCALE, {"computation": computation, "slots": slots}, **options)

    def savepoint(self, name: str, **options: Any) -> CommandResult:
        """Keeps the state of the last commit under a name."""
        return self.ask(SAVEPOINT, {"name": name}, **options)

    def rollback(self, **options: Any) -> CommandResult:
        """Takes a deploy back that is on probation."""
        return self.ask(ROLLBACK, {}, **options)

    def drop_savepoint(self, name: str, **options: Any) -> CommandResult:
        """Drops a savepoint."""
        return self.ask(DROP_SAVEPOINT, {"name": name}, **options)

    def compact(self, computation: str | None = None, **options: Any) -> CommandResult:
        """Merges all segments of each slot, of one computation or of all, while epochs go on."""
        return self.ask(
            COMPACT, {} if computation is None else {"computation": computation}, **options
        )

    def checkpoint(self, **options: Any) -> int:
        """Makes the state of the last epoch durable now; returns the last epoch that is.

        Where every epoch is durable, or no driver leads, nothing is asked.
        """
        ledger = self.ledger()
        if not ledger.interval.is_durable and self.is_running():
            self.ask(MAKE_DURABLE, {}, **options)
            ledger = self.ledger()
        return durable_epoch(ledger)

    def ask(
        self,
        verb: str,
        arguments: dict[str, Any],
        *,
        expects: dict[str, int | str] | None = None,
        command: str = "",
        expires_s: float = EXPIRES_S,
        timeout_s: float | None = None,
        done: bool = True,
        on_taken: Callable[[int], None] = lambda position: None,
    ) -> CommandResult:
        """Asks, waits for the decision and (with `done`) for its effect, and says what it was.

        - `command`: an id; of several requests with one id, one takes effect.
        - `timeout_s`: how long to wait; by default for as long as a driver shows signs of life.
        - `on_taken`: called with the request's position if its effect takes a while.

        InvalidPipeline if the request was refused, Unheard if no driver has answered.
        """
        self.require_running(verb)
        system = self.store.system
        nonce = system.token_hex(8)
        request = ControlRequest(
            self.id,
            nonce,
            command or nonce,
            verb,
            arguments,
            int((system.wall_s() + expires_s) * 1e6),
            expects or {},
            f"{_user()}@{platform.node()}",
        )
        listening = Listening(self.store, timeout_s)
        requester = Requester(self.store, self._decided)
        asked = requester.ask(request, give_up=listening.is_over)
        began = system.uptime_s()

        def takes_a_while() -> bool:
            slow = asked.answer is not None and system.uptime_s() - began >= SLOW_S
            return slow or listening.is_over()

        requester.wait(asked, done=done, give_up=takes_a_while)
        if asked.answer is not None and not listening.why:
            if done and asked.answer.verdict == TAKEN and asked.done is None:
                on_taken(asked.position)
            requester.wait(asked, done=done, give_up=listening.is_over)
        return self._result(asked, listening, expires_s, done)

    def _result(
        self, asked: QueuedRequest, listening: Listening, expires_s: float, done: bool
    ) -> CommandResult:
        answer, verb = asked.answer, asked.request.verb
        where = self.store.where()
        if answer is None:
            raise Unheard(
                f"{verb}: no driver has answered on {where}: {listening.why}. Request "
                f"{asked.position} stays in the queue: a driver that leads within "
                f"{expires_s:,.0f} s of the request still takes it. `headrace status` shows that"
            )
        if answer.verdict not in (TAKEN, REPEATED):
            raise InvalidPipeline(f"{verb}: {answer.verdict}: {answer.message}")
        if done and answer.verdict == TAKEN and asked.done is None:
            raise Unheard(
                f"{verb} was taken, and its effect is not complete yet: {listening.why}. It stands "
                f"in the log of {where}, so whoever leads completes it"
            )
        message = asked.done.message if asked.done is not None else answer.message
        return CommandResult(answer.verdict, message, asked.position)

    def require_running(self, verb: str) -> None:
        """Refuses where no driver can hear: nothing is put, so that no later start takes it."""
        ledger, lease = self.ledger(), read_lease(self.store)
        if ledger.control.stop == STOPPED:
            raise IncompatibleState(
                f"{verb}: pipeline {self.pipeline!r} on {self.store.where()} is stopped, after "
                f"epoch {ledger.epoch}; start it with `headrace run`"
            )
        ended = lease is None or lease.state != HELD or lease.generation < ledger.generation
        if ended:
            why = f" ({lease.reason})" if lease is not None and lease.reason else ""
            raise IncompatibleState(
                f"{verb}: pipeline {self.pipeline!r} does not run on {self.store.where()}: its "
                f"last driver has ended{why}, after epoch {ledger.epoch}; start it with "
                "`headrace run`"
            )

    def is_running(self) -> bool:
        """Whether a driver leads: its lease is observed, for its length at most."""
        log = EpochLog(self.store)
        stopped = recover(log, 1).ledger.control.stop == STOPPED
        return not stopped and leader_of(self.store, log) is not None

    def ledger(self) -> Ledger:
        """The sum of the log."""
        return recover(EpochLog(self.store), 1).ledger

    def _decided(self) -> ControlState:
        return self.ledger().control


class Listening:
    """Whether some driver still hears: its lease changes, by this machine's monotonic clock."""

    def __init__(self, store: Store, timeout_s: float | None) -> None:
        self._store = store
        self._began = self._since = store.system.uptime_s()
        self._timeout_s = timeout_s
        self._seen: Lease | None = None
        self.why = ""

    def is_over(self) -> bool:
        """Whether waiting on is pointless; `why` then says why."""
        now = self._store.system.uptime_s()
        if self._timeout_s is not None and now - self._began >= self._timeout_s:
            self.why = f"none came within {self._timeout_s:,.0f} s"
            return True
        try:
            lease = read_lease(self._store)
        except (OSError, HeadraceError):
            return False  # Neither do drivers reach the store: nothing is known of them.
        if lease != self._seen:
            self._seen, self._since = lease, now
        length_s = lease.length_s if lease is not None else 0.0
        silent_s, limit_s = now - self._since, max(SILENCE_S_MIN, SILENCE_LEASES * length_s)
        if silent_s < limit_s:
            return False
        if lease is None:
            self.why = "there is no lease"
        elif lease.state != HELD:
            self.why = f"driver generation {lease.generation} has ended ({lease.reason})"
        else:
            self.why = (
                f"driver generation {lease.generation} has shown no sign of life for "
                f"{silent_s:,.0f} s"
            )
        return True


def _user(ask: Callable[[], str] = getpass.getuser) -> str:
    try:
        return ask()
    except (OSError, KeyError, ImportError):
        return "unknown"
