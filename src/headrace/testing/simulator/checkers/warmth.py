"""Checks that ring changes leave the caches of other slots warm (J6). Shares no engine code.

A worker that has opened a slot before may build it again only if the log says why: more links were
added to the slot's chain than a plan names, a merge has dropped deletions, the slot has ended and
begun again, or it was opened under the ring of a plan that was voided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.testing.simulator.checkers.log_checker import LogChecker
from headrace.testing.simulator.checkers.violation import Violation


class Rebuilt(NamedTuple):
    """A worker has built a slot again that it had."""

    computation: str
    slot: int
    had: int
    """The epoch of what it had."""
    built: int
    """The epoch of what it has built."""


def check_warm(log: LogChecker, found: Sequence[Rebuilt], chains_kept: int) -> None:
    """Every slot that was built again had to be."""
    for each in found:
        # The zombie of an older plan may open what was before: of the same epoch, or earlier.
        if each.had < each.built and not _excused(log, each, chains_kept):
            raise Violation(
                f"a worker that had slot {each.slot} of {each.computation} at epoch {each.had} "
                f"builds it again at epoch {each.built}, though its chain goes on"
            )


def _excused(log: LogChecker, each: Rebuilt, chains_kept: int) -> bool:
    name, links = each.computation, 0
    for commit in log.commits[each.had : each.built]:
        delta = commit["deltas"].get(name, {}).get(str(each.slot))
        links += delta is not None and delta["segment"] is not None
        links += name in commit["steps"]  # at most: the change may be one of other slots
    links += any(name in p["moves"] for p in log.plans if p["epoch"] == each.built + 1)
    dropped = any(
        adoption["computation"] == name
        and adoption["entry"].get("bottom")
        and adoption["entry"]["last_epoch"] > each.had
        for adoption in log.adoptions
    )
    voided = any(
        name in plan["moves"] and plan["epoch"] in (each.had + 1, each.built + 1)
        for plan, _ in log.voids
    )
    lived = all(each.slot in slots.get(name, ()) for slots in log.slots[each.had : each.built])
    return links >= chains_kept or dropped or voided or not lived
