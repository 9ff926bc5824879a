"""For tools that change a stopped pipeline: whether a driver leads, by its lease.

A lease is only a hint. A tool that goes on appends a generation next, so that a driver that was
merely silent is fenced.
"""

from __future__ import annotations

from headrace.engine.leading.lease import HELD, KeepWaiting, Lease, LeaseObserver, read_lease
from headrace.errors import IncompatibleState
from headrace.log.epochlog import EpochLog
from headrace.store.store import Store

LEASE_DEFAULT_S = 3.0
"""How long to observe the lease if no lease states its length."""
_LOOK_S = 0.2


def refuse_a_leader(store: Store, log: EpochLog) -> None:
    """Observes the lease as a standby does; refuses if a driver renews it."""
    found = leader_of(store, log)
    if found is not None:
        raise IncompatibleState(
            f"a pipeline runs on the checkpoint {store.where()} (generation "
            f"{found.generation}, epoch {found.epoch}): stop it first"
        )


def leader_of(store: Store, log: EpochLog) -> Lease | None:
    """The lease that a driver has renewed while it was observed; None if none leads."""
    first = read_lease(store)
    if first is None or first.state != HELD or first.generation < log.generation:
        return None
    watcher = LeaseObserver(LEASE_DEFAULT_S)
    while True:
        now, at = read_lease(store), store.system.uptime_s()
        if not isinstance(watcher.look(log.generation, now, at), KeepWaiting):
            return None
        if now is not None and (now.generation, now.count) != (first.generation, first.count):
            return now
        store.system.sleep(_LOOK_S)
