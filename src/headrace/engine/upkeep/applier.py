"""Applies committed epochs to the state store, beside the epochs (O2 to O7).

1. After a commit its segments are read, and their fields and map entries written to the store. Each
   write is judged by its stamp, so it may be repeated, and come late from a driver that was fenced.
2. When all cells of an epoch are in, the store's own mark is raised. Recovery goes on from there.
3. The store is synced. Only then the next commit carries the mark: the *log's mark*. Segments up to
   it may go, no others.
4. Now and then tombstones are removed, up to the log's mark and never beyond the store's own.

A store whose own mark is below what the kept commits can make good was put back to an older copy:
it is refused. In a restore-mode probation nothing is applied, because it may be taken back (L6).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from headrace.engine.history.recovery import History
from headrace.errors import IncompatibleState
from headrace.failpoints import reach
from headrace.plan.decisions.transient import is_outage
from headrace.plan.epoch import Commit
from headrace.plan.state.applied import AppliedBase, AppliedState, StoreMark, unapplied_over
from headrace.state.backend import StateBackend
from headrace.state.segment import ENTRY, FIELD, Cell, read_cells
from headrace.store.counts import UPKEEP, counted_as
from headrace.store.store import Store

_PAUSE_S = 0.005
_logger = logging.getLogger("headrace.applier")


class _Work(NamedTuple):
    """What a turn of the applier is to do, apart from the ledger, which goes on meanwhile."""

    commits: tuple[tuple[int, Commit], ...]
    """(log position, commit) of the retention window, up to the last that may be applied."""
    mark: int
    """The log's mark."""
    names: AppliedState
    """The names of computations in the store, as of the last epoch that may be applied."""
    tidies: str | None
    """The place that all readers use, if others may go."""


class Applier:
    """Brings the state store of one checkpoint up to date, for the driver that leads."""

    def __init__(
        self, backend: StateBackend | None, store: Store, history: History, background: bool
    ) -> None:
        """Without a backend it does nothing. `background=False`: in the calling thread."""
        self._backend, self._store, self._history = backend, store, history
        self._limits = store.system.limits
        threads = background and backend is not None
        self._pool = store.system.executor("headrace-applier") if threads else None
        self._running: Future[None] | None = None
        self._synced = StoreMark(0)
        self._purged = 0

    # For the driver -------------------------------------------------------

    def begin(self, generation: int) -> None:
        """A driver leads now: the store gets what it lacks, by its own mark (O4)."""
        if self._backend is None:
            return
        ledger = self._history.ledger
        self._backend.lead(generation, ledger.applied.place)
        applied = self._backend.marks().applied
        if applied > ledger.epoch:
            raise IncompatibleState(
                f"the state store {self._backend.name!r} has epoch {applied}, and this checkpoint "
                f"has only come to epoch {ledger.epoch}: the checkpoint was put back to an older "
                "copy, or the store is that of another one. Put back copies of the same time"
            )
        with counted_as(UPKEEP):
            self._turn(self._work())

    def base(self) -> AppliedBase | None:
        """What the tasks of the next try must know; None if there is no state store.

        It waits while too many epochs are unapplied (O7), and repairs a store that has lost what it
        had.
        """
        if self._backend is None:
            return None
        ledger = self._history.ledger
        while self._is_behind():
            self.proceed()
            self._settle()  # an outage is raised here: the caller waits, and asks again
        # One answer must say both which run it is and that it has all epochs: the store may be put
        # back to an older copy just after it was brought up.
        while (marks := self._backend.marks()).applied < ledger.applied.epoch:
            self._settle()
            self._bring_up(self._work())
        # The place of this driver's own store, which the next commit names: the one that the ledger
        # names may be missing in an older copy that was made good.
        place = self._backend.place()
        applied = ledger.applied
        return AppliedBase(applied.epoch, place, marks.run, applied.names, applied.id)

    def proceed(self) -> None:
        """Begins to apply what was committed, unless that runs already.

        An outage of the store is no reason to stop before too much is unapplied: the next call
        tries again.
        """
        if self._backend is None or (self._running is not None and not self._running.done()):
            return
        running, self._running = self._running, None
        error = None if running is None else running.exception()
        if error is not None and not is_outage(error):
            raise error
        if error is not None:
            _logger.warning("epochs could not be applied: %s; they are applied later", error)
        if self._upto() <= self._synced.epoch:
            return
        self._running = self._begun(self._work())

    def ride(self) -> StoreMark | None:
        """What the commit that is being written says of the store; the ledger gets it too.

        None if there is no state store.
        """
        if self._backend is None:
            return None
        ledger = self._history.ledger
        ledger.applied = ledger.applied.marked(self._synced)
        return StoreMark(ledger.applied.epoch, ledger.applied.place)

    def close(self) -> None:
        """Waits for the epoch that is being applied. The next driver applies the rest."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        if self._backend is not None:
            self._backend.close()

    def _begun(self, work: _Work) -> Future[None]:
        if self._pool is not None:
            return self._pool.submit(self._counted, work)
        done: Future[None] = Future()
        try:
            self._counted(work)
            done.set_result(None)
        except Exception as error:
            done.set_exception(error)
        return done

    def _settle(self) -> None:
        """Waits for the turn that runs; raises its error."""
        running = self._running
        while running is not None and not running.done():
            self._store.system.sleep(_PAUSE_S)
        self._running = None
        if running is not None:
            running.result()

    def _is_behind(self) -> bool:
        limit = self._limits.unapplied_epochs_max
        return unapplied_over(self._upto(), self._synced.epoch, limit)

    def _upto(self) -> int:
        """The last epoch that may be applied."""
        ledger = self._history.ledger
        return ledger.epoch if ledger.saved is None else ledger.saved.epoch

    def _work(self) -> _Work:
        ledger, upto = self._history.ledger, self._upto()
        commits = tuple(each for each in self._history.commits if each[1].epoch <= upto)
        place = ledger.applied.place
        tidies = place if place == self._synced.place and ledger.saved is None else None
        # A deploy may give state up. If it is taken back, the state before it counts again.
        names = ledger.applied if ledger.saved is None else ledger.saved.applied
        return _Work(commits, ledger.applied.epoch, names, tidies)

    # What runs beside the epochs ------------------------------------------

    def _counted(self, work: _Work) -> None:
        with counted_as(UPKEEP):
            self._turn(work)

    def _turn(self, work: _Work) -> None:
        """Applies, syncs, and now and then purges."""
        self._bring_up(work)
        self._sync()
        if work.mark // self._limits.purge_every_epochs > self._purged and self._backend:
            self._purged = work.mark // self._limits.purge_every_epochs
            if work.tidies is not None:
                self._backend.tidy(work.tidies)
            self._backend.purge(work.mark)
            reach("after-purge")
            self._sync()

    def _sync(self) -> None:
        """The mark counts once it is synced, in one and the same run of the store (O4)."""
        if self._backend is None:
            return
        before = self._backend.marks()
        self._backend.sync()
        reach("after-store-sync")
        if self._backend.marks().run == before.run:
            self._synced = StoreMark(before.applied, self._backend.place())

    def _bring_up(self, work: _Work) -> None:
        """Applies all that the store lacks, by its own mark (O4); refuses an older copy (O6)."""
        backend = self._backend
        commits = {commit.epoch: (position, commit) for position, commit in work.commits}
        upto = max(commits, default=0)
        while backend is not None:
            marks = backend.marks()
            for epoch in range(marks.applied + 1, upto + 1):
                if epoch not in commits:
                    now = backend.marks()
                    if now.applied >= epoch or now.run != marks.run:
                        break  # another driver has applied it, or the store is another one now
                    raise _older_copy(backend.name, marks.applied, min(commits), work.mark)
                backend.write(epoch, self._cells(*commits[epoch], work.names))
                reach("after-cells-write")
                if not backend.raise_applied(epoch, marks.run):
                    break
                reach("after-store-mark")
            now = backend.marks()
            if now.run == marks.run and now.applied >= upto:
                return

    def _cells(
        self, position: int, commit: Commit, names: AppliedState
    ) -> Sequence[tuple[str, Cell]]:
        """The fields and map entries that an epoch has changed."""
        found: list[tuple[str, Cell]] = []
        for computation, deltas in commit.deltas.items():
            if names.is_forgotten(computation, commit.epoch):
                continue
            name = names.named(computation)
            for delta in deltas.values():
                at = position if delta.rides else 0
                cells = read_cells(self._store, delta.segment, at)
                found += [(name, cell) for cell in cells if cell.kind in (FIELD, ENTRY)]
        return found


def _older_copy(backend: str, applied: int, first: int, mark: int) -> IncompatibleState:
    return IncompatibleState(
        f"the state store {backend!r} has epoch {applied}, but this checkpoint has relied on its "
        f"having epoch {mark}, and keeps changes only from epoch {first} on: the store was "
        "put back to an older copy, or is another one. Put back a copy of the store that has "
        f"epoch {max(first - 1, 0)} or a later one, or start a new checkpoint"
    )
