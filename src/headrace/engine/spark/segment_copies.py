"""Local copies of immutable files: a directory of the executor, shared by its workers.

The name of such a file contains the digest of its bytes, so a copy can be verified without asking
the store. An executor keeps what it writes and what it has read, and fetches the segments of slots
for which it is a replica. So each file of a store without local paths is read once per executor.

The directory lies in Spark's own, which is deleted with the executor. Its size is bounded: copies
that were not used for the longest time are deleted. Whichever worker uses a copy, it sets the time
of the file. Deltas that have no other place lie beside it, and are not copies (`log/holding.py`).
"""

from __future__ import annotations

import atexit
import functools
import math
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import xxhash

from headrace.errors import HeadraceError
from headrace.log import paths
from headrace.log.content import verify
from headrace.log.holding import HoldingStore
from headrace.store.disk import DiskStore
from headrace.store.location import open_store
from headrace.store.store import ForwardingStore, Store

_COPIED = (f"{paths.STATE}/", f"{paths.OUTBOX}/")
_CHECKS = 16
"""A worker measures the directory when it has added this part of the allowed size."""


def store_on_executor(location: str, near_bytes: int, *, holds: bool) -> Store:
    """A store as the tasks of an executor see it: with copies of what they read and write, and
    with the deltas that it `holds` until a checkpoint has them."""
    far = open_store(location)
    if not near_bytes:
        return far
    near = NearStore(far, near_directory(), near_bytes)
    if not holds or not os.environ.get("SPARK_LOCAL_DIRS"):
        return near  # without a directory that all its processes share, an executor holds nothing
    return HoldingStore(near, _own(near_directory(), far, "held"), near_bytes)


def near_store(store: Store) -> NearStore | None:
    """The copies of an executor's store; None if it has none."""
    found = store.base if isinstance(store, HoldingStore) else store
    return found if isinstance(found, NearStore) else None


def _own(directory: str | Path, far: Store, *more: str) -> DiskStore:
    """The executor's own directory for one store."""
    return DiskStore(Path(directory, *more, xxhash.xxh3_64_hexdigest(far.location.encode())))


class NearStore(ForwardingStore):
    """The shared store, with copies of immutable files on the local disk of this executor."""

    def __init__(self, far: Store, directory: str | Path, bytes_max: int = 10**9) -> None:
        super().__init__(far)
        self.near = _own(directory, far)
        self.near_reads = 0
        self.far_reads = 0
        self._bytes_max = bytes_max
        self._added = bytes_max  # measured at the first copy: other workers have written there
        self._swept: dict[str, int] = {}
        """Directory -> the epoch in which this process last swept it."""

    def map(self, name: str) -> pa.Buffer:
        if not name.startswith(_COPIED):
            return super().map(name)
        found = self._near(name)
        if found is not None:
            self.near_reads += 1
            return found
        data = super().map(name)
        self.far_reads += 1
        # The copy is mapped: pages that are not in use take no memory.
        return (self._near(name) or data) if self._keep(name, data) else data

    def write(self, name: str, data: bytes) -> None:
        super().write(name, data)
        if name.startswith(_COPIED):
            self._keep(name, data)

    def near_copy(self, name: str) -> pa.Buffer | None:
        """The copy of a small segment that has no file of its own in the shared store (M1)."""
        if not name.startswith(_COPIED):
            return None
        found = self._near(name)
        self.near_reads += found is not None
        self.far_reads += found is None
        return found

    def keep_near(self, name: str, data: bytes | pa.Buffer) -> None:
        if name.startswith(_COPIED):
            self._keep(name, data)

    def _near(self, name: str) -> pa.Buffer | None:
        try:
            data = self.near.map(name)
            verify(name, data)
            os.utime(self.near.local_path(name))
        except (OSError, HeadraceError):
            return None
        return data

    def _keep(self, name: str, data: bytes | pa.Buffer) -> bool:
        """Keeps a copy if it can: a full or failing local disk must not fail the task."""
        if len(data) > self._bytes_max // 2:
            return False
        try:
            self.near.make_directory(name.rpartition("/")[0])
            self.near.write_volatile(name, memoryview(data))  # type: ignore[arg-type]
            self._added += len(data)
            if self._added >= self._bytes_max // _CHECKS:
                self._added = 0
                self._make_room()
        except (OSError, HeadraceError):
            return False
        return True

    def _make_room(self) -> None:
        """Deletes copies, the longest unused first, until their size is well below the bound."""
        found = list(_files(self.near.location))
        size = sum(file.st_size for _, file in found)
        if size <= self._bytes_max:
            return
        for path, file in sorted(found, key=lambda each: each[1].st_mtime_ns):
            Path(path).unlink(missing_ok=True)
            size -= file.st_size
            if size <= self._bytes_max - self._bytes_max // _CHECKS:
                return

    def drop_copies(self, directory: str, named: Iterable[str], before: int) -> None:
        """Drops copies of epochs `before` that no plan names any more; once per epoch is enough."""
        if self._swept.get(directory) == before:
            return
        self._swept[directory] = before
        keep = set(named)
        try:
            for name in self.near.list(directory):
                if _epoch(name) < before and f"{directory}/{name}" not in keep:
                    self.near.delete(f"{directory}/{name}")
        except (OSError, HeadraceError):
            pass  # the next sweep tries again


def _files(root: str) -> Iterable[tuple[str, os.stat_result]]:
    """The files below a directory; other workers add and delete some at the same time."""
    for above, _, names in os.walk(root):
        for name in names:
            path = os.path.join(above, name)
            try:
                yield path, os.stat(path)
            except FileNotFoundError:
                continue


def _epoch(name: str) -> float:
    try:
        return paths.parse_content_name(name)[0]
    except ValueError:
        return math.inf


def near_directory() -> str:
    """Where this executor may keep its own files; outside of Spark, where this process may."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return os.path.join(first, "headrace") if first else _of_this_process()


@functools.cache
def _of_this_process() -> str:
    made = tempfile.mkdtemp(prefix="headrace-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
