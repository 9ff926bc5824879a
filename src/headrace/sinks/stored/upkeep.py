"""Upkeep of a sink's store, in the background: merges manifests, deletes files of no epoch.

Never on the path of an epoch, and never needed for correctness: an error only delays it.

1. A run of manifests is read, and put as one under a new name (`manifest`).
2. Only then are the manifests of the run deleted. After a crash in between both forms are there;
   readers take each epoch once, and the next upkeep deletes what a merged one covers.
3. A data file is deleted if its epoch has a manifest, and neither that one nor a weak delivery of
   the epoch names it: it comes from an attempt that was dropped. A late task can write such a file
   at any time, so this is repeated (protocol C8).

Deleted names are not used again: a data file's name contains an epoch that is closed, and the
manifest of a merged epoch is covered by another one, whatever a driver that wakes late puts there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headrace.errors import HeadraceError
from headrace.sinks.stored.manifest import (
    DATA,
    EPOCHS,
    ManifestName,
    encode_manifest,
    joined,
)
from headrace.sinks.stored.manifests import Manifests
from headrace.sinks.stored.replaced import held_back
from headrace.store.counts import UPKEEP, counted_as
from headrace.store.store import Store
from headrace.system import Thread

MERGED_BYTES_MAX = 16 << 20
"""A merged manifest has about this size at most, because a reader holds it in memory."""
WHOLE_SWEEP_EVERY_S = 3600.0
"""How often a sweep looks at all data; the others look only at recent epochs."""

_logger = logging.getLogger("headrace.sinks")


class Upkeep:
    """Runs upkeep now and then, in one thread at a time."""

    def __init__(self, store: Store, *, has_directories: bool) -> None:
        self._store = store
        self._has_directories = has_directories
        self._every = store.system.limits.sink_upkeep_epochs
        self._since = 0
        self._thread: Thread | None = None
        self._is_running = False
        self._swept_at = float("-inf")

    def after(self, epoch: int) -> None:
        """Says that an epoch was delivered; may start upkeep."""
        self._since += 1
        if self._since < self._every or self._is_running:
            return
        self._since = 0
        self._is_running = True
        self._thread = self._store.system.thread(lambda: self._run(epoch), "headrace-sink-upkeep")
        self._thread.start()

    def wait(self) -> None:
        """Waits for upkeep that is running."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, closed: int) -> None:
        try:
            with counted_as(UPKEEP):
                while merge(self._store, self._every):
                    pass
                self._sweep(closed)
        except (HeadraceError, OSError) as error:
            _logger.info("upkeep of %s is put off: %s", self._store.where(), error)
        finally:
            self._is_running = False

    def _sweep(self, closed: int) -> None:
        now = self._store.system.uptime_s()
        if now - self._swept_at >= WHOLE_SWEEP_EVERY_S:
            sweep(self._store, 0, closed)
            self._swept_at = now
        elif not self._has_directories:
            # With directories every sweep would list them all.
            sweep(self._store, max(0, closed - 4 * self._every), closed)


def merge(store: Store, every: int) -> bool:
    """Merges one run of manifests, if one is due; returns whether it did."""
    names, sizes = _sizes(store)
    for covered in covered_names(names):
        store.delete(covered.name)
        names.remove(covered)
    run = due_run([name for name in names if not name.weak], sizes, every)
    if not run:
        return False
    manifests = Manifests(store)
    rewrite = max(name.rewrite for name in run)
    merged = ManifestName(run[-1].last, run[-1].last - run[0].first + 1, rewrite=rewrite)
    run += [name for name in names if name.weak and merged.first <= name.last <= merged.last]
    data = encode_manifest(joined([manifests.read(name) for name in run]))
    store.put_if_absent(merged.name, data)
    if store.read(merged.name) != data:
        _logger.warning("%s is not what was merged; nothing is deleted", store.where(merged.name))
        return False
    for name in run:
        store.delete(name.name)
    return True


def covered_names(names: Sequence[ManifestName]) -> list[ManifestName]:
    """Manifests all of whose epochs are in one with more weight."""
    strong = [name for name in names if not name.weak]
    larger = [name for name in strong if name.count > 1 or name.rewrite]
    return [
        name
        for name in strong
        if any(
            m.weight > name.weight and m.first <= name.first and name.last <= m.last for m in larger
        )
    ]


def due_run(
    names: Sequence[ManifestName], sizes: dict[ManifestName, int], every: int
) -> list[ManifestName]:
    """The oldest run of neighbours of like count that should become one manifest; [] if none.

    The newest manifests stay as they are: a driver that starts looks at the last of them.
    """
    level = 1
    while level <= max((name.count for name in names), default=0):
        alike = [name for name in names if level <= name.count < level * every]
        if level == 1:
            alike = alike[:-every]
        run: list[ManifestName] = []
        for name in alike:
            if sizes[name] > MERGED_BYTES_MAX // 2:
                run = []
                continue
            if run and run[-1].last + 1 != name.first:
                run = []
            run.append(name)
            if len(run) == every or sum(sizes[each] for each in run) > MERGED_BYTES_MAX:
                return run
        level *= every
    return []


def sweep(store: Store, after: int, closed: int) -> int:
    """Deletes data of epochs in (after, closed] that no manifest names; returns how many files."""
    named: dict[int, set[str]] = {}
    weak: dict[int, set[str]] = {}
    manifests = Manifests(store)
    for name in manifests.names(after):
        try:
            found = manifests.read(name)
        except FileNotFoundError:
            return 0  # merged by another driver just now: the next sweep sees the merged one
        for each in found.epochs:
            files = {file.name for file in each.files}
            (weak if each.weak else named).setdefault(each.epoch, set()).update(files)
    swept = 0
    held = held_back(store)
    # Names begin with their epoch, so a sweep of recent epochs need not list the older ones.
    for info in store.walk(DATA, after=f"{DATA}/{after:012d}" if after else ""):
        if info is None:
            continue
        file = info.name.removeprefix(f"{DATA}/")
        epoch = _epoch_of(file)
        if epoch is None or not after < epoch <= closed or epoch not in named:
            continue
        if file in held:
            continue
        if file not in named[epoch] and file not in weak.get(epoch, ()):
            store.delete(info.name)
            swept += 1
    return swept


def _epoch_of(name: str) -> int | None:
    head = name.rpartition("/")[2][:12]
    return int(head) if len(head) == 12 and head.isdigit() else None


def _sizes(store: Store) -> tuple[list[ManifestName], dict[ManifestName, int]]:
    sizes: dict[ManifestName, int] = {}
    for info in store.walk(EPOCHS):
        name = None if info is None else ManifestName.parse(info.name.rpartition("/")[2])
        if info is not None and name is not None:
            sizes[name] = info.size
    return sorted(sizes), sizes
