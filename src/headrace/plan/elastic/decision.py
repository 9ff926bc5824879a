"""What was decided about rings, and why: data of a commit, kept in the ledger for those who ask."""

from __future__ import annotations

import msgspec

from headrace.plan.rings.wanted import Wanted

DECISIONS_KEPT = 32
"""How many decisions the ledger keeps."""

BALANCER, SCALER = "balancer", "scaler"


class Decision(msgspec.Struct, frozen=True):
    """One decision about the ring of a computation."""

    epoch: int
    """The epoch whose commit carries it."""
    wall: int
    """The wall time of that epoch's plan."""
    computation: str
    by: str
    """balancer or scaler."""
    reason: str
    slots_before: int
    slots: int
    """How many slots the wanted ring has."""
    moves: int = 0
    """How many moves it has; 0 if only a number of slots is wanted, or a question was asked."""
    busiest: int = 0
    """The figure of the busiest slot, if the moves are to make that one lighter."""
    promised: int = 0
    """The figure of the busiest slot after them, as far as sketches show."""

    @property
    def text(self) -> str:
        """The decision in one line."""
        if self.slots != self.slots_before:
            what = f"{self.slots_before} -> {self.slots} slots"
        elif self.moves:
            what = f"{self.moves} move{'s' * (self.moves != 1)}"
        else:
            what = "nothing moves"
        return f"{self.computation}: {what} ({self.by}: {self.reason})"


class Decided(msgspec.Struct, frozen=True):
    """All that one commit decides about rings."""

    wanted: dict[str, Wanted] = {}
    tasks: int = 0
    """How many tasks a level has from the next plan on; 0 if that does not change (J10)."""
    asked: dict[str, tuple[int, ...]] = {}
    """Computation -> its cascade after this step, where it has changed."""
    decisions: tuple[Decision, ...] = ()
    soon: bool = False
    """Whether the next epoch reports too, whatever the period is."""

    def __bool__(self) -> bool:
        return bool(self.wanted or self.tasks or self.asked or self.decisions or self.soon)
