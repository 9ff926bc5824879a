"""`Store`: the only way to the checkpoint's files.

Names are relative, with `/`. A store on disk serves runs; a store in memory
serves the harness.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headrace.errors import StoreError
from headrace.store import files


class Store(ABC):
    """Whole files under names: written once, listed, read, deleted."""

    identity: str
    """Names this store within a process, so that caches never mix two of them."""

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

    def __init__(self, root: str | Path) -> None:
        self.root = str(Path(root).absolute())
        self.identity = self.root
        self._made = False
        """Whether the root was there once."""

    def _path(self, name: str) -> str:
        return os.path.join(self.root or "", name)

    def write(self, name: str, data: bytes) -> None:
        files.write(self._path(name), data)

    def write_volatile(self, name: str, data: bytes) -> None:
        files.write(self._path(name), data, durable=False)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return files.put_if_absent(self._path(name), data)

    def sync(self, directory: str) -> None:
        with files.explained("sync", self._path(directory)):
            files.sync_directory(self._path(directory))

    def read(self, name: str) -> bytes:
        with files.explained("read", self._path(name)):
            data = Path(self._path(name)).read_bytes()
        self._made = True
        return data

    def map(self, name: str) -> pa.Buffer:
        path = self._path(name)
        with files.explained("read", path):
            if os.path.getsize(path) == 0:
                return pa.py_buffer(b"")
            return pa.memory_map(path).read_buffer()

    def list(self, directory: str) -> list[str]:
        try:
            with files.explained("list", self._path(directory)):
                found = os.listdir(self._path(directory))
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith("."))

    def delete(self, name: str) -> None:
        with files.explained("delete", self._path(name)):
            Path(self._path(name)).unlink(missing_ok=True)

    def rename(self, old: str, new: str) -> None:
        with files.explained("rename", self._path(old)):
            os.replace(self._path(old), self._path(new))
            files.sync_directory(os.path.dirname(self._path(new)))

    def temporaries(self, directory: str, older_than_s: float) -> Sequence[str]:
        found = []
        try:
            with os.scandir(self._path(directory)) as entries:
                for entry in entries:
                    leftover = entry.name.startswith(".") and entry.name.endswith(".tmp")
                    if leftover and time.time() - entry.stat().st_mtime > older_than_s:
                        found.append(entry.name)
        except FileNotFoundError:
            return []
        return found

    def make_directory(self, name: str) -> None:
        if self._made and not Path(self.root or "").is_dir():
            # Made anew, it would be in the way when the old one comes back.
            raise StoreError(f"the checkpoint {self.root} is gone: is it still mounted?")
        files.make_directory(self._path(name))
        self._made = True

    def remove_directory(self, name: str) -> None:
        for leftover in self.temporaries(name, older_than_s=-1.0):
            self.delete(f"{name}/{leftover}")
        try:
            os.rmdir(self._path(name))
        except OSError:
            pass  # Missing, or a zombie is writing there: the next trimming tries again.

    def retire_directory(self, name: str) -> bool:
        gone = f"{name}.gone"
        # What a crash left there would be in the way, should somebody have made `name` again.
        self._empty(gone)
        with files.explained("rename", self._path(name)):
            try:
                os.rename(self._path(name), self._path(gone))
                files.sync_directory(os.path.dirname(self._path(gone)))
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

    def __init__(self) -> None:
        MemoryStore._count += 1
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
