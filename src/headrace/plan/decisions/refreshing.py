"""When a lookup table is read again: by the wall time of plans, so that a rerun reads nothing."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.plan.epoch import TableVersion

RETRY_US = 10_000_000
"""How long after a failure a table is tried again, or sooner if it is refreshed more often."""


def tables_due(
    known: Mapping[str, TableVersion | None],
    every_us: Mapping[str, int],
    not_before: Mapping[str, int],
    wall: int,
) -> list[str]:
    """The look-ups whose tables are to be read for a plan of this wall time."""
    return [
        name
        for name, version in known.items()
        if version is None
        or (wall - version.wall >= every_us[name] and wall >= not_before.get(name, wall))
    ]


def next_try(wall: int, every_us: int) -> int:
    """When a table that could not be read is tried again."""
    return wall + min(RETRY_US, every_us)
