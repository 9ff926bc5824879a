"""A person's start while a deploy is on probation: refused as long as its driver is alive (L1)."""

from __future__ import annotations

from headrace.engine.driver.follower import Follower
from headrace.engine.leading.lease import (
    RENEWALS,
    LeaderFinished,
    LeaseObserver,
    TakeOver,
    read_lease,
)
from headrace.errors import IncompatibleState
from headrace.system import Event

LENGTH_S = 3.0
"""The length to use if no lease states its own."""


def await_silence(follower: Follower, stopping: Event) -> None:
    """Returns when the driver on probation shows no sign of life; IncompatibleState if it does."""
    clock = follower.store.system.uptime_s
    observer = LeaseObserver(follower.setup.options.lease_s or LENGTH_S)
    first: int | None = None
    while not stopping.is_set():
        generation, lease = follower.log.generation, read_lease(follower.store)
        if isinstance(observer.look(generation, lease, clock()), TakeOver | LeaderFinished):
            return
        alive = lease is not None and lease.generation >= generation
        if alive and lease is not None:
            if first is not None and lease.count != first:
                found = follower.ledger.code.probation
                since = found.epoch if found is not None else 0
                raise IncompatibleState(
                    f"a deploy is on probation since epoch {since}, and its driver (generation "
                    f"{lease.generation}) is alive: wait until it is confirmed or taken back, or "
                    "take it back (headrace rollback)"
                )
            first = lease.count
        stopping.wait((lease.length_s if lease else LENGTH_S) / RENEWALS / 2)
