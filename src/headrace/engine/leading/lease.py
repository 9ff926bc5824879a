"""The lease: a small file in which a leader states that it is alive, and how a standby judges it.

Safety never depends on the lease: the generations in the log fence old drivers. The lease only
tells a standby when to try. A standby uses its own monotonic clock: a lease whose count has not
changed for the length of the lease has lapsed. So the clocks of two machines need not agree.

The decision (`LeaseObserver.look`) is pure: what was read and the time are its input, a verdict is
its output.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.errors import HeadraceError, StoreError
from headrace.log import paths
from headrace.log.sealed import seal, unseal
from headrace.model.values.shown import encodable
from headrace.plan.deploy.code import STANDBY
from headrace.store.counts import LEASE, counted_as
from headrace.store.store import Store
from headrace.system import REAL, System

HELD, RELEASED, DONE = "held", "released", "done"

RENEWALS = 4
"""How often a lease is renewed within its length."""

_MAGIC = b"headrace-lease"


class Lease(msgspec.Struct, frozen=True):
    """The content of the lease file."""

    generation: int
    count: int
    """Increases with every renewal."""
    length_s: float
    epoch: int = 0
    """The last committed epoch, for information only."""
    state: str = HELD
    """held; released (stopped, another driver may continue); done (there is no work left)."""
    reason: str = ""


def read_lease(store: Store) -> Lease | None:
    """The lease; None if absent or not decodable. StoreError if the store is unavailable."""
    try:
        with counted_as(LEASE):
            data = store.read(paths.LEASE)
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(unseal(_MAGIC, data, paths.LEASE), type=Lease)
    except (HeadraceError, msgspec.DecodeError):
        return None  # Written without a sync: after a power loss the content may be anything.


def write_lease(store: Store, lease: Lease) -> None:
    """Replaces the lease atomically."""
    with counted_as(LEASE):
        store.write_volatile(paths.LEASE, seal(_MAGIC, msgspec.json.encode(lease)))


# What a standby decides ------------------------------------------------------


class KeepWaiting(msgspec.Struct, frozen=True):
    """There probably is a leader."""

    text: str


class TakeOver(msgspec.Struct, frozen=True):
    """The leader of `generation` no longer leads."""

    generation: int
    text: str
    role: str = STANDBY
    """As what to take over: a standby, a candidate, a guard."""


class LeaderFinished(msgspec.Struct, frozen=True):
    """The leader has finished: there is no work left."""

    text: str


Verdict = KeepWaiting | TakeOver | LeaderFinished


class LeaseObserver:
    """Judges from the lease whether the leader is alive, for a standby."""

    def __init__(self, length_s: float) -> None:
        """`length_s` is the length to use if no lease states its own."""
        self._length_s = length_s
        self._seen: tuple[int, int, int] | None = None
        self._since = 0.0

    def look(self, generation: int, lease: Lease | None, now: float) -> Verdict:
        """The verdict on the state of the checkpoint: the generation in the log, and the lease."""
        if lease is not None and lease.generation < generation:
            lease = None  # A newer driver has begun; the lease of an older one does not count.
        seen = (generation, lease.generation, lease.count) if lease else (generation, 0, 0)
        if seen != self._seen:
            self._seen, self._since = seen, now
        if lease is None:
            return self._without_lease(generation, now)
        named = f"leader generation {lease.generation}"
        if lease.state == DONE:
            return LeaderFinished(f"{named} has ended ({lease.reason}): nothing is left to do")
        if lease.state == RELEASED:
            return TakeOver(
                lease.generation,
                f"{named} has released its lease ({lease.reason}) at epoch {lease.epoch}",
            )
        silent = now - self._since
        if silent < lease.length_s:
            return KeepWaiting(f"{named} is alive, epoch {lease.epoch}")
        return TakeOver(
            lease.generation,
            f"{named} has been silent for {silent:.1f} s, at epoch {lease.epoch}",
        )

    def unreadable(self) -> None:
        """Restarts the waiting time, because the checkpoint is unavailable.

        The leader may be unable to reach it as well, and gets the full length of its lease again.
        """
        self._seen = None

    def _without_lease(self, generation: int, now: float) -> Verdict:
        silent = now - self._since
        who = f"generation {generation} has no lease" if generation else "no driver has begun"
        if silent < self._length_s:
            return KeepWaiting(f"{who}; waiting for a leader")
        return TakeOver(generation, f"{who}, and no leader came for {silent:.1f} s")


# What a leader does ----------------------------------------------------------


class Pulse:
    """When the loop last made a step, and whether a job of the substrate runs."""

    def __init__(self, stuck_s: float | None, system: System = REAL) -> None:
        self._stuck_s = stuck_s
        self._system = system
        self._last = system.uptime_s()
        self._in_job = self._rests = False

    def beat(self) -> None:
        """Notes that the loop has made a step."""
        self._last = self._system.uptime_s()

    def job(self, running: bool) -> None:
        """Notes that a job has begun or ended; while a job runs, no steps are expected."""
        self.beat()
        self._in_job = running

    def rest(self, waits: bool) -> None:
        """Notes whether the loop waits for an outage, possibly longer than a step may take."""
        self.beat()
        self._rests = waits

    def alive(self) -> bool:
        """Whether the loop has made a step recently."""
        if self._stuck_s is None or self._in_job or self._rests:
            return True
        return self._system.uptime_s() - self._last < self._stuck_s


class LeaseKeeper:
    """Renews a leader's lease in its own thread, so that it does not lapse in a long epoch."""

    def __init__(
        self,
        store: Store,
        generation: int,
        length_s: float,
        epoch: Callable[[], int],
        pulse: Pulse,
    ) -> None:
        self._store = store
        self._epoch = epoch
        self._pulse = pulse
        # A store may refuse a name that is written again at once; then the lease is longer.
        self._interval_s = store.rewrite_interval_s
        length_s = max(length_s, RENEWALS * self._interval_s)
        self._lease = Lease(generation, 0, length_s, epoch())
        self._written_s = float("-inf")
        self._ending = store.system.event()
        self._thread = store.system.thread(self._keep, "headrace-lease")
        self._thread.start()

    def _keep(self) -> None:
        while True:
            if self._pulse.alive() and not self._renew(HELD, ""):
                return
            if self._ending.wait(self._lease.length_s / RENEWALS):
                return

    def _renew(self, state: str, reason: str) -> bool:
        """Writes the lease again; returns False if a newer leader has written one."""
        try:
            found = read_lease(self._store)
            if found is not None and found.generation > self._lease.generation:
                return False
            self._lease = msgspec.structs.replace(
                self._lease,
                count=self._lease.count + 1,
                epoch=self._epoch(),
                state=state,
                reason=encodable(reason),
            )
            write_lease(self._store, self._lease)
        except (OSError, StoreError):
            pass  # The store is unavailable; the loop will find and report that.
        self._written_s = self._store.system.uptime_s()
        return True

    def end(self, state: str, reason: str) -> None:
        """Writes the final state, done or released. Without that, the lease lapses."""
        self._ending.set()
        self._thread.join()
        system = self._store.system
        if (left := self._written_s + self._interval_s - system.uptime_s()) > 0:
            system.sleep(left)
        self._renew(state, reason)

    def abandon(self) -> None:
        """Ends without writing: a newer driver leads."""
        self._ending.set()
        self._thread.join()
