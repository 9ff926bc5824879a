"""A standby: warm, watching the leader's lease, ready to take the next generation.

Before its generation is in the log it writes nothing into the checkpoint and deletes nothing
(protocol A4): it reads the log along, so that its ledger is where the leader's is, and keeps the
substrate warm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.engine.leading.lease import LeaderFinished, LeaseObserver, TakeOver, read_lease
from headrace.errors import StoreError
from headrace.store.store import Store
from headrace.system import Event

WARM_EVERY_S = 20.0
"""Spark ends Python workers that were idle for a minute."""
REHEARSALS = 20
"""So often at first, between looks at the lease: the JVM compiles what it has run often."""
TELL_EVERY_S = 10.0


class StoodBack(Exception):
    """Another driver took over first."""


class Follower(Protocol):
    """What a standby needs of its driver."""

    store: Store

    def follow(self) -> int:
        """Reads the log along, without a trace; gives its generation."""


def stand_by(
    driver: Follower,
    watcher: LeaseObserver,
    poll_s: float,
    stopping: Event,
    tell: Callable[[str, str], None],
    warm: Callable[[], None],
) -> TakeOver | LeaderFinished | None:
    """Watches until the leader has gone or is done; None where it was asked to stop."""
    clock = driver.store.system.uptime_s
    warmed = told = float("-inf")
    said = ""
    rehearsed = 0
    while not stopping.is_set():
        if rehearsed < REHEARSALS or clock() - warmed >= WARM_EVERY_S:
            warm()
            warmed = clock()
            rehearsed += 1
        try:
            # The log first: whoever leads by then has its lease read after it.
            generation = driver.follow()
            lease = read_lease(driver.store)
        except (OSError, StoreError) as error:
            watcher.unreadable()
            text = f"standby: cannot see the checkpoint: {error}"
        else:
            verdict = watcher.look(generation, lease, clock())
            text = f"standby: {verdict.text}"
            if isinstance(verdict, TakeOver):
                tell("standby", f"{text}; taking over")
                return verdict
            if isinstance(verdict, LeaderFinished):
                tell("standby", text)
                return verdict
        kind = text.partition(", epoch")[0]
        if kind != said or clock() - told >= TELL_EVERY_S:
            tell("standby", text)
            said, told = kind, clock()
        stopping.wait(poll_s)
    return None
