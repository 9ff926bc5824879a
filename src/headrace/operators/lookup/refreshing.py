"""When a lookup table is read again: by the wall time of plans, so that a rerun reads nothing."""

from __future__ import annotations

from collections.abc import Mapping

RETRY_US = 10_000_000
"""How long after a failure a table is tried again, or sooner if it is refreshed more often."""


def tables_due(
    read_at: Mapping[str, int | None],
    every_us: Mapping[str, int],
    not_before: Mapping[str, int],
    wall: int,
) -> list[str]:
    """The look-ups whose tables are to be read for a plan of this wall time.

    `read_at`: when each was read last; None if it has no version yet.
    """
    return [
        name
        for name, at in read_at.items()
        if at is None or (wall - at >= every_us[name] and wall >= not_before.get(name, wall))
    ]


def next_try(wall: int, every_us: int) -> int:
    """When a table that could not be read is tried again."""
    return wall + min(RETRY_US, every_us)
