"""What a run was asked for."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.plan.progress import EpochProgress

SHORT_RECORDS_MAX = 20_000
"""Up to this many records the driver reads and routes an epoch itself: the short way."""


class Options(msgspec.Struct, frozen=True):
    """What a run was asked for."""

    until: str | None = "end"
    slots: int | None = None
    epoch_target_s: float = 1.0
    epoch_records: int | None = None
    retain_epochs: int = 16
    short_records_max: int = SHORT_RECORDS_MAX
    background: bool = True
    accept_changed: tuple[str, ...] = ()
    """Files (or streams) that may have changed since they were read."""
    on_epoch: Callable[[EpochProgress], None] | None = None
