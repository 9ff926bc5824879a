"""Collection of files that no commit needs any more (protocol C8).

A file is deleted only if its epoch is closed, no commit of the retention window names it, no pin
names it, and every sink has acknowledged its epoch. Orphans of failed attempts are deleted by the
same rule. They are swept repeatedly, because a zombie task can write a file late.
"""

from __future__ import annotations

from headrace.engine.driver.determinants import collect_determinants
from headrace.engine.driver.pins import pins_of
from headrace.engine.driver.recovery import History
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.epochlog import EpochLog
from headrace.store.store import Store


def collect(store: Store, log: EpochLog, history: History, acknowledged: int) -> int:
    """Deletes the files that nothing needs any more; returns how many were deleted."""
    reach("before-collect")
    gone = 0
    closed = history.ledger.epoch
    ledger = history.ledger
    needed: set[str] = set().union(*history.segments, ledger.segments(), ledger.records())
    oldest = history.commits[0][1].epoch if history.commits else 0
    pins = pins_of(store)
    needed |= pins.files
    for directory in [f"{d}/{c}" for d in (paths.STATE, paths.READ) for c in store.list(d)]:
        for name in store.list(directory):
            full = f"{directory}/{name}"
            if full not in needed and _epoch(name) <= closed:
                store.delete(full)
                gone += 1
        gone += store.sweep(directory, store.system.limits.leftover_age_s)
    keep_from = min(oldest, acknowledged + 1)
    for directory in [paths.OUTBOX, *(f"{paths.STAGED}/{s}" for s in store.list(paths.STAGED))]:
        named = _named(history, directory)
        for name in store.list(directory):
            epoch = _epoch(name)
            orphan = oldest <= epoch <= closed and name not in named
            if (epoch < keep_from or orphan) and f"{directory}/{name}" not in pins.files:
                store.delete(f"{directory}/{name}")
                gone += 1
        gone += store.sweep(directory, store.system.limits.leftover_age_s)
    for name in store.list(paths.WORK):  # left by a driver that died during its job
        if _epoch(name) <= closed:
            store.delete(f"{paths.WORK}/{name}")
            gone += 1
    gone += collect_determinants(store, history, pins.determinants)
    needed_from = history.needed_from()
    log.trim(needed_from if pins.log_from is None else min(needed_from, pins.log_from))
    reach("after-collect")
    return gone


def _named(history: History, directory: str) -> set[str]:
    """Staged and outbox files that commits of the retention window name."""
    if directory == paths.OUTBOX:
        return {f.name for _, commit in history.commits for f in commit.outbox}
    return {f.name for _, commit in history.commits for f in commit.staged}


def _epoch(name: str) -> int:
    try:
        return paths.parse_content_name(name)[0]
    except ValueError:
        return 2**62  # not one of our files: never collected
