"""`Store`: the only way to the checkpoint's files.

Names are relative, with `/`. A store on disk serves runs; a store in memory
serves the harness.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headrace.errors import StoreError
from headrace.store import files
from headrace.system import REAL, System


class Store(ABC):
    """Whole files under names: written once, listed, read, deleted."""

    identity: str
    """Names this store within a process, so that caches never mix two of them."""

    system: System = REAL
    """The surroundings of whoever uses it: clocks, random names, limits."""

    root: str | None = None
    """The directory on this machine, where there is one."""

    def where(self, name: str) -> str:
        """A name as users can find it."""
        return os.path.join(self.root, name) if self.root else name

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Writes a file durably, replacing what has that name."""

    def write_volatile(self, name: str, data: bytes) -> None:
        """Writes a file whole, but not durably: it need not outlive a power loss."""
        self.write(name, data)

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Writes a file durably unless the name is taken; says whether it did."""

    def sync(self, directory: str) -> None:
        """Makes the names in a directory durable, whoever gave them: to exist is not enough."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The bytes of a file; FileNotFoundError where there is none."""

    @abstractmethod
    def map(self, name: str) -> pa.Buffer:
        """The bytes of a file, mapped into memory where that is possible."""

    @abstractmethod
    def list(self, directory: str) -> list[str]:
        """The names (without the directory) in a directory, sorted; [] where it is missing."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes a file; nothing happens where there is none."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Gives a durable file another name."""

    def temporaries(self, directory: str, older_than_s: float) -> Sequence[str]:
        """Names of files that a writer left half-written long ago."""
        return []

    @abstractmethod
    def make_directory(self, name: str) -> None:
        """Makes a directory. Tasks never do: they find it, or they are zombies."""

    @abstractmethod
    def remove_directory(self, name: str) -> None:
        """Removes a directory whose files were deleted, half-written ones included."""

    def retire_directory(self, name: str) -> bool:
        """Takes a directory and its files away at once: a put into it fails from then on.

        False where the store cannot do that; then the files stay.
        """
        return False


class DiskStore(Store):
    """A directory on a filesystem that the driver and all executors share."""

    def __init__(self, root: str | Path, system: System = REAL) -> None:
        self.system = system
        self.root = str(Path(root).absolute())
        self.identity = self.root
        self._made = False
        """Whether the root was there once."""

    def _path(self, name: str) -> str:
        return os.path.join(self.root or "", name)

    def write(self, name: str, data: bytes) -> None:
        files.write(self._path(name), data, self.system)

    def write_volatile(self, name: str, data: bytes) -> None:
        files.write(self._path(name), data, self.system, durable=False)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return files.put_if_absent(self._path(name), data, self.system)

    def sync(self, directory: str) -> None:
        with files.explained("sync", self._path(directory)):
            files.sync_directory(self._path(directory), self.system)

    def read(self, name: str) -> bytes:
        with files.explained("read", self._path(name)):
            data = self.system.files.read(self._path(name))
        self._made = True
        return data

    def map(self, name: str) -> pa.Buffer:
        path = self._path(name)
        with files.explained("read", path):
            return self.system.files.map(path)

    def list(self, directory: str) -> list[str]:
        try:
            with files.explained("list", self._path(directory)):
                found = self.system.files.list(self._path(directory))
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith("."))

    def delete(self, name: str) -> None:
        with files.explained("delete", self._path(name)):
            files.remove(self._path(name), self.system)

    def rename(self, old: str, new: str) -> None:
        with files.explained("rename", self._path(old)):
            self.system.files.replace(self._path(old), self._path(new))
            files.sync_directory(os.path.dirname(self._path(new)), self.system)

    def temporaries(self, directory: str, older_than_s: float) -> Sequence[str]:
        try:
            found = self.system.files.modified_s(self._path(directory), ".tmp")
        except FileNotFoundError:
            return []
        until = self.system.wall_s() - older_than_s
        return [name for name, at in found if name.startswith(".") and at < until]

    def make_directory(self, name: str) -> None:
        if self._made and not self.system.files.is_directory(self.root or ""):
            # Made anew, it would be in the way when the old one comes back.
            raise StoreError(f"the checkpoint {self.root} is gone: is it still mounted?")
        files.make_directory(self._path(name), self.system)
        self._made = True

    def remove_directory(self, name: str) -> None:
        for leftover in self.temporaries(name, older_than_s=-1.0):
            self.delete(f"{name}/{leftover}")
        try:
            self.system.files.rmdir(self._path(name))
        except OSError:
            pass  # Missing, or a zombie is writing there: the next trimming tries again.

    def retire_directory(self, name: str) -> bool:
        gone = f"{name}.gone"
        # What a crash left there would be in the way, should somebody have made `name` again.
        self._empty(gone)
        with files.explained("rename", self._path(name)):
            try:
                self.system.files.rename(self._path(name), self._path(gone))
                files.sync_directory(os.path.dirname(self._path(gone)), self.system)
            except FileNotFoundError:
                pass  # Renamed before a crash.
        self._empty(gone)
        return True

    def _empty(self, directory: str) -> None:
        """Removes a directory with its files, if it is there."""
        for left in self.list(directory):
            self.delete(f"{directory}/{left}")
        self.remove_directory(directory)


class MemoryStore(Store):
    """Files in this process, for tests: as durable as the object itself."""

    _count = 0

    def __init__(self, system: System = REAL) -> None:
        MemoryStore._count += 1
        self.system = system
        self.identity = f"memory-{MemoryStore._count}"
        self.files: dict[str, bytes] = {}
        self._retired: set[str] = set()

    def write(self, name: str, data: bytes) -> None:
        self.files[name] = bytes(data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if name.rpartition("/")[0] in self._retired:
            raise FileNotFoundError(name)
        if name in self.files:
            return False
        self.files[name] = bytes(data)
        return True

    def read(self, name: str) -> bytes:
        try:
            return self.files[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def map(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self.read(name))

    def list(self, directory: str) -> list[str]:
        prefix = directory.rstrip("/") + "/" if directory else ""
        rests = (name[len(prefix) :] for name in self.files if name.startswith(prefix))
        found = {rest.split("/", 1)[0] for rest in rests}
        return sorted(name for name in found if not name.startswith("."))

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def rename(self, old: str, new: str) -> None:
        self.files[new] = self.files.pop(old)

    def make_directory(self, name: str) -> None:
        """Names need no directories here."""

    def remove_directory(self, name: str) -> None:
        """Names need no directories here."""

    def retire_directory(self, name: str) -> bool:
        self._retired.add(name)
        for left in [n for n in self.files if n.startswith(f"{name}/")]:
            del self.files[left]
        return True
