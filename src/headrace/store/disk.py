"""`DiskStore`: a directory on a POSIX filesystem that the driver and all executors share."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from headrace.errors import StoreError
from headrace.store import files
from headrace.store.counts import RequestCounter, RequestCounts
from headrace.store.store import ObjectInfo, Store, checked_name
from headrace.system import REAL, System


class DiskStore(Store):
    """A directory. Links, renames and syncs of directories are hidden inside."""

    def __init__(self, root: str | Path, system: System = REAL) -> None:
        self.system = system
        self.location = str(Path(root).absolute())
        self._was_present = False
        self._counter = RequestCounter()

    def requests(self) -> dict[str, RequestCounts]:
        return self._counter.so_far()

    def __reduce__(self) -> tuple[type[DiskStore], tuple[str]]:
        return (DiskStore, (self.location,))

    def is_present(self) -> bool:
        return self.system.files.is_directory(self.location)

    def local_path(self, name: str = "") -> str:
        """The path of a name."""
        return os.path.join(self.location, checked_name(name)) if name else self.location

    def write(self, name: str, data: bytes) -> None:
        self._counter.put(len(data))
        files.write(self.local_path(name), data, self.system)

    def write_volatile(self, name: str, data: bytes) -> None:
        self._counter.put(len(data))
        files.write(self.local_path(name), data, self.system, durable=False)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._counter.put(len(data))
        return files.put_if_absent(self.local_path(name), data, self.system)

    def sync(self, directory: str) -> None:
        path = self.local_path(directory)
        with files.explained("sync", path):
            files.sync_directory(path, self.system)

    def read(self, name: str) -> bytes:
        path = self.local_path(name)
        with files.explained("read", path):
            data = self.system.files.read(path)
        self._was_present = True
        self._counter.get(len(data))
        return data

    def map(self, name: str) -> pa.Buffer:
        path = self.local_path(name)
        with files.explained("read", path):
            data = self.system.files.map(path)
        self._counter.get(data.size)
        return data

    def stat(self, name: str) -> ObjectInfo:
        path = self.local_path(name)
        with files.explained("read", path):
            found = ObjectInfo(name, *self.system.files.status(path))
        self._counter.get()
        return found

    def list(self, directory: str) -> list[str]:
        path = self.local_path(directory)
        try:
            with files.explained("list", path):
                found = self.system.files.list(path)
        except FileNotFoundError:
            found = []
        self._counter.list(len(found))
        return sorted(name for name in found if not name.startswith("."))

    def delete(self, name: str) -> None:
        path = self.local_path(name)
        with files.explained("delete", path):
            files.remove(path, self.system)
        self._counter.delete()

    def copy(self, old: str, new: str) -> None:
        path = self.local_path(new)
        with files.explained("link", self.local_path(old)):
            files.link(self.local_path(old), path, self.system)
        self._counter.put()

    def sweep(self, directory: str, older_than_s: float) -> int:
        try:
            found = self.system.files.modified_s(self.local_path(directory), ".tmp")
        except FileNotFoundError:
            return 0
        until = self.system.wall_s() - older_than_s
        old = [name for name, at in found if name.startswith(".") and at < until]
        for name in old:
            self.delete(f"{directory}/{name}" if directory else name)
        return len(old)

    def make_directory(self, name: str) -> None:
        if self._was_present and not self.is_present():
            # A new directory would be in the way when the old one is mounted again.
            raise StoreError(f"the directory {self.location} has vanished: is it still mounted?")
        files.make_directory(self.local_path(name), self.system)
        self._was_present = True

    def remove_directory(self, name: str) -> None:
        self.sweep(name, older_than_s=-1.0)
        try:
            self.system.files.rmdir(self.local_path(name))
        except OSError:
            pass  # Missing, or a zombie task is writing there: the next call retries.

    def retire_directory(self, name: str) -> bool:
        retired = f"{name}.gone"
        # Remains of a crash would be in the way if a driver has made `name` again since.
        self._empty(retired)
        path = self.local_path(retired)
        with files.explained("rename", self.local_path(name)):
            try:
                self.system.files.rename(self.local_path(name), path)
                files.sync_directory(os.path.dirname(path), self.system)
            except FileNotFoundError:
                pass  # Already renamed before a crash.
        self._empty(retired)
        return True

    def _empty(self, directory: str) -> None:
        """Removes a directory with its files, if it exists."""
        for name in self.list(directory):
            self.delete(f"{directory}/{name}")
        self.remove_directory(directory)
