"""The bodies of log entries: of a commit, a void, an acceptance, of decisions on requests."""

from __future__ import annotations

import msgspec

from headrace.plan.control import Outcome
from headrace.plan.elastic.decision import Decided
from headrace.plan.elastic.figures import LoadFigures
from headrace.plan.epoch import Adoption, Commit, Plan, SplitState
from headrace.plan.interval.state import CommitInterval
from headrace.plan.ledger import Ledger
from headrace.plan.overload import SlotLimit
from headrace.plan.rings.shards import Shards
from headrace.plan.state.applied import StoreMark


class CommitBody(msgspec.Struct):
    """The body of a commit entry: the commit, often the next plan, sometimes a snapshot."""

    commit: Commit
    next: Plan | None = None
    snapshot: Ledger | None = None
    """The ledger without its manifests; where those are, its index of shards says (J12)."""
    shards: Shards = {}
    """The manifests of some shards, after this commit."""
    retain: int = 0
    """How many epochs the driver that wrote it retains."""
    confirms: bool = False
    """Whether it confirms the code that is on probation (L5)."""
    outcomes: list[Outcome] = []
    """Requests that were decided together with this commit, in the order of the queue (I3)."""
    load: LoadFigures | None = None
    """The load since the last report, in commits of report epochs (K3)."""
    decided: Decided | None = None
    """What was decided about rings from the ledger after this commit (K4)."""
    applied: StoreMark | None = None
    """What the state store has and has synced (O4); None: there is none."""


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


class ControlBody(msgspec.Struct, omit_defaults=True):
    """Decisions on requests where no commit is due, and the end of a stop."""

    outcomes: list[Outcome] = []
    stopped: bool = False
    """Whether a stop that was taken is complete: the leader ends."""


class CheckpointBody(msgspec.Struct):
    """Adopts the fragments of a checkpoint where no commit is due (M3)."""

    interval: CommitInterval
    adoptions: list[Adoption]


class RestoreBody(msgspec.Struct):
    """The state goes back to a savepoint; nothing before this entry is needed to recover."""

    savepoint: str
    ledger: Ledger
    """The whole ledger after this entry."""
