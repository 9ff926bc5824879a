"""The directories in which calls that must not repeat are logged: made, and taken away.

Only a driver makes one, and only collection takes one away, by renaming it first: a
task of a plan that is long closed then finds no place for its intent, and stops
before it calls (protocol C8). A driver that was overtaken while it slept may make one
again: so a marker, put before, stays for ever, and a task looks for it before it calls.
When a span of epochs is over, one marker takes the place of all those in it.
"""

from __future__ import annotations

from itertools import pairwise

from headrace.engine.driver.recovery import History
from headrace.limits import Limits
from headrace.log import paths
from headrace.log.epochlog import EpochLog
from headrace.plan.epoch import Plan
from headrace.store.store import Store


def make_ready(store: Store, log: EpochLog, plan: Plan) -> None:
    """Makes the directory that a plan names, if it names one.

    The look at the log comes after: a driver that was overtaken while it slept could make
    again what its successor has taken away, and must not start a job then.
    """
    if plan.determinants:
        store.make_directory(paths.determinants_directory(plan.determinants))
        log.check()


def is_closed(store: Store, first: int) -> bool:
    """Whether the directory of epochs from `first` on was taken away."""
    # In this order: the first goes only when the second is there.
    markers = (
        paths.closed_marker(paths.determinants_directory(first)),
        paths.closed_span_marker(first),
    )
    for marker in markers:
        try:
            store.read(marker)
        except FileNotFoundError:
            continue
        return True
    return False


def collect_determinants(
    store: Store, history: History, pinned: frozenset[int] = frozenset()
) -> int:
    """Takes away the directories of epochs that have left the retention window."""
    oldest = history.commits[0][1].epoch if history.commits else 0
    names = {name.removesuffix(".gone") for name in store.list(paths.DETERMINANTS)}
    current = history.ledger.determinants
    firsts = sorted({int(name) for name in names if name.isdigit()} | {current})
    gone = 0
    for first, following in pairwise(firsts):
        # Its last epoch is the one before the next directory's first.
        if first < current and following <= oldest and first not in pinned:
            directory = paths.determinants_directory(first)
            store.put_if_absent(paths.closed_marker(directory), b"")
            gone += store.retire_directory(directory)
    _close_spans(store, store.system.limits)
    return gone


def _close_spans(store: Store, limits: Limits) -> None:
    """One marker instead of many, for spans that lie wholly before a directory that is closed.

    Directories are named in the order of epochs: before one that is closed none is in use.
    """
    stems = (n.removesuffix(".closed") for n in store.list(paths.DETERMINANTS) if "." in n)
    closed = sorted(int(stem) for stem in stems if stem.isdigit())
    spans = {first // limits.closed_span_epochs for first in closed}
    for over in sorted(spans)[:-1]:
        mine = [first for first in closed if first // limits.closed_span_epochs == over]
        if not store.put_if_absent(paths.closed_span_marker(mine[0], limits), b""):
            store.sync(paths.DETERMINANTS)  # that it exists does not prove that it is on disk
        for first in mine:
            store.delete(paths.closed_marker(paths.determinants_directory(first)))
