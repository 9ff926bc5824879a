"""Warms Spark up for a standby or a candidate: empty epochs, made by `plan/decisions/rehearsal`."""

from __future__ import annotations

import logging
import time

from headrace.engine.driver.follower import Follower
from headrace.engine.driver.takeover import first_slots, tasks_for
from headrace.engine.spark.substrate import SparkSubstrate
from headrace.plan.decisions.rehearsal import is_warm, rehearsal

_logger = logging.getLogger("headrace.standby")


REST_S_MAX = 2.0


def warm_beside(follower: Follower, substrate: SparkSubstrate, slots: int | None) -> None:
    """Rehearses until that becomes no faster, beside the driver that leads.

    It rests after each rehearsal for as long as that took: both may share the cores of one machine.
    """
    took: list[float] = []
    while not is_warm(took):
        began = time.monotonic()
        follower.follow()
        warm(follower, substrate, slots)
        took.append(time.monotonic() - began)
        time.sleep(min(took[-1], REST_S_MAX))


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
