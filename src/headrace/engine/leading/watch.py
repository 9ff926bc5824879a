"""What a driver that follows may do next: wait, take over, take a deploy back, or end (L1, L4, L5).

It joins two views. The log says which code may lead; the lease says whether the leader is alive.
The decision is pure: what was read and the time by the driver's own monotonic clock are its input.
A guard that is hasty costs a deploy, never a record: the log judges again at the position of the
generation.
"""

from __future__ import annotations

import msgspec

from headrace.engine.leading.lease import (
    KeepWaiting,
    LeaderFinished,
    Lease,
    LeaseObserver,
    TakeOver,
    Verdict,
)
from headrace.plan.deploy.code import CANDIDATE, GUARD, CodeState, Probation
from headrace.plan.deploy.roles import superseded
from headrace.plan.ledger import Ledger


class Superseded(msgspec.Struct, frozen=True):
    """Other code is in force: this driver will not lead any more."""

    text: str
    was_in_force: bool
    """Whether its code was in force before, while it followed."""


class DeployFailed(msgspec.Struct, frozen=True):
    """The deploy of this candidate has ended without a hand-over to it."""

    text: str


class CodeWatch:
    """Judges for one driver; `candidate` is its id if it waits for a hand-over."""

    def __init__(self, fingerprint: str, observer: LeaseObserver, candidate: str = "") -> None:
        self._mine = fingerprint
        self._observer = observer
        self._candidate = candidate
        self._was_in_force = False
        self._stamp: tuple[int, int] | None = None
        self._since = 0.0
        self._plan: tuple[int, int] | None = None
        self._plan_since = 0.0

    def look(
        self, ledger: Ledger, generation: int, lease: Lease | None, now: float
    ) -> Verdict | Superseded | DeployFailed:
        """The verdict on the log as it was read, and on the lease that was read after it."""
        code, found = ledger.code, ledger.code.probation
        seen = self._observer.look(generation, lease, now)
        if self._candidate:
            return self._as_candidate(code, generation, seen)
        if code.fingerprint == self._mine:
            self._was_in_force = True
        elif code.fingerprint and found is None:
            return Superseded(self._why(code), self._was_in_force)
        if found is None:
            return seen
        if code.fingerprint != self._mine:
            return KeepWaiting(f"code {found.fingerprint} is on probation")
        return self._as_guard(ledger, found, generation, seen, now)

    def _why(self, code: CodeState) -> str:
        if not self._was_in_force:
            return superseded(code, self._mine)
        return f"code {code.fingerprint} is in force now; this driver ({self._mine}) is not needed"

    def unreadable(self) -> None:
        """Restarts all waiting times, because the checkpoint is unavailable."""
        self._observer.unreadable()
        self._stamp = self._plan = None

    def _as_candidate(
        self, code: CodeState, generation: int, seen: Verdict
    ) -> Verdict | DeployFailed:
        """Its wish is in the log before it waits, and stays until one of these ends it."""
        found, wish, mine = code.probation, code.wish, self._candidate
        if found is not None and found.candidate == mine:
            if found.taken:
                return KeepWaiting("it has taken over, and could not begin")
            return TakeOver(generation, f"the hand-over at epoch {found.epoch} is to it", CANDIDATE)
        if code.last is not None and code.last.candidate == mine:
            return DeployFailed(f"{code.last.verdict}: {code.last.reason}")
        if wish is None or wish.candidate != mine:
            return DeployFailed("another deploy has superseded it")
        if isinstance(seen, LeaderFinished):
            return DeployFailed(seen.text)
        if isinstance(seen, TakeOver):  # only a standby of the code in force may take over
            return KeepWaiting("no driver leads; waiting for one to hand over")
        return KeepWaiting("waiting for the hand-over")

    def _as_guard(
        self, ledger: Ledger, found: Probation, generation: int, seen: Verdict, now: float
    ) -> Verdict:
        stamp = (generation, found.taken)
        if stamp != self._stamp:
            self._stamp, self._since = stamp, now
        plan = ledger.open_plan
        open_plan = None if plan is None else (plan.epoch, plan.wall)
        if open_plan != self._plan:
            self._plan, self._plan_since = open_plan, now
        if found.withdrawn:
            return TakeOver(generation, f"guard: {found.withdrawn}", GUARD)
        if not found.taken:
            silent = now - self._since
            if silent < found.seconds:
                return KeepWaiting("guard: waiting for the candidate to take over")
            text = f"guard: the candidate has not taken over for {silent:.0f} s"
            return TakeOver(generation, text, GUARD)
        if isinstance(seen, TakeOver):
            return TakeOver(seen.generation, f"guard: {seen.text}", GUARD)
        if open_plan is not None and now - self._plan_since >= found.seconds:
            text = f"guard: epoch {open_plan[0]} has been open for {now - self._plan_since:.0f} s"
            return TakeOver(generation, text, GUARD)
        return KeepWaiting(
            f"guard: the new code is on probation, {found.commits} of {found.confirm_after} epochs"
        )
