"""Input for workloads: records with unique timestamps, over several splits, a bit out of order."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

LATENESS_US = 60


class Attached:
    """A workload that looks into the log of its simulation."""

    _simulation: Any = None

    def attach(self, simulation: Any) -> None:
        """Called once, before the simulation begins."""
        self._simulation = simulation

    def waits(self, epoch: int) -> bool:
        """Whether slots carried records over in an epoch: what it shows is then not complete."""
        log = self._simulation.log if self._simulation is not None else None
        commits = log.commits if log is not None else []
        return any(
            file["kind"] == "carried"
            for commit in commits
            if commit["epoch"] == epoch
            for file in commit["outbox"]
        )


STEP_US = 10


def stamped(random: Random, count: int, make: Callable[[int, int], Any]) -> dict[str, list[Any]]:
    """Split -> records made of (number, timestamp); disorder stays within LATENESS_US."""
    splits: dict[str, list[Any]] = {f"split-{i}": [] for i in range(random.choice((1, 1, 2, 3)))}
    names = list(splits)
    # A record moves by less than the lateness, so none is ever late.
    moved = sorted(range(count), key=lambda i: i * STEP_US + random.randrange(LATENESS_US - 20))
    for i in moved:
        splits[names[int(random.random() * len(names))]].append(make(i, (i + 1) * STEP_US))
    return splits
