"""When a checkpoint is due, and how many epochs or seconds an interval has. Pure."""

from __future__ import annotations

import msgspec

from headrace.plan.interval.state import IntervalState

EPOCHS_MAX = 256
"""A checkpoint covers about so many epochs at most: each is a segment that a slot looks at."""


class Cadence(msgspec.Struct, frozen=True):
    """How often state is made durable, as `checkpoint_every=` says."""

    epochs: int | None = 1
    seconds: float | None = None

    @property
    def is_each_epoch(self) -> bool:
        """Whether every epoch is durable when it is committed."""
        return self.epochs == 1

    def __str__(self) -> str:
        if self.seconds is not None:
            return f"{self.seconds:g} s"
        return "1 epoch" if self.epochs == 1 else f"{self.epochs} epochs"


class Due(msgspec.Struct, frozen=True):
    """A checkpoint is to begin now."""

    late: bool
    """Whether the interval had ended before: the last checkpoint was not done in time."""


def due(
    interval: Cadence,
    state: IntervalState,
    epoch: int,
    *,
    elapsed_s: float,
    busy_at_s: float | None = None,
) -> Due | None:
    """Whether a checkpoint of the last committed epoch is to begin; None: not yet.

    - `elapsed_s`: the time since the last checkpoint began;
    - `busy_at_s`: when in that time the last checkpoint ended; None if none was under way.

    While a checkpoint is under way no other begins. So the interval grows by itself where the
    store cannot keep up, and comes back when it can.
    """
    if state.is_durable:
        return None
    since = epoch - state.checkpoint
    if since >= EPOCHS_MAX:
        return Due(late=True)
    if interval.seconds is not None:
        if elapsed_s >= interval.seconds:
            return Due(late=busy_at_s is not None and busy_at_s > interval.seconds)
    elif since >= (interval.epochs or 1):
        return Due(late=since > (interval.epochs or 1) and not state.asked > state.checkpoint)
    if state.asked > state.checkpoint:
        return Due(late=False)
    return None
