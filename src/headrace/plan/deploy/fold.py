"""What the entries of a deploy do to a ledger: hand-over, generations, confirmation (L3 to L6).

In a restore-mode probation the ledger keeps a copy of itself as it was at the hand-over. A rollback
puts that copy back, except for what only grows: epoch numbers, wall time, generations. Epochs of
the probation stay in the log as epochs without rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.model.values.time import END
from headrace.plan.control import DEPLOY, TAKEN
from headrace.plan.deploy import code as codes
from headrace.plan.deploy.code import ConfirmBody, GenerationBody, Handover, LapseBody
from headrace.plan.deploy.comparison import RESTORE
from headrace.plan.epoch import Plan
from headrace.plan.ledger import Ledger

_GROWS = (
    "epoch",
    "wall",
    "generation",
    "commit_position",
    "code",
    "saved",
    "wanted",
    "control",
    "applied",
)
"""Fields that a rollback leaves as they are: wanted rings stay wanted (L10)."""


def handed_over(ledger: Ledger, body: Handover) -> None:
    """Applies a hand-over. State that a person gives up by name leaves the ledger here."""
    saved = copy_of(ledger)
    for name in body.dropped:
        for mapping in (ledger.outbox, ledger.keys):
            mapping.pop(name, None)
        ledger.forget_ring(name)
        ledger.applied = ledger.applied.forgotten(name, ledger.epoch)
    ledger.ins = {**ledger.ins, **body.starts}
    ledger.code = codes.handed_over(ledger.code, body)
    ledger.saved = saved if body.mode == RESTORE else None


def led(ledger: Ledger, body: GenerationBody) -> bool:
    """Applies a generation; returns whether it went back to the state at the hand-over."""
    before = ledger.code
    ledger.code = codes.led(before, body, ledger.epoch)
    _ended(ledger)
    if before.probation is None or ledger.code.probation is not None:
        return False
    saved, ledger.saved = ledger.saved, None
    if saved is None or not codes.rolls_back(before, body):
        return False
    ledger.open_plan = None
    for name in ledger.__struct_fields__:
        if name not in _GROWS:
            setattr(ledger, name, getattr(saved, name))
    # What the store has does not go back, but which cells a computation has does.
    ledger.applied = msgspec.structs.replace(ledger.applied, names=saved.applied.names)
    return True


def committed(ledger: Ledger, plan: Plan | None) -> None:
    """Counts a commit; its calls count as those of a voided plan if the deploy is taken back."""
    ledger.code = codes.committed(ledger.code)
    if ledger.saved is not None and plan is not None and plan.determinants:
        ledger.saved.given_up_with(plan)


def confirmed(ledger: Ledger) -> None:
    """Applies a confirmation."""
    ledger.code = codes.confirmed(ledger.code, ledger.epoch)
    ledger.saved = None
    _ended(ledger)


def confirm(ledger: Ledger, body: ConfirmBody) -> None:
    """Applies a confirm entry; it is the candidate's own."""
    found = ledger.code.probation
    if found is not None and found.candidate == body.candidate:
        confirmed(ledger)


def lapsed(ledger: Ledger, body: LapseBody) -> None:
    """Applies the lapse of a wish."""
    ledger.code = codes.lapsed(ledger.code, body, ledger.epoch)
    _ended(ledger)


def _ended(ledger: Ledger) -> None:
    """Notes at the request for a deploy how the deploy has ended (I4)."""
    if (last := ledger.code.last) is not None:
        why = f": {last.reason}" if last.reason else ""
        done_with_deploy(ledger, last.candidate, f"{last.verdict} after epoch {last.epoch}{why}")


def done_with_deploy(ledger: Ledger, candidate: str, text: str) -> None:
    """Notes that the effect of the request of a candidate is complete."""
    for each in ledger.control.outcomes:
        mine = each.verb == DEPLOY and each.about == candidate
        if mine and each.verdict == TAKEN and not each.done:
            ledger.control = ledger.control.done(each.nonce, text)


def copy_of(ledger: Ledger) -> Ledger:
    """A copy that later entries do not change. What lies in its maps is never changed in place."""
    values = {name: _copied(getattr(ledger, name)) for name in ledger.__struct_fields__}
    values.update(code=codes.CodeState(), saved=None, open_plan=None)
    return Ledger(**values)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list):
        return list(value)
    if isinstance(value, msgspec.Struct) and not value.__struct_config__.frozen:
        return msgspec.structs.replace(
            value, **{n: _copied(getattr(value, n)) for n in value.__struct_fields__}
        )
    return value


def present_of(ledger: Ledger, feeds: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Computation without a watermark -> where it starts: the smallest output of what feeds it.

    A computation that is new starts at the present, not at the beginning (L8). `feeds` are the
    hosts of each computation's input; where one of them is new too, nothing is known.
    """
    found: dict[str, int] = {}
    for name, feeding in feeds.items():
        if name in ledger.ins or not ledger.epoch:
            continue
        known = [ledger.outs[host] for host in feeding if host in ledger.outs]
        if known and len(known) == len(feeding) and min(known) < END:
            found[name] = min(known)
    return found
