"""What the log says about checkpoints of state: which epochs are durable, which only written (M).

With an interval of more than one epoch, deltas that do not ride are written without a sync. Every
n epochs, at epoch c, the deltas of each slot since the last checkpoint are merged into a fragment,
and when all fragments are durable, an entry of the log adopts them and says `checkpoint: c`.

Invariants: up to `durable` epochs, no manifest names a segment that is only written. The numbers
of checkpoints only rise. All of it is pure: no clock, no files.
"""

from __future__ import annotations

import msgspec


class CommitInterval(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a commit, or an entry of its own, says about the checkpoint interval."""

    written: bool = False
    """Whether a delta of this epoch is only written, and may be lost (M2)."""
    asked: bool = False
    """Whether a hook asked for a checkpoint at the end of this epoch."""
    checkpoint: int = 0
    """The epoch whose fragments this entry adopts: all state up to it is durable now (M3); or 0."""
    late: bool = False
    """Whether that checkpoint began later than the interval says: the store was not ready."""


class IntervalState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The checkpoints of a pipeline, as its ledger knows them."""

    checkpoint: int = 0
    """The epoch of the last checkpoint."""
    written: int = 0
    """The last epoch that has a delta which was only written."""
    asked: int = 0
    """The last epoch in which a hook asked for a checkpoint."""
    span: int = 0
    """How many epochs the last checkpoint took together."""
    taken: int = 0
    """How many checkpoints there were."""
    late: int = 0
    """How many of them covered more epochs than asked for, because the store was not ready."""

    @property
    def is_durable(self) -> bool:
        """Whether every epoch so far is durable."""
        return self.written <= self.checkpoint

    def durable(self, epoch: int) -> int:
        """The last epoch whose state is durable, with all before it; `epoch` is the last commit."""
        return epoch if self.is_durable else self.checkpoint

    def committed(self, epoch: int, said: CommitInterval | None) -> IntervalState:
        """After the commit of an epoch."""
        if said is None:
            return self
        found = self
        if said.written:
            # What came before is durable, or has an older checkpoint that still counts.
            first = epoch - 1 if self.is_durable else self.checkpoint
            found = msgspec.structs.replace(found, checkpoint=first, written=epoch)
        if said.asked:
            found = msgspec.structs.replace(found, asked=epoch)
        return found.kept(said)

    def kept(self, said: CommitInterval) -> IntervalState:
        """After an entry that may adopt the fragments of a checkpoint."""
        if not said.checkpoint:
            return self
        return msgspec.structs.replace(
            self,
            checkpoint=max(said.checkpoint, self.checkpoint),
            span=said.checkpoint - self.checkpoint,
            taken=self.taken + 1,
            late=self.late + said.late,
        )
