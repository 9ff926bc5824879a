"""Keeps Spark warm for a standby: runs empty epochs, made by `plan/decisions/rehearsal`."""

from __future__ import annotations

import logging

from headrace.engine.driver.follower import Follower
from headrace.engine.driver.takeover import first_slots, tasks_for
from headrace.engine.spark.substrate import SparkSubstrate
from headrace.plan.decisions.rehearsal import rehearsal

_logger = logging.getLogger("headrace.standby")


def warm(follower: Follower, substrate: SparkSubstrate, slots: int | None) -> None:
    """Runs one rehearsal of each way through an epoch. A failed rehearsal is only logged."""
    ledger = follower.ledger
    first = first_slots(follower.topology, slots, substrate.parallelism)
    for short in (True, False):
        order = rehearsal(
            follower.topology,
            ledger,
            follower.checkpoint,
            first,
            tasks=ledger.tasks or tasks_for(follower.setup),
            short=short,
        )
        if order is None:
            return
        try:
            substrate.rehearse(order)
        except Exception as error:
            # Most likely the leader has advanced and collected a file of that epoch.
            _logger.debug("a rehearsal failed: %s", str(error)[:500])
            return
