"""A standby: follows the log, observes the leader's lease, and keeps the substrate warm.

Its ledger is as recent as the leader's, so that it can take over at once. It writes nothing into
the checkpoint and deletes nothing (protocol A4).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.engine.driver.follower import Follower
from headrace.engine.leading.lease import KeepWaiting, LeaderFinished, TakeOver, read_lease
from headrace.engine.leading.watch import CodeWatch, DeployFailed, Superseded
from headrace.errors import StoreError
from headrace.plan.control import STOPPED
from headrace.store.counts import LEASE, counted_as
from headrace.system import Event

WARM_EVERY_S = 20.0
"""How often to warm up: Spark ends Python workers that were idle for a minute."""
REHEARSALS = 20
"""How many rehearsals at first, between reads of the lease: the JVM compiles what runs often."""
TELL_EVERY_S = 10.0
READY = "standby: ready to take over"
"""Said once, when the rehearsals are over: from now on a takeover costs no warming up."""


class StoppedByRequest(msgspec.Struct, frozen=True):
    """A request has stopped the pipeline: a standby never goes on from there (I9)."""


def stand_by(
    follower: Follower,
    watch: CodeWatch,
    poll_s: float,
    stopping: Event,
    tell: Callable[[str, str], None],
    warm: Callable[[], None],
    rehearsals: int = REHEARSALS,
) -> TakeOver | LeaderFinished | StoppedByRequest | Superseded | DeployFailed | None:
    """Follows until it is to take over, or is not needed; None if it was asked to stop."""
    clock = follower.store.system.uptime_s
    told = float("-inf")
    # A guard is warm already, and must not disturb the first epochs of the new code.
    warmed = told if rehearsals else clock()
    said = ""
    rehearsed = 0
    while not stopping.is_set():
        if rehearsed < rehearsals or clock() - warmed >= WARM_EVERY_S:
            warm()
            warmed = clock()
            rehearsed += 1
            if rehearsed == rehearsals:
                tell("standby", READY)
        try:
            # The log is read first, so that the lease read after it is that of the newest leader.
            with counted_as(LEASE):
                generation = follower.follow(closely=False)
            lease = read_lease(follower.store)
        except (OSError, StoreError) as error:
            watch.unreadable()
            text = f"standby: cannot see the checkpoint: {error}"
        else:
            if follower.ledger.control.stop == STOPPED:
                tell("standby", "standby: the pipeline was stopped by a request")
                return StoppedByRequest()
            verdict = watch.look(follower.ledger, generation, lease, clock())
            text = f"standby: {verdict.text}"
            if isinstance(verdict, TakeOver):
                tell("standby", f"{text}; taking over")
                return verdict
            if not isinstance(verdict, KeepWaiting):
                tell("standby", text)
                return verdict
        kind = text.partition(", epoch")[0]
        if kind != said or clock() - told >= TELL_EVERY_S:
            tell("standby", text)
            said, told = kind, clock()
        stopping.wait(poll_s)
    return None
