"""When a leader hands over: the first commit at which nothing waits (L3). Pure.

The ledger is what it is judged by, here and when contracts are compared (`facts_of`).
"""

from __future__ import annotations

import msgspec

from headrace.plan.deploy.code import DeployWish, Handover, LapseBody
from headrace.plan.deploy.comparison import Facts
from headrace.plan.deploy.fold import present_of
from headrace.plan.ledger import Ledger
from headrace.plan.rings.chains import last_epoch


class LetGo(msgspec.Struct, frozen=True):
    """The driver on probation writes nothing more: a person wants its deploy taken back."""

    reason: str


class HandedOver(msgspec.Struct, frozen=True):
    """The driver has handed over, and writes nothing more."""

    candidate: str
    epoch: int


Left = HandedOver | LetGo
"""Why a driver no longer leads, by what it has written or read in its own log."""


def judge_wish(ledger: Ledger, wish: DeployWish) -> str:
    """Why a deploy is refused; "" if it is accepted as a wish."""
    code = ledger.code
    if (found := code.probation) is not None:
        return (
            f"a deploy is on probation since epoch {found.epoch}: deploy again when it is "
            "confirmed or taken back (headrace status)"
        )
    if wish.fingerprint == code.fingerprint:
        return f"this code ({wish.fingerprint}) is in force already"
    if wish.expects != code.fingerprint:
        return (
            f"it was checked against code {wish.expects}, and the code in force is "
            f"{code.fingerprint}: deploy again"
        )
    return ""


def is_drained(ledger: Ledger, wish: DeployWish) -> bool:
    """Whether no feedback row waits for a consumer that changes."""
    return not any(ledger.outbox.get(name) for name in wish.drain)


def next_move(ledger: Ledger, acknowledged: int, wall: int) -> Handover | LapseBody | None:
    """What becomes of the wish after a commit; None if it waits, or if there is none.

    `acknowledged` is the last epoch that every sink has. No plan may be open: the hand-over stands
    in the place of the next one.
    """
    wish = ledger.code.wish
    if wish is None or ledger.open_plan is not None:
        return None
    if (refused := judge_wish(ledger, wish)) != "":
        return LapseBody(wish.candidate, refused)
    if wall >= wish.expires:
        waits = [name for name in wish.drain if ledger.outbox.get(name)]
        why = f"feedback rows for {', '.join(waits)} had not drained" if waits else "it came late"
        return LapseBody(wish.candidate, f"the deploy has expired: {why}")
    if not is_drained(ledger, wish) or acknowledged < ledger.epoch:
        return None
    return Handover(
        wish.candidate, wish.fingerprint, wish.contract, wish.mode, ledger.epoch,
        wish.confirm_after, wish.seconds, wish.dropped, present_of(ledger, wish.feeds),
    )  # fmt: skip


def facts_of(ledger: Ledger) -> Facts:
    """The facts that `compare` judges by.

    Where a state store has the cells, merges may leave a slot no segment.
    """
    copied = ledger.applied.copies and ledger.applied.epoch > 0
    return Facts(
        with_state=frozenset(
            name
            for name, slots in ledger.slots.items()
            if any(slot.entries or (copied and last_epoch(slot.chains)) for slot in slots.values())
        ),
        waiting=frozenset(
            (consumer, file.stream) for consumer, files in ledger.outbox.items() for file in files
        ),
        unsettled=not ledger.is_clear(),
    )
