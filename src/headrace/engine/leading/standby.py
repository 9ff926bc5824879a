"""A standby: follows the log, observes the leader's lease, and keeps the substrate warm.

Its ledger is where the leader's is, so that it can take over at once. It writes nothing into the
checkpoint and deletes nothing (protocol A4).
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.engine.driver.follower import Follower
from headrace.engine.leading.lease import LeaderFinished, LeaseObserver, TakeOver, read_lease
from headrace.errors import StoreError
from headrace.system import Event

WARM_EVERY_S = 20.0
"""Spark ends Python workers that were idle for a minute."""
REHEARSALS = 20
"""So often at first, between looks at the lease: the JVM compiles what it has run often."""
TELL_EVERY_S = 10.0


def stand_by(
    follower: Follower,
    observer: LeaseObserver,
    poll_s: float,
    stopping: Event,
    tell: Callable[[str, str], None],
    warm: Callable[[], None],
) -> TakeOver | LeaderFinished | None:
    """Follows until the leader has gone or is done; None where it was asked to stop."""
    clock = follower.store.system.uptime_s
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
            generation = follower.follow()
            lease = read_lease(follower.store)
        except (OSError, StoreError) as error:
            observer.unreadable()
            text = f"standby: cannot see the checkpoint: {error}"
        else:
            verdict = observer.look(generation, lease, clock())
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
