"""Input for workloads: records with unique timestamps, over several splits, a bit out of order."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

LATENESS_US = 60
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
