"""The code in force, and its probation, as a fold over entries of the log (L1 to L6).

Pure: every driver that reads the same log knows the same code in force. What an entry means is
decided at its position: a generation that came too late changes nothing here.

Invariants: at most one probation; it is confirmed or rolled back, never both; a candidate leads
only after a hand-over to it, once.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.plan.deploy.comparison import RESTORE
from headrace.plan.deploy.contract import Contract

START, STANDBY, CANDIDATE, GUARD = "start", "standby", "candidate", "guard"
"""As what a driver takes over: by a person, by itself, by a hand-over, to take a deploy back."""

CONFIRMED, ROLLED_BACK, LAPSED = "confirmed", "rolled back", "lapsed"


class GenerationBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a generation entry: as what its driver leads, and with which code."""

    generation: int
    role: str = START
    fingerprint: str = ""
    """The driver's code; "" in the logs of older versions."""
    contract: Contract | None = None
    """Given where the driver changes the code in force."""
    candidate: str = ""
    """Of a candidate: its id."""
    confirms: bool = False
    """Whether a person confirms the code that is on probation."""
    reason: str = ""
    """Of a guard: why it takes the deploy back."""
    by_itself: bool = False
    """Whether no person started it now (a standby, a guard, a supervisor): no stop ends (I9)."""


class DeployWish(msgspec.Struct, frozen=True, omit_defaults=True):
    """A deploy that a leader has accepted: it hands over at the first commit that allows it."""

    candidate: str
    fingerprint: str
    contract: Contract
    mode: str
    expects: str
    """The code in force that the candidate compared itself with."""
    confirm_after: int
    """In which commit of the candidate the deploy is confirmed."""
    seconds: float
    """How long the guard waits for a sign of progress."""
    expires: int
    """The wall time, in microseconds, at which the wish lapses."""
    drain: tuple[str, ...] = ()
    """Consumers whose feedback rows must have been delivered."""
    dropped: tuple[str, ...] = ()
    """Computations whose state is given up at the hand-over, because a person said so."""
    feeds: dict[str, tuple[str, ...]] = {}
    """New computation -> the hosts of its inputs."""


def wish_in(arguments: dict[str, Any]) -> DeployWish:
    """The wish in the arguments of a request; msgspec.ValidationError if there is none."""
    return msgspec.convert(arguments.get("wish"), DeployWish)


def arguments_of(wish: DeployWish) -> dict[str, Any]:
    """A wish as the arguments of a request, which is about its candidate."""
    return {"name": wish.candidate, "wish": msgspec.to_builtins(wish)}


class Probation(msgspec.Struct, frozen=True, omit_defaults=True):
    """From a hand-over to its confirmation or rollback."""

    candidate: str
    fingerprint: str
    contract: Contract
    mode: str
    epoch: int
    """The last epoch of the former code: h."""
    confirm_after: int
    seconds: float
    taken: int = 0
    """The generation of the candidate; 0 until it has taken over."""
    commits: int = 0
    """How many epochs the candidate has committed."""
    withdrawn: str = ""
    """Why a person wants it taken back, if one does: the candidate lets go, the guard leads."""


class DeployEnd(msgspec.Struct, frozen=True):
    """How the last deploy ended."""

    candidate: str
    verdict: str
    epoch: int
    """The last committed epoch at that moment."""
    reason: str = ""


class CodeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which code may lead."""

    fingerprint: str = ""
    """The code in force; in a probation the former code. "" if it is not known."""
    contract: Contract | None = None
    probation: Probation | None = None
    wish: DeployWish | None = None
    held: int | None = None
    """Epochs after this one may lie undelivered: a restore-mode probation, until the next commit
    after its end."""
    last: DeployEnd | None = None

    @property
    def is_held(self) -> bool:
        """Whether effects on the outside wait for the end of a probation."""
        return self.probation is not None and self.probation.mode == RESTORE


def new_sinks(code: CodeState) -> frozenset[str]:
    """Sinks that the code on probation has and the former code had not."""
    if code.probation is None or code.contract is None:
        return frozenset()
    return frozenset(code.probation.contract.sinks) - frozenset(code.contract.sinks)


class Handover(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a hand-over entry: the leader writes nothing after it."""

    candidate: str
    fingerprint: str
    contract: Contract
    mode: str
    epoch: int
    confirm_after: int
    seconds: float
    dropped: tuple[str, ...] = ()
    starts: dict[str, int] = {}
    """New computation -> its watermark: it starts at the present, not at the beginning (L8)."""


class ConfirmBody(msgspec.Struct, frozen=True):
    """The body of a confirm entry."""

    candidate: str


class LapseBody(msgspec.Struct, frozen=True):
    """The body of a lapse entry: a wish that could not be carried out in time."""

    candidate: str
    reason: str = ""


def wished(code: CodeState, wish: DeployWish) -> CodeState:
    """After a deploy was accepted. A newer wish replaces one that was not carried out."""
    return msgspec.structs.replace(code, wish=wish)


def withdrawn(code: CodeState, reason: str) -> CodeState:
    """After a person asked to take the deploy back."""
    if code.probation is None:
        return code
    probation = msgspec.structs.replace(code.probation, withdrawn=reason)
    return msgspec.structs.replace(code, probation=probation)


def lapsed(code: CodeState, body: LapseBody, epoch: int) -> CodeState:
    """After a wish has lapsed."""
    if code.wish is None or code.wish.candidate != body.candidate:
        return code
    end = DeployEnd(body.candidate, LAPSED, epoch, body.reason)
    return msgspec.structs.replace(code, wish=None, last=end)


def handed_over(code: CodeState, body: Handover) -> CodeState:
    """After a hand-over."""
    probation = Probation(
        body.candidate, body.fingerprint, body.contract, body.mode, body.epoch,
        body.confirm_after, body.seconds,
    )  # fmt: skip
    held = body.epoch if body.mode == RESTORE else None
    return msgspec.structs.replace(code, probation=probation, wish=None, held=held)


def led(code: CodeState, body: GenerationBody, epoch: int) -> CodeState:
    """After a driver took over; `epoch` is the last committed one."""
    found = code.probation
    if found is None:
        unknown = not code.fingerprint and body.fingerprint
        if body.fingerprint and (body.role == START or unknown):
            contract = body.contract or code.contract
            return msgspec.structs.replace(code, fingerprint=body.fingerprint, contract=contract)
        return code
    if takes(code, body):
        taken = msgspec.structs.replace(found, taken=body.generation)
        return msgspec.structs.replace(code, probation=taken)
    if rolls_back(code, body):
        end = DeployEnd(found.candidate, ROLLED_BACK, epoch, body.reason)
        return msgspec.structs.replace(code, probation=None, last=end)
    if body.confirms and body.fingerprint == found.fingerprint:
        return confirmed(code, epoch)
    return code


def takes(code: CodeState, body: GenerationBody) -> bool:
    """Whether this generation is the candidate's, and the hand-over is to it and not taken (L4)."""
    found = code.probation
    return (
        found is not None
        and body.role == CANDIDATE
        and body.candidate == found.candidate
        and not found.taken
    )


def rolls_back(code: CodeState, body: GenerationBody) -> bool:
    """Whether this generation takes a deploy back: a probation is open here (L5)."""
    return (
        code.probation is not None and body.role == GUARD and body.fingerprint == code.fingerprint
    )


def committed(code: CodeState) -> CodeState:
    """After a commit: in a probation it counts; after one, what was held has been delivered."""
    if code.probation is None:
        return code if code.held is None else msgspec.structs.replace(code, held=None)
    probation = msgspec.structs.replace(code.probation, commits=code.probation.commits + 1)
    return msgspec.structs.replace(code, probation=probation)


def confirmed(code: CodeState, epoch: int) -> CodeState:
    """After a confirmation. From here on there is no automatic way back."""
    found = code.probation
    if found is None:
        return code
    return msgspec.structs.replace(
        code,
        fingerprint=found.fingerprint,
        contract=found.contract,
        probation=None,
        last=DeployEnd(found.candidate, CONFIRMED, epoch),
    )
