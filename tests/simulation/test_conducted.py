"""What the simulator asks of a driver that waits: enough, and not more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import StoreError
from headrace.plan.progress import Notice
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.conducted import ConductedLife
from headrace.testing.simulator.faults.chance import Chance


class Watched:
    """A driver's life in a world that a test turns."""

    def __init__(self, give_up_s: float | None = None) -> None:
        self.now = 0.0
        world: Any = SimpleNamespace(
            chance=Chance(1, faults=False),
            lease_s=5.0,
            uptime_s=lambda: self.now,
            progress=lambda: (0, 0),
            outages=SimpleNamespace(since_s=float("inf")),
        )
        self.life = ConductedLife(world, 1)
        self.life.give_up_s = give_up_s
        self.life._led = True
        self.life._control.phase = "running"

    def refused(self, seconds: float) -> None:
        """It is refused, waits for so long, and comes back."""
        self.life.refused()
        self.life.waits(seconds)
        self.now += seconds

    def says(self, kind: str) -> None:
        self.life._hear(Notice("p", kind, f"the checkpoint is {kind}"))


def test_what_is_refused_in_the_moment_it_is_said_to_be_back_counts_from_then() -> None:
    watched = Watched(give_up_s=40.0)
    watched.refused(10.0)
    watched.says("away")
    watched.life.refused()
    watched.says("back")
    watched.life.waits(2.0)  # by something that is looked at without a call
    watched.now += 2.0
    watched.refused(38.0)
    assert watched.life._excused(StoreError("gone (given up after 40 s)"))


def test_who_gives_up_too_early_is_found_out() -> None:
    watched = Watched(give_up_s=40.0)
    watched.refused(30.0)
    with pytest.raises(Violation, match="was to wait 40 s and gave up after 30 s"):
        watched.life._excused(StoreError("gone"))


def test_who_waits_for_one_thing_after_another_must_say_so_and_may_then_be_quick() -> None:
    silent = Watched()
    with pytest.raises(Violation, match="does not announce it"):
        for _ in range(9):
            silent.refused(1.5)
    told = Watched()
    for _ in range(6):
        told.refused(0.5)
    told.says("away")
    for _ in range(5):
        told.refused(0.5)
    for _ in range(5):
        told.refused(2.0)


def test_who_tries_on_and_on_without_a_pause_is_found_out() -> None:
    watched = Watched()
    watched.refused(0.1)
    watched.says("away")
    with pytest.raises(Violation, match="without backoff"):
        for _ in range(9):
            watched.refused(0.1)
