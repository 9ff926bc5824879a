"""`Overlay`: a checkpoint that can be read, and written to without being changed.

What is written stays in this process, above what lies in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headrace.store.store import MemoryStore, Store


class Overlay(Store):
    """Reads fall through to another store; writes never reach it."""

    def __init__(self, below: Store) -> None:
        self.system = below.system
        self._below = below
        self._above = MemoryStore()
        self._held: dict[str, pa.Buffer] = {}
        self.identity = f"{self._above.identity} over {below.identity}"

    def hold(self, names: Iterable[str]) -> list[str]:
        """Opens files now, to be read though somebody deletes them; gives those that are missing.

        A mapped file outlives its name on the machine that mapped it.
        """
        missing = []
        for name in names:
            try:
                self._held[name] = self._below.map(name)
            except FileNotFoundError:
                missing.append(name)
        return missing

    @property
    def written(self) -> dict[str, bytes]:
        """What was written, by name."""
        return self._above.files

    def write(self, name: str, data: bytes) -> None:
        self._above.write(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        try:
            self.read(name)
        except FileNotFoundError:
            return self._above.put_if_absent(name, data)
        return False

    def read(self, name: str) -> bytes:
        if name in self._above.files:
            return self._above.files[name]
        held = self._held.get(name)
        return self._below.read(name) if held is None else held.to_pybytes()

    def map(self, name: str) -> pa.Buffer:
        if name in self._above.files:
            return self._above.map(name)
        held = self._held.get(name)
        return self._below.map(name) if held is None else held

    def list(self, directory: str) -> list[str]:
        return sorted({*self._below.list(directory), *self._above.list(directory)})

    def delete(self, name: str) -> None:
        self._above.delete(name)

    def rename(self, old: str, new: str) -> None:
        self._above.write(new, self.read(old))

    def make_directory(self, name: str) -> None:
        """Names need no directories here."""

    def remove_directory(self, name: str) -> None:
        """Names need no directories here."""
