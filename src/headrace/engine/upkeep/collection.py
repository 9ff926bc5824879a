"""Collection of files that no commit needs any more (protocol C8).

A file is deleted only if its epoch is closed, no commit of the retention window names it, no pin
names it, and every sink has acknowledged its epoch. Orphans of failed attempts are deleted by the
same rule. They are swept repeatedly, because a zombie task can write a file late.

The loop computes what is needed (`needed_by`, without the store), and a thread lists and deletes:
no epoch waits for that. It does not matter how late the thread acts. What is needed later and was
not needed then belongs to a later epoch, whose files are not deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from headrace.engine.history.recovery import History
from headrace.engine.upkeep.determinants import collect_determinants
from headrace.engine.upkeep.pins import pins_of
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.epochlog import EpochLog
from headrace.plan.decisions.transient import is_outage
from headrace.store.counts import UPKEEP, counted_as
from headrace.store.store import Store

_logger = logging.getLogger("headrace.collection")


@dataclass(frozen=True)
class Needed:
    """What must be kept, as of one commit."""

    closed: int
    """The last committed epoch; or an earlier one, while a checkpoint is under way."""
    oldest: int
    """The first epoch of the retention window; 0 if there is no commit."""
    acknowledged: int
    """The last epoch that every sink has."""
    merging_since: int
    """The epoch in which the oldest running merge began."""
    files: frozenset[str]
    """Segments, records of what was read, and ring objects."""
    staged: frozenset[str]
    outbox: frozenset[str]
    determinants: int
    """The first epoch of the directory of logged calls that is in use."""
    log_from: int
    saved: frozenset[str] = frozenset()
    """What savepoints keep: their own files, and those of their state (I10)."""


def needed_by(
    history: History,
    acknowledged: int,
    merging_since: int | None = None,
    saved: frozenset[str] = frozenset(),
    making_since: int | None = None,
) -> Needed:
    """What the ledger, the retention window and the sinks need now.

    `making_since`: files of this epoch and later may be fragments that no entry names yet (M3).
    """
    ledger = history.ledger
    commits = [commit for _, commit in history.commits]
    return Needed(
        closed=ledger.epoch if making_since is None else min(ledger.epoch, making_since - 1),
        oldest=commits[0].epoch if commits else 0,
        acknowledged=acknowledged,
        merging_since=ledger.epoch + 1 if merging_since is None else merging_since,
        files=history.files(),
        staged=frozenset(file.name for commit in commits for file in commit.staged),
        outbox=frozenset(file.name for commit in commits for file in commit.outbox),
        determinants=ledger.determinants,
        log_from=history.needed_from(),
        saved=saved,
    )


class Collector:
    """Collects beside the epochs; with `background=False`, in the calling thread."""

    def __init__(
        self, store: Store, log: EpochLog, tidy: Callable[[], None], *, background: bool
    ) -> None:
        """`tidy` deletes what sinks need no more."""
        self._store, self._log, self._tidy = store, log, tidy
        self._pool = store.system.executor("headrace-collection") if background else None
        self._running: Future[None] | None = None
        self._began_s = float("-inf")

    def collect(self, needed: Needed) -> None:
        """Begins a collection, unless the last one still runs: the next one does its work.

        On an object store, where requests cost, it also comes later: each lists every directory.
        """
        now, rest_s = self._store.system.uptime_s(), self._store.system.limits.collect_rest_s
        if self._store.rewrite_interval_s and now - self._began_s < rest_s:
            return
        if self._pool is None:
            self._began_s = now
            self._act(needed)
            return
        if self._running is not None:
            if not self._running.done():
                return
            self._raise_failure(self._running)
        self._began_s = now
        self._running = self._pool.submit(self._act, needed)

    def _act(self, needed: Needed) -> None:
        with counted_as(UPKEEP):
            collect(self._store, self._log, needed)
            self._tidy()

    def _raise_failure(self, ended: Future[None]) -> None:
        """Raises the error of the last collection; an outage is only logged."""
        error = ended.exception()
        if error is None:
            return
        if not isinstance(error, Exception) or not is_outage(error):
            raise error
        _logger.warning("old files could not be deleted: %s; they are deleted later", error)

    def close(self) -> None:
        """Waits for the collection that runs."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)


def collect(store: Store, log: EpochLog, needed: Needed) -> int:
    """Deletes the files that nothing needs any more; returns how many were deleted."""
    reach("before-collect")
    pins = pins_of(store)
    age_s = store.system.limits.leftover_age_s
    pinned = needed.saved | pins.files
    kept = needed.files | pinned
    gone = 0
    states = [f"{d}/{c}" for d in (paths.STATE, paths.READ, paths.TABLES) for c in store.list(d)]
    # Orphans of savepoints wait for the next savepoint: each listing is a request.
    for directory in [*states, paths.RINGS, *([paths.SAVEPOINTS] if needed.saved else [])]:
        found = _listed(store, directory)
        old = [name for name, epoch in found if epoch <= needed.closed and name not in kept]
        gone += _delete(store, old)
        gone += store.sweep(directory, age_s)
    keep_from = min(needed.oldest, needed.acknowledged + 1)
    window = range(needed.oldest, needed.closed + 1)
    for directory in [paths.OUTBOX, *(f"{paths.STAGED}/{s}" for s in store.list(paths.STAGED))]:
        named = needed.outbox if directory == paths.OUTBOX else needed.staged
        found = _listed(store, directory)
        old = [
            name
            for name, epoch in found
            if name not in pinned
            and (epoch < keep_from or (epoch in window and name.rpartition("/")[2] not in named))
        ]
        gone += _delete(store, old)
        gone += store.sweep(directory, age_s)
    found = _listed(store, paths.WORK)
    found += _marks(store)
    parts_from = needed.closed + 1 - store.system.limits.order_parts
    gone += _delete(
        store,
        (
            name
            for name, epoch in found
            if epoch <= (parts_from if paths.is_order_part(name) else needed.closed)
        ),
    )
    gone += _collect_merged(store, needed.merging_since)
    gone += collect_determinants(store, needed.oldest, needed.determinants, pins.determinants)
    log.trim(needed.log_from if pins.log_from is None else min(needed.log_from, pins.log_from))
    reach("after-collect")
    return gone


def _collect_merged(store: Store, since: int) -> int:
    """Sweeps results of merges that were never adopted: their driver died, or was slow."""
    old: list[str] = []
    for name in store.list(paths.MERGED):
        try:
            if paths.merged_in(name) < since:
                old.append(f"{paths.MERGED}/{name}")
        except ValueError:
            continue  # not one of our files
    return _delete(store, old) + store.sweep(paths.MERGED, store.system.limits.leftover_age_s)


def _listed(store: Store, directory: str) -> list[tuple[str, int]]:
    """The full names of the files in a directory that are named by content, and their epochs."""
    found: list[tuple[str, int]] = []
    for name in store.list(directory):
        try:
            found.append((f"{directory}/{name}", paths.parse_content_name(name)[0]))
        except ValueError:
            continue  # not one of our files: never collected
    return found


def _marks(store: Store) -> list[tuple[str, int]]:
    """The marks of slow slots, and their epochs."""
    found: list[tuple[str, int]] = []
    for name in store.list(paths.WORK):
        try:
            found.append((f"{paths.WORK}/{name}", paths.marked_in(name)))
        except ValueError:
            continue  # a work order
    return found


def _delete(store: Store, names: Iterable[str]) -> int:
    found = list(names)
    store.delete_all(found)
    return len(found)
