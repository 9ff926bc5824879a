"""The lease: a small file by which a leader says that it is alive, and how a standby judges it.

Safety never rests on it: the log's generations fence. The lease only tells a standby when to try.
A standby judges by its own monotonic clock: a count that has not moved for the lease's length has
lapsed, so clocks of two machines need not agree.

The decision (`LeaseObserver.look`) is pure: what was read and the time go in, a verdict comes out.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.errors import HeadraceError, StoreError
from headrace.log import paths
from headrace.log.sealed import seal, unseal
from headrace.store.store import Store
from headrace.system import REAL, System

HELD, RELEASED, DONE = "held", "released", "done"

RENEWALS = 4
"""How often a lease is renewed within its length."""

_MAGIC = b"headrace-lease"


class Lease(msgspec.Struct, frozen=True):
    """What the file says."""

    generation: int
    count: int
    """Rises with every renewal."""
    length_s: float
    epoch: int = 0
    """The last committed epoch, for those who look."""
    state: str = HELD
    """held; released (stopped, somebody else may go on); done (there is nothing left to do)."""
    reason: str = ""


def read_lease(store: Store) -> Lease | None:
    """The lease; None where there is none that can be understood. StoreError where it is away."""
    try:
        data = store.read(paths.LEASE)
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(unseal(_MAGIC, data, paths.LEASE), type=Lease)
    except (HeadraceError, msgspec.DecodeError):
        return None  # Written without a sync: after a power loss it may be anything.


def write_lease(store: Store, lease: Lease) -> None:
    """Replaces the lease, whole."""
    store.write_volatile(paths.LEASE, seal(_MAGIC, msgspec.json.encode(lease)))


# What a standby thinks -------------------------------------------------------


class KeepWaiting(msgspec.Struct, frozen=True):
    """There is a leader, as far as one can tell."""

    text: str


class TakeOver(msgspec.Struct, frozen=True):
    """The leader of `generation` has gone."""

    generation: int
    text: str


class LeaderFinished(msgspec.Struct, frozen=True):
    """The leader has done all there was to do."""

    text: str


Verdict = KeepWaiting | TakeOver | LeaderFinished


class LeaseObserver:
    """A standby's view of the leader."""

    def __init__(self, length_s: float) -> None:
        """`length_s` is what counts where no lease says otherwise."""
        self._length_s = length_s
        self._seen: tuple[int, int, int] | None = None
        self._since = 0.0

    def look(self, generation: int, lease: Lease | None, now: float) -> Verdict:
        """The verdict on what lies in the checkpoint: the log's generation, and the lease."""
        if lease is not None and lease.generation < generation:
            lease = None  # A newer driver has begun; what an older one says does not count.
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
                lease.generation, f"{named} has let go ({lease.reason}) at epoch {lease.epoch}"
            )
        silent = now - self._since
        if silent < lease.length_s:
            return KeepWaiting(f"{named} is alive, epoch {lease.epoch}")
        return TakeOver(
            lease.generation,
            f"{named} has been silent for {silent:.1f} s, at epoch {lease.epoch}",
        )

    def unreadable(self) -> None:
        """The checkpoint is away: the leader may be as blind as we are, and gets its time anew."""
        self._seen = None

    def _without_lease(self, generation: int, now: float) -> Verdict:
        silent = now - self._since
        who = f"generation {generation} has no lease" if generation else "nobody has begun"
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
        """The loop goes on."""
        self._last = self._system.uptime_s()

    def job(self, running: bool) -> None:
        """A job has begun or ended; while one runs, nobody waits for steps."""
        self.beat()
        self._in_job = running

    def rest(self, waits: bool) -> None:
        """The loop waits for what is away, longer perhaps than steps may take; or goes on."""
        self.beat()
        self._rests = waits

    def alive(self) -> bool:
        """Whether the loop has made a step lately."""
        if self._stuck_s is None or self._in_job or self._rests:
            return True
        return self._system.uptime_s() - self._last < self._stuck_s


class LeaseKeeper:
    """Renews a leader's lease from a thread of its own, so that a long epoch is no death."""

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
        self._lease = Lease(generation, 0, length_s, epoch())
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
        """Writes the lease once more; False where a newer leader has one."""
        try:
            found = read_lease(self._store)
            if found is not None and found.generation > self._lease.generation:
                return False
            self._lease = msgspec.structs.replace(
                self._lease,
                count=self._lease.count + 1,
                epoch=self._epoch(),
                state=state,
                reason=reason,
            )
            write_lease(self._store, self._lease)
        except (OSError, StoreError):
            pass  # The store is away; the loop meets that too, and says so.
        return True

    def end(self, state: str, reason: str) -> None:
        """The last word: done, or released. Without one, the lease lapses."""
        self._ending.set()
        self._thread.join()
        self._renew(state, reason)

    def abandon(self) -> None:
        """Ends without a word: a newer driver leads."""
        self._ending.set()
        self._thread.join()
