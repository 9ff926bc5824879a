"""`MemoryStore`: files in this process, for the harness and for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from weakref import WeakValueDictionary

from headrace.errors import StoreError
from headrace.store.store import ObjectInfo, Store, checked_name
from headrace.system import REAL, System

_numbers = count(1)
_stores: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()


class MemoryStore(Store):
    """Files in a dict: as durable as the object itself. Threads may share it."""

    is_shared = False

    def __init__(self, system: System = REAL) -> None:
        self.system = system
        self.location = f"memory:{next(_numbers)}"
        self.files: dict[str, bytes] = {}
        self._lock = threading.RLock()
        self._written_s: dict[str, float] = {}
        """When the hidden files were written."""
        self._retired: set[str] = set()
        _stores[self.location] = self

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (open_memory, (self.location,))

    def __deepcopy__(self, memo: object) -> MemoryStore:
        return self

    def write(self, name: str, data: bytes) -> None:
        with self._lock:
            self.files[checked_name(name)] = bytes(data)
            if name.rpartition("/")[2].startswith("."):
                self._written_s[name] = self.system.wall_s()

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with self._lock:
            if name.rpartition("/")[0] in self._retired:
                raise FileNotFoundError(name)
            if checked_name(name) in self.files:
                return False
            self.write(name, data)
            return True

    def read(self, name: str) -> bytes:
        try:
            return self.files[checked_name(name)]
        except KeyError:
            raise FileNotFoundError(name) from None

    def list(self, directory: str) -> list[str]:
        prefix = f"{checked_name(directory)}/" if directory else ""
        with self._lock:
            rests = [name[len(prefix) :] for name in self.files if name.startswith(prefix)]
        found = {rest.split("/", 1)[0] for rest in rests}
        return sorted(name for name in found if not name.startswith("."))

    def walk(self, directory: str = "", *, after: str = "") -> Iterator[ObjectInfo | None]:
        prefix = f"{checked_name(directory)}/" if directory else ""
        with self._lock:
            names = [name for name in self.files if name.startswith(prefix) and name > after]
        for name in names:
            if not any(part.startswith(".") for part in name[len(prefix) :].split("/")):
                try:
                    yield self.stat(name)
                except FileNotFoundError:
                    pass  # deleted in the meantime

    def delete(self, name: str) -> None:
        with self._lock:
            self.files.pop(checked_name(name), None)
            self._written_s.pop(name, None)

    def copy(self, old: str, new: str) -> None:
        with self._lock:
            self.write(new, self.read(old))

    def sweep(self, directory: str, older_than_s: float) -> int:
        until = self.system.wall_s() - older_than_s
        with self._lock:
            old = [
                name
                for name, at in self._written_s.items()
                if name.rpartition("/")[0] == directory and at < until and name.endswith(".tmp")
            ]
            for name in old:
                self.delete(name)
        return len(old)

    def retire_directory(self, name: str) -> bool:
        with self._lock:
            self._retired.add(name)
            for left in [n for n in self.files if n.startswith(f"{name}/")]:
                self.delete(left)
        return True


def open_memory(location: str) -> MemoryStore:
    """The store in this process's memory that has this location."""
    found = _stores.get(location)
    if found is None:
        raise StoreError(
            f"the store {location} lies in the memory of another process, or was dropped: give "
            "checkpoint= a directory that all processes see"
        )
    return found
