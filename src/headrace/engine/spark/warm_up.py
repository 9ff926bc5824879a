"""Keeps Spark warm for a driver that may have to take over: it rehearses."""

from __future__ import annotations

import logging
from typing import Protocol

from headrace.engine.driver.takeover import rings_for
from headrace.engine.spark.substrate import SparkSubstrate
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.rehearsal import rehearsal
from headrace.plan.ledger import Ledger

_logger = logging.getLogger("headrace.standby")


class Following(Protocol):
    """What is known of the leader's progress."""

    topology: Topology
    checkpoint: str

    def followed(self) -> Ledger:
        """The ledger as of the last look at the log."""


def warm(driver: Following, substrate: SparkSubstrate, slots: int | None) -> None:
    """One rehearsal of each way through an epoch. Its failure is told, and harms nobody."""
    ledger = driver.followed()
    rings = rings_for(driver.topology, ledger, slots, substrate.parallelism)
    for short in (True, False):
        task = rehearsal(
            driver.topology,
            ledger,
            getattr(driver, "checkpoint", ""),
            rings,
            readers=substrate.parallelism,
            short=short,
        )
        if task is None:
            return
        try:
            substrate.rehearse(task)
        except Exception as error:
            # Most likely the leader has moved on and collected a file of that epoch.
            _logger.debug("a rehearsal failed: %s", str(error)[:500])
            return
