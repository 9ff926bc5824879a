"""Deliberate bugs in deploys: clauses of section L taken out, which schedules of deploys find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from headrace.engine.deploy import candidate as candidates
from headrace.engine.driver import follower
from headrace.engine.driver.deploying import LeadersDeploy
from headrace.engine.driver.follower import Follower
from headrace.engine.history import recovery
from headrace.engine.leading.watch import CodeWatch
from headrace.log.entry import HANDOVER
from headrace.plan.decisions import control as deciding
from headrace.plan.deploy import fold, handover, roles
from headrace.plan.deploy.code import CANDIDATE, GUARD, STANDBY, CodeState, Handover
from headrace.plan.deploy.comparison import FORWARD, compare
from headrace.plan.ledger import Ledger

__all__ = [
    "a_guard_does_not_look_again",
    "a_late_candidate_leads",
    "a_second_probation_begins",
    "a_standby_of_any_code_takes_over",
    "cells_that_the_old_code_cannot_read_count_as_forward",
    "confirmations_stay_in_memory",
    "epoch_numbers_are_used_again",
    "held_rows_are_delivered",
    "sources_are_told_in_a_probation",
    "the_old_leader_goes_on",
    "the_savepoint_is_not_kept",
]


@contextmanager
def _patched(*given: tuple[Any, str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for target, name, value in given:
            stack.enter_context(patch.object(target, name, value))
        yield


def held_rows_are_delivered() -> AbstractContextManager[Any]:
    """L6: rows of a probation in restore mode reach the sinks at once."""
    nothing = lambda self: None  # noqa: E731
    return _patched((LeadersDeploy, "hold", nothing), (LeadersDeploy, "released", nothing))


def sources_are_told_in_a_probation() -> AbstractContextManager[Any]:
    """L6: sources hear in a probation that nobody reads their input again."""
    holds = LeadersDeploy.holds.fget  # type: ignore[attr-defined]

    def asked(self: LeadersDeploy) -> bool:
        # The deliverer is told the truth; whoever else asks is not.
        self._deliverer.holds = holds(self)
        return False

    truth = lambda self: setattr(self._deliverer, "holds", holds(self))  # noqa: E731
    return _patched(
        (LeadersDeploy, "holds", property(asked)),
        (LeadersDeploy, "hold", truth),
        (LeadersDeploy, "released", truth),
    )


def epoch_numbers_are_used_again() -> AbstractContextManager[Any]:
    """L6: a rollback counts from the hand-over on, so that one epoch has two commits."""
    grows = tuple(name for name in fold._GROWS if name not in ("epoch", "commit_position"))
    return patch.object(fold, "_GROWS", grows)


def _judged_once(role: str) -> AbstractContextManager[Any]:
    """A driver in this role is judged before its put, and not again at its position."""
    judge, known = roles.generation_of, list[tuple[Any, Any]]()

    def once(code: CodeState, wanted: Any, generation: int) -> Any:
        for asked, body in known:
            if asked is wanted:
                return msgspec.structs.replace(body, generation=generation)
        body = judge(code, wanted, generation)
        if body.role == role:
            known.append((wanted, body))
        return body

    return patch.object(follower, "generation_of", once)


def a_late_candidate_leads() -> AbstractContextManager[Any]:
    """L4: the hand-over is looked at before the generation is put, and not at its position."""
    take_over = Follower.take_over

    def careless(self: Follower, lapsed: int | None = None, **given: Any) -> Any:
        role = given.get("role")
        late = role is not None and role.role == CANDIDATE
        return take_over(self, None if late else lapsed, **given)

    @contextmanager
    def both() -> Iterator[None]:
        with _judged_once(CANDIDATE), patch.object(Follower, "take_over", careless):
            yield

    return both()


def a_guard_does_not_look_again() -> AbstractContextManager[Any]:
    """L5: a guard judges before it puts its generation, and not at its position."""
    return _judged_once(GUARD)


def a_standby_of_any_code_takes_over() -> AbstractContextManager[Any]:
    """L1: a standby takes over when the lease lapses, whatever its code is."""
    look = CodeWatch.look

    def careless(self: CodeWatch, ledger: Ledger, *given: Any) -> Any:
        if ledger.code.probation is None and not self._candidate:
            return self._observer.look(*given)
        return look(self, ledger, *given)

    def anybody(code: CodeState, wanted: Any) -> Any:
        return STANDBY, None

    return _patched((CodeWatch, "look", careless), (roles, "_standby", anybody))


def confirmations_stay_in_memory() -> AbstractContextManager[Any]:
    """L5: the candidate confirms, and the log does not say so."""
    confirms = LeadersDeploy.confirms_with_commit

    def silently(self: LeadersDeploy) -> bool:
        confirms(self)
        return False

    return patch.object(LeadersDeploy, "confirms_with_commit", silently)


def the_savepoint_is_not_kept() -> AbstractContextManager[Any]:
    """L6: what the ledger at the hand-over names is collected in the probation."""
    remember = recovery.History._remember

    def forgetful(self: Any, *given: Any) -> None:
        code = self.ledger.code
        self.ledger.code = msgspec.structs.replace(code, held=None)
        remember(self, *given)
        self.ledger.code = code

    return patch.object(recovery.History, "_remember", forgetful)


def a_second_probation_begins() -> AbstractContextManager[Any]:
    """L3: a deploy is accepted, and carried out, while another is on probation."""
    judge = handover.judge_wish

    def lax(ledger: Ledger, wish: Any) -> str:
        alone = msgspec.structs.replace(ledger.code, probation=None)
        known, ledger.code = ledger.code, alone
        try:
            return judge(ledger, msgspec.structs.replace(wish, expects=alone.fingerprint))
        finally:
            ledger.code = known

    def compared(new: Any, meant: Any) -> Any:
        new.follow()
        known = new.ledger.code.contract
        return compare(known, new.contract, handover.facts_of(new.ledger), meant)

    return _patched(
        (handover, "judge_wish", lax),
        (deciding, "judge_wish", lax),
        (candidates, "compared", compared),
    )


def cells_that_the_old_code_cannot_read_count_as_forward() -> AbstractContextManager[Any]:
    """L6: the mode is forward, though the former code cannot read what the new one writes."""

    def bold(*given: Any) -> Any:
        return msgspec.structs.replace(compare(*given), mode=FORWARD)

    return patch.object(candidates, "compare", bold)


def the_old_leader_goes_on() -> AbstractContextManager[Any]:
    """L3: after the hand-over the old leader plans and commits as before."""

    def absent_minded(self: LeadersDeploy) -> None:
        if self._ledger.code.probation is not None:
            return
        move = handover.next_move(self._ledger, self._deliverer.acknowledged(), self._clock())
        if isinstance(move, Handover):
            self._log.append(HANDOVER, move)
            fold.handed_over(self._ledger, move)

    return _patched((LeadersDeploy, "hand_over", absent_minded))
