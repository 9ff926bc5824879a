"""Opens and closes the directories that log calls which must not be repeated.

Only a driver opens such a directory, and only collection closes one (protocol C8). A store need not
know directories, so two markers say what is the case:

1. A driver puts `<first>/opened` before the first job whose tasks log there. Whoever reads answers
   finds by it that the directory is there, and not merely out of sight.
2. Collection puts `<first>.closed`, which stays for ever.
3. It deletes `opened`: from here on nothing that is missing counts as an answer.
4. It deletes the rest. On a store with directories it renames the directory first, so that a task
   of a plan that was closed long ago finds no place to write its intent.

A task that has put its intent looks for `closed` before it calls: on other stores, and after a
driver that slept has opened the directory again, its put succeeds. When a span of epochs is closed,
one marker replaces all `closed` markers of that span.
"""

from __future__ import annotations

from itertools import pairwise

from headrace.errors import StoreError
from headrace.limits import Limits
from headrace.log import paths
from headrace.log.epochlog import EpochLog
from headrace.plan.epoch import Plan
from headrace.store.store import Store


def make_ready(store: Store, log: EpochLog, plan: Plan) -> None:
    """Opens the directory that a plan names, if it names one.

    The log is checked after that: a driver that was overtaken while it slept could open a
    directory again that its successor has closed, and must not start a job then.
    """
    if plan.determinants:
        directory = paths.determinants_directory(plan.determinants)
        store.make_directory(directory)
        # If another driver has put it, it is on disk at the latest when the first answer is.
        try:
            store.put_if_absent(paths.opened_marker(directory), b"")
        except FileNotFoundError as error:
            log.check()  # a newer driver has closed the directory since this one has made it
            raise StoreError(f"{store.where(directory)} has vanished: {error}") from error
        log.check()


def collect_determinants(
    store: Store, oldest: int, current: int, pinned: frozenset[int] = frozenset()
) -> int:
    """Removes the directories of epochs that have left the retention window.

    `oldest` is the first epoch of the window, `current` that of the directory in use.
    """
    names = {name.removesuffix(".gone") for name in store.list(paths.DETERMINANTS)}
    firsts = sorted({int(name) for name in names if name.isdigit()} | {current})
    gone = 0
    for first, following in pairwise(firsts):
        # The last epoch of a directory is the one before the first epoch of the next directory.
        if first < current and following <= oldest and first not in pinned:
            directory = paths.determinants_directory(first)
            store.put_if_absent(paths.closed_marker(directory), b"")
            store.delete(paths.opened_marker(directory))
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
