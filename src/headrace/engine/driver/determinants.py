"""Creates and removes the directories that log calls which must not be repeated.

Only a driver creates such a directory, and only collection removes one. Collection renames the
directory first, so that a task of a plan that was closed long ago finds no place to write its
intent, and stops before it calls (protocol C8). A driver that was overtaken while it slept may
create the directory again. Therefore collection puts a marker first, which stays for ever, and a
task looks for the marker before it calls. When a span of epochs is closed, one marker replaces all
markers of that span.
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
    """Creates the directory that a plan names, if it names one.

    The log is checked after that: a driver that was overtaken while it slept could create a
    directory again that its successor has removed, and must not start a job then.
    """
    if plan.determinants:
        store.make_directory(paths.determinants_directory(plan.determinants))
        log.check()


def is_closed(store: Store, first: int) -> bool:
    """Whether the directory of the epochs that begin at `first` was removed."""
    # In this order: the first marker is deleted only when the second one exists.
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
    """Removes the directories of epochs that have left the retention window."""
    oldest = history.commits[0][1].epoch if history.commits else 0
    names = {name.removesuffix(".gone") for name in store.list(paths.DETERMINANTS)}
    current = history.ledger.determinants
    firsts = sorted({int(name) for name in names if name.isdigit()} | {current})
    gone = 0
    for first, following in pairwise(firsts):
        # The last epoch of a directory is the one before the first epoch of the next directory.
        if first < current and following <= oldest and first not in pinned:
            directory = paths.determinants_directory(first)
            store.put_if_absent(paths.closed_marker(directory), b"")
            gone += store.retire_directory(directory)
    _close_spans(store, store.system.limits)
    return gone


def _close_spans(store: Store, limits: Limits) -> None:
    """Replaces many markers by one, for spans that end before a closed directory.

    Directories are named in the order of epochs: no directory before a closed one is in use.
    """
    stems = (n.removesuffix(".closed") for n in store.list(paths.DETERMINANTS) if "." in n)
    closed = sorted(int(stem) for stem in stems if stem.isdigit())
    spans = {first // limits.closed_span_epochs for first in closed}
    for over in sorted(spans)[:-1]:
        mine = [first for first in closed if first // limits.closed_span_epochs == over]
        if not store.put_if_absent(paths.closed_span_marker(mine[0], limits), b""):
            store.sync(paths.DETERMINANTS)  # that the file exists does not prove that it is on disk
        for first in mine:
            store.delete(paths.closed_marker(paths.determinants_directory(first)))
