"""`Overlay`: a checkpoint that can be read, and written to without being changed.

Everything that is written, copied or deleted stays in this process, above the checkpoint's files.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pyarrow as pa

from headrace.store.memory import MemoryStore
from headrace.store.store import Store, checked_name


class Overlay(Store):
    """Reads fall through to another store; writes never reach it."""

    is_shared = False

    def __init__(self, base: Store, *, gives_paths: bool = False) -> None:
        """`gives_paths` is for callers that only read at `local_path`; writes would go through."""
        self.system = base.system
        self._base = base
        self._above = MemoryStore(base.system)
        self._opened: dict[str, pa.Buffer] = {}
        self._deleted: set[str] = set()
        self._gives_paths = gives_paths
        self._lock = threading.Lock()
        self.location = f"{self._above.location} over {base.location}"

    def where(self, name: str = "") -> str:
        return self._base.where(name)

    def is_present(self) -> bool:
        return self._base.is_present()

    def local_path(self, name: str = "") -> str | None:
        return self._base.local_path(name) if self._gives_paths else None

    def keep_open(self, names: Iterable[str]) -> list[str]:
        """Opens files now, so that they can be read after deletion; returns the missing ones.

        A mapped file outlives its name on the machine that mapped it.
        """
        missing = []
        for name in names:
            try:
                self._opened[name] = self._base.map(name)
            except FileNotFoundError:
                missing.append(name)
        return missing

    @property
    def written(self) -> dict[str, bytes]:
        """The written files, by name."""
        return self._above.files

    def write(self, name: str, data: bytes) -> None:
        self._above.write(name, data)
        self._deleted.discard(name)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with self._lock:
            try:
                self.read(name)
            except FileNotFoundError:
                self.write(name, data)
                return True
            return False

    def read(self, name: str) -> bytes:
        if name in self._above.files:
            return self._above.read(name)
        opened = self._opened_below(name)
        return self._base.read(name) if opened is None else opened.to_pybytes()

    def map(self, name: str) -> pa.Buffer:
        if name in self._above.files:
            return self._above.map(name)
        opened = self._opened_below(name)
        return self._base.map(name) if opened is None else opened

    def list(self, directory: str) -> list[str]:
        prefix = f"{directory}/" if directory else ""
        below = (n for n in self._base.list(directory) if f"{prefix}{n}" not in self._deleted)
        return sorted({*below, *self._above.list(directory)})

    def delete(self, name: str) -> None:
        self._deleted.add(checked_name(name))
        self._above.delete(name)

    def sweep(self, directory: str, older_than_s: float) -> int:
        return self._above.sweep(directory, older_than_s)

    def _opened_below(self, name: str) -> pa.Buffer | None:
        """A file of the checkpoint that was opened before; FileNotFoundError if deleted here."""
        if name in self._deleted:
            raise FileNotFoundError(name)
        return self._opened.get(name)
