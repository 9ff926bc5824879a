"""The bodies of log entries: what a commit, a void and an acceptance say."""

from __future__ import annotations

import msgspec

from headrace.plan.epoch import Commit, Plan, SplitState
from headrace.plan.ledger import Ledger


class CommitBody(msgspec.Struct):
    """A commit entry: the commit, perhaps the next plan, now and then a snapshot."""

    commit: Commit
    next: Plan | None = None
    snapshot: Ledger | None = None
    retain: int = 0
    """How many epochs the driver that wrote it keeps."""


class VoidBody(msgspec.Struct):
    """Why a plan was given up."""

    epoch: int
    reason: str
    skipped: dict[str, dict[str, SplitState]] = {}
    """Splits that count as read as far as the plan went: it will not run (at-most-once)."""
    records: int = 0
    """About how many records were skipped so."""


class AcceptBody(msgspec.Struct):
    """Splits whose files have changed, as they count from now on."""

    splits: dict[str, dict[str, SplitState]]
