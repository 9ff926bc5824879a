"""Who may lead now: judged from the log alone, at the very position of the generation (L1, L4, L5).

A driver that wants to lead says so by a `LeadingRole`. `generation_of` turns that into the body of
a generation entry, or refuses. It is asked again whenever another entry came first.
"""

from __future__ import annotations

import msgspec

from headrace.errors import IncompatibleState
from headrace.plan.deploy.code import CANDIDATE, GUARD, STANDBY, START, CodeState, GenerationBody
from headrace.plan.deploy.contract import Contract


class NotInForce(Exception):
    """This driver may not lead now: the log says so. It may follow on, or end."""


class LeadingRole(msgspec.Struct, frozen=True):
    """As what a driver wants to lead."""

    role: str
    fingerprint: str
    contract: Contract | None = None
    candidate: str = ""
    replace: bool = True
    """Whether a person's start may replace the code in force."""
    confirm: bool = False
    """Whether a person's start confirms the code that is on probation."""
    reason: str = ""


def generation_of(code: CodeState, wanted: LeadingRole, generation: int) -> GenerationBody:
    """The generation entry of a driver; NotInForce or IncompatibleState if it may not lead."""
    judge = {START: _start, STANDBY: _standby, CANDIDATE: _candidate, GUARD: _guard}[wanted.role]
    role, contract = judge(code, wanted)
    return GenerationBody(
        generation,
        role,
        wanted.fingerprint,
        contract=contract,
        candidate=wanted.candidate if role == CANDIDATE else "",
        confirms=role == START and code.probation is not None,
        reason=wanted.reason if role == GUARD else "",
    )


def _start(code: CodeState, wanted: LeadingRole) -> tuple[str, Contract | None]:
    mine, probation = wanted.fingerprint, code.probation
    if probation is None:
        if code.fingerprint in ("", mine):
            return START, wanted.contract if code.contract is None else None
        if wanted.replace:
            return START, wanted.contract
        raise IncompatibleState(
            f"the code in force is {code.fingerprint}, and this is {mine}: deploy it beside the "
            "running one (headrace deploy CHECKPOINT MODULE:NAME), or start with --replace to put "
            "it in force"
        )
    if mine == code.fingerprint:
        return GUARD, None
    if mine == probation.fingerprint and wanted.confirm:
        return START, wanted.contract
    raise IncompatibleState(_in_probation(code, mine))


def _in_probation(code: CodeState, mine: str) -> str:
    found = code.probation
    if found is None:
        return ""
    if mine == found.fingerprint:
        return (
            f"this code ({mine}) is on probation since epoch {found.epoch}: start the former code "
            f"({code.fingerprint}) to take the deploy back, or start this one with --confirm"
        )
    return (
        f"code {found.fingerprint} is on probation since epoch {found.epoch}, and this is {mine}: "
        f"start the former code ({code.fingerprint}) to take the deploy back, or that code with "
        "--confirm"
    )


def _standby(code: CodeState, wanted: LeadingRole) -> tuple[str, Contract | None]:
    if code.probation is not None:
        raise NotInForce("a deploy is on probation: only its candidate or a guard may lead")
    if code.fingerprint not in ("", wanted.fingerprint):
        raise NotInForce(superseded(code, wanted.fingerprint))
    return STANDBY, wanted.contract if not code.fingerprint else None


def _candidate(code: CodeState, wanted: LeadingRole) -> tuple[str, Contract | None]:
    found = code.probation
    if found is None or found.candidate != wanted.candidate or found.taken:
        raise NotInForce("the hand-over is not to this candidate, or not any more")
    return CANDIDATE, None


def _guard(code: CodeState, wanted: LeadingRole) -> tuple[str, Contract | None]:
    if code.probation is None or code.fingerprint != wanted.fingerprint:
        raise NotInForce("there is nothing to take back")
    return GUARD, None


def superseded(code: CodeState, mine: str) -> str:
    """Says that other code is in force."""
    return f"the code in force is {code.fingerprint}, and this is {mine}"
