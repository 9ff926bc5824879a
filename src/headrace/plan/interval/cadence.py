"""When a checkpoint is due, and how many epochs or seconds an interval has. Pure."""

from __future__ import annotations

import msgspec

from headrace.plan.interval.state import IntervalState

EPOCHS_MAX = 256
"""A checkpoint covers about so many epochs at most: each is a segment that a slot looks at."""
SPREAD_MAX = 8
"""Fragments are made over so many epochs at most: rings stay as they are until all are adopted."""


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
    over: int = 1
    """Over how many epochs the making of its fragments is spread; 1: all are made at once."""

    def begun(self, fragments: int, passed: int) -> int:
        """How many of its fragments may be begun when so many epochs have passed since it began."""
        return min(fragments, -(-fragments * (passed + 1) // self.over))


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

    To make a fragment takes time of a processor from the epochs beside it. So fragments are spread
    over half as many epochs as the checkpoint covers, unless a hook has asked for it or it is late.
    """
    if state.is_durable:
        return None
    since = epoch - state.checkpoint
    is_asked = state.asked > state.checkpoint
    if interval.seconds is not None:
        is_time = elapsed_s >= interval.seconds or since >= EPOCHS_MAX
        is_behind = busy_at_s is not None and busy_at_s > interval.seconds
        late = is_time and (is_behind or since > EPOCHS_MAX)
    else:
        is_time = since >= (interval.epochs or 1)
        late = since > (interval.epochs or 1) and not is_asked
    if not is_time and not is_asked:
        return None
    return Due(late, over=1 if late or is_asked else min(max(1, since // 2), SPREAD_MAX))
