"""Local copies of segments: a directory of the executor, shared by its workers.

The name of a segment contains the digest of its bytes, so a copy can be verified without asking the
store. An executor keeps the segments that it writes, and fetches those of slots for which it is a
replica. The directory lies in Spark's own directory, which is deleted with the executor.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import xxhash

from headrace.errors import HeadraceError
from headrace.log import paths
from headrace.log.content import verify
from headrace.store.disk import DiskStore
from headrace.store.store import ForwardingStore, Store

_COPIED = f"{paths.STATE}/"


class NearStore(ForwardingStore):
    """The shared store, with copies of segments on the local disk of this executor."""

    def __init__(self, far: Store, directory: str | Path) -> None:
        super().__init__(far)
        own = xxhash.xxh3_64_hexdigest(far.location.encode())
        self.near = DiskStore(Path(directory) / own)
        self.near_reads = 0
        self.far_reads = 0
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
        self._keep(name, data)
        return data

    def write(self, name: str, data: bytes) -> None:
        super().write(name, data)
        if name.startswith(_COPIED):
            self._keep(name, data)

    def _near(self, name: str) -> pa.Buffer | None:
        try:
            data = self.near.map(name)
            verify(name, data)
        except (OSError, HeadraceError):
            return None
        return data

    def _keep(self, name: str, data: bytes | pa.Buffer) -> None:
        """Keeps a copy if it can: a full or failing local disk must not fail the task."""
        try:
            self.near.make_directory(name.rpartition("/")[0])
            self.near.write_volatile(name, memoryview(data))  # type: ignore[arg-type]
        except (OSError, HeadraceError):
            pass

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


def _epoch(name: str) -> float:
    try:
        return paths.parse_content_name(name)[0]
    except ValueError:
        return math.inf


def near_directory() -> str | None:
    """Where this executor may keep its own files; None if Spark does not say."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return os.path.join(first, "headrace") if first else None
