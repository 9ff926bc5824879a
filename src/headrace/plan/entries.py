"""The bodies of log entries: of a commit, a void and an acceptance."""

from __future__ import annotations

import msgspec

from headrace.plan.epoch import Commit, Plan, SplitState
from headrace.plan.ledger import Ledger
from headrace.plan.overload import SlotLimit


class CommitBody(msgspec.Struct):
    """The body of a commit entry: the commit, often the next plan, sometimes a snapshot."""

    commit: Commit
    next: Plan | None = None
    snapshot: Ledger | None = None
    retain: int = 0
    """How many epochs the driver that wrote it retains."""
    confirms: bool = False
    """Whether it confirms the code that is on probation (L5)."""


class VoidBody(msgspec.Struct):
    """Why a plan was voided."""

    epoch: int
    reason: str
    skipped: dict[str, dict[str, SplitState]] = {}
    """Splits that count as read up to the end of the plan, which will not run (at-most-once)."""
    records: int = 0
    """About how many records were skipped by that."""
    limits: dict[str, SlotLimit] = {}
    """Label of a slot that was too slow -> its limit in the next plans (P2)."""


class AcceptBody(msgspec.Struct):
    """Splits whose files have changed, with the state that counts from now on."""

    splits: dict[str, dict[str, SplitState]]
