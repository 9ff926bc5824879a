"""Follows one checkpoint for the page: its log, its lease, and what its leader tells.

Everything is read from the store, as `headrace status` does, so the pipeline may run anywhere. The
log is followed, not read anew. While nobody looks at the page, nothing is read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from headrace.engine.commands import Remote
from headrace.engine.history.recovery import History, recover
from headrace.engine.leading.lease import HELD, Lease, read_lease
from headrace.engine.leading.status import LeaderStatus, read_status
from headrace.engine.overview import Overview, overview
from headrace.errors import HeadraceError
from headrace.log.epochlog import EpochLog
from headrace.log.identity import read_identity
from headrace.observe.ui.slots import RingHeat, heat_of
from headrace.store.location import no_checkpoint

LEADS = ("running", "paused", "stopping")
"""States in which a leader shows signs of life; else what it told last is of the past."""
FRESH_S = 0.8
"""An answer so old is given again."""


class Sight(msgspec.Struct, frozen=True):
    """What the page shows of one pipeline."""

    number: int
    location: str
    wall: int
    """When it was read, microseconds."""
    error: str = ""
    """Why nothing could be read; the rest is of the last time then."""
    overview: Overview | None = None
    status: LeaderStatus | None = None
    """What the leader tells, if it is the one that the log names."""
    rings: dict[str, RingHeat] = {}
    dead_of: dict[str, int] = {}
    """Computation or stream -> its dead letters, of all runs."""
    records_of: dict[str, int] = {}
    counts: dict[str, int] = {}
    newest: int = 0
    outs: dict[str, int] = {}
    """Source or computation -> its output watermark."""
    splits: dict[str, int] = {}
    """Stream -> how many splits are open."""


class Watcher:
    """Reads a checkpoint when it is asked, at most about once a second."""

    def __init__(
        self, number: int, location: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.number, self.location = number, location
        self._clock = clock
        self._lock = threading.Lock()
        self._remote: Remote | None = None
        self._log: EpochLog | None = None
        self._history: History | None = None
        self._lease: Lease | None = None
        self._moved_s = 0.0
        """When the lease last changed, by this machine's clock."""
        self._seen = Sight(number, location, 0, "not read yet")
        self._seen_s = float("-inf")

    @property
    def remote(self) -> Remote:
        """The pipeline, to ask something of it."""
        if self._remote is None:
            self._remote = Remote(self.location)
        return self._remote

    def look(self) -> Sight:
        """What is known now."""
        with self._lock:
            if self._clock() - self._seen_s >= FRESH_S:
                try:
                    self._seen = self._read()
                except (OSError, HeadraceError) as error:
                    text = f"{type(error).__name__}: {error}"
                    self._seen = msgspec.structs.replace(self._seen, error=text)
                    self._log = None
                self._seen_s = self._clock()
            return self._seen

    def _read(self) -> Sight:
        remote = self._still_there()
        history = self._follow(remote)
        ledger = history.ledger
        status = read_status(remote.store)
        if status is not None and status.generation != ledger.generation:
            status = None  # of a leader that leads no more, or of one that has just begun
        seen = overview(remote, self._alive(remote), ledger)
        if status is not None and seen.state not in LEADS:
            status = msgspec.structs.replace(status, phase="ended", rates={})
        return Sight(
            self.number,
            remote.store.where(),
            time.time_ns() // 1000,
            "",
            seen,
            status,
            {name: heat_of(remote.store, ledger, name) for name in sorted(ledger.rings)},
            dict(ledger.counters.dead_of),
            dict(ledger.counters.records_of),
            dict(ledger.counters.metrics),
            ledger.newest,
            dict(ledger.outs),
            {stream: len(splits) for stream, splits in ledger.splits.items()},
        )

    def _still_there(self) -> Remote:
        """The pipeline; read anew where its checkpoint was deleted and made again."""
        remote = self.remote
        identity = read_identity(remote.store)
        if identity is None:
            raise no_checkpoint(remote.store)
        if identity.id != remote.id:
            self._remote = self._log = self._history = None
        return self.remote

    def _follow(self, remote: Remote) -> History:
        log, history = self._log, self._history
        if log is not None and history is not None:
            first = log.position + 1
            entries = list(log.follow())
            if not log.is_trimmed(first):
                for position, entry in entries:
                    history.fold(position, entry)
                return history
        log = EpochLog(remote.store)
        self._history = history = recover(log, 1)
        self._log = log
        return history

    def _alive(self, remote: Remote) -> Lease | None:
        """The lease, unless its driver has shown no sign of life for as long as it is valid."""
        lease, now = read_lease(remote.store), self._clock()
        if lease != self._lease:
            self._lease, self._moved_s = lease, now
        if lease is None or lease.state != HELD or now - self._moved_s <= lease.length_s:
            return lease
        return None
