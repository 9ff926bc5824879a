"""`HoldingStore`: deltas that are only written lie on the executor's own disk (M2).

Where a checkpoint is a URL, a request for every larger delta costs more than the delta is worth: a
checkpoint of state will soon replace it. So it lies in a directory that all processes of one
executor share, where the next task of its slot runs. An executor that dies takes it along, and then
it is made again.

- A delta is complete under its name, or not there. It is never deleted to make room, but only when
  a checkpoint in the log has its epoch (`release`).
- Where the disk refuses, or holds too much, it goes to the store: always right, only slower.
- Who looks for a delta looks here first, and then in the store: repairs write there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.log import paths
from headrace.log.content import verify
from headrace.store.disk import DiskStore
from headrace.store.store import ForwardingStore, Store

_CHECKS = 16
"""A process measures the disk when it has added this part of what may be held: others do, too."""


class HoldingStore(ForwardingStore):
    """A store, and what this executor holds for it until the next checkpoint."""

    def __init__(self, base: Store, disk: DiskStore, bytes_max: int) -> None:
        """`disk`: the executor's own directory for this checkpoint; it need not exist yet."""
        super().__init__(base)
        self.disk = disk
        self._bytes_max = bytes_max
        self._bytes = 0
        """About how much is held, by all processes of the executor."""
        self._added = 0
        """How much this process has added since it measured what all have."""
        self._released = 0
        self.held = 0
        """How many deltas this process has put on its disk."""

    def write_for_now(self, name: str, data: bytes) -> bool:
        self._added += len(data)
        if self._added > self._bytes_max // _CHECKS:
            self._look(0)
        if self._bytes + len(data) <= self._bytes_max and self._hold(name, data):
            self._bytes += len(data)
            self.held += 1
            return True
        self.base.write(name, data)
        return False

    def map(self, name: str) -> pa.Buffer:
        found = self.held_copy(name)
        return super().map(name) if found is None else found

    def near_copy(self, name: str) -> pa.Buffer | None:
        return self.base.near_copy(name)

    def keep_near(self, name: str, data: bytes | pa.Buffer) -> None:
        self.base.keep_near(name, data)

    def held_copy(self, name: str) -> pa.Buffer | None:
        """A delta that lies on this executor's disk, and is whole; None if there is none."""
        if not name.startswith(f"{paths.STATE}/"):
            return None
        try:
            data = self.disk.map(name)
            verify(name, data)
        except (OSError, HeadraceError):
            return None
        return data

    def release(self, before: int) -> None:
        """Deletes the deltas of epochs `before`: a checkpoint in the log has them all.

        A lower number than the last one is of an older plan, or of a checkpoint that has begun anew
        at this place.
        """
        if before != self._released and self._look(before):
            self._released = before

    def _look(self, before: int) -> bool:
        """Deletes deltas of epochs `before`, and measures the others; False if the disk fails."""
        left = 0
        try:
            for directory in self.disk.list(paths.STATE):
                for name, epoch in self._in(f"{paths.STATE}/{directory}"):
                    if epoch < before:
                        self.disk.delete(name)
                    else:
                        left += self._size(name)
                self.disk.sweep(f"{paths.STATE}/{directory}", self.system.limits.leftover_age_s)
        except (OSError, HeadraceError):
            return False  # the next epoch tries again
        self._bytes, self._added = left, 0
        return True

    def _hold(self, name: str, data: bytes) -> bool:
        """A full or failing disk of an executor must not fail the task."""
        try:
            self.disk.make_directory(name.rpartition("/")[0])
            self.disk.write_volatile(name, data)
        except (OSError, HeadraceError):
            return False
        return True

    def _size(self, name: str) -> int:
        try:
            return self.disk.stat(name).size
        except FileNotFoundError:
            return 0  # another process has released it

    def _in(self, directory: str) -> Iterator[tuple[str, int]]:
        for name in self.disk.list(directory):
            try:
                yield os.path.join(directory, name), paths.parse_content_name(name)[0]
            except ValueError:
                continue
