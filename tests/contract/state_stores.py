"""The state stores that the contract suite runs against, and what may happen to each of them.

A new backend passes the suite with one class here and one line in `STORES`.
"""

from __future__ import annotations

import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.servers import hbase_admin
from tests.servers.state_servers import state_server

from headrace.state.backend import StateBackend
from headrace.state.backends.directory import StateDirectory
from headrace.state.backends.files import FilesBackend
from headrace.state.backends.hbase.backend import HBaseBackend
from headrace.state.backends.indexed_log.backend import LogBackend
from headrace.state.backends.memory import MemoryBackend, MemoryServer
from headrace.state.backends.redis.backend import RedisBackend
from headrace.system import AnyPath, Filesystem, System


class StateStore(ABC):
    """A store of one kind, with a server or a directory of its own."""

    @abstractmethod
    def open(self, checkpoint: str = "c1", *, generation: int = 1) -> StateBackend:
        """A backend as a driver of a generation opens it; each call is another process."""

    @abstractmethod
    def crash(self) -> None:
        """The machine of the store dies, and starts again with what was synced, or with more."""

    forgets: bool = True
    """Whether a crash loses all that was written since the last sync."""
    one_writer: bool = False
    """Whether only one driver of each generation writes: there is no server that judges writes."""

    def committed(self, backend: StateBackend, checkpoint: str = "c1") -> None:
        """A commit names the place of this backend."""

    @abstractmethod
    def copy(self) -> Any:
        """A backup of the whole store, taken while nobody writes."""

    @abstractmethod
    def put_back(self, copy: Any) -> None:
        """Puts a backup in the place of the store."""

    def close(self) -> None:
        """Stops what was started."""


class MemoryStateStore(StateStore):
    def __init__(self) -> None:
        self.server = MemoryServer()

    def open(self, checkpoint: str = "c1", *, generation: int = 1) -> StateBackend:
        return MemoryBackend(self.server, checkpoint)

    def crash(self) -> None:
        self.server.restart()

    def copy(self) -> Any:
        return self.server.copy()

    def put_back(self, copy: Any) -> None:
        self.server.restart(copy)


class DiskAfterACrash(Filesystem):
    """A real disk that remembers how many bytes of each file were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[int, str] = {}
        self.synced: dict[str, int] = {}

    def create(self, path: AnyPath) -> int:
        descriptor = super().create(path)
        self.paths[descriptor] = os.fspath(path)
        self.synced[os.fspath(path)] = 0
        return descriptor

    def open_directory(self, path: AnyPath) -> int:
        descriptor = super().open_directory(path)
        if os.fspath(path) in self.synced:
            self.paths[descriptor] = os.fspath(path)
        return descriptor

    def replace(self, old: AnyPath, new: AnyPath) -> None:
        super().replace(old, new)
        self.synced[os.fspath(new)] = self.synced.pop(os.fspath(old), 0)

    def fsync(self, descriptor: int) -> None:
        super().fsync(descriptor)
        if descriptor in self.paths:
            self.synced[self.paths[descriptor]] = os.fstat(descriptor).st_size

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self.paths.pop(descriptor, None)

    def lose_power(self) -> None:
        """What was not synced is gone, and what lies behind it is not zeros."""
        for path, size in self.synced.items():
            if os.path.exists(path) and os.path.getsize(path) > size:
                os.truncate(path, size)
                with open(path, "ab") as file:
                    file.write(b"hrl1 what was never synced" * 3)


class DirectoryStateStore(StateStore):
    """A store without a server: its writers say by a place what counts, as commits do."""

    one_writer = True

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path / "cells", kind
        self.disk = DiskAfterACrash()
        self.system = System(self.disk)
        self.opened: list[StateBackend] = []
        self.places: dict[str, str] = {}

    def open(self, checkpoint: str = "c1", *, generation: int = 1) -> StateBackend:
        directory = StateDirectory(str(self.path / checkpoint), self.system)
        backend: StateBackend
        if self.kind == "files":
            backend = FilesBackend(directory, purge_share=0.0)
        else:
            backend = LogBackend(directory, flush_rows=20, file_bytes=2000, slack_bytes=500)
        backend.lead(generation, self.places.get(checkpoint, ""))
        self.places.setdefault(checkpoint, backend.place())
        self.opened.append(backend)
        return backend

    def committed(self, backend: StateBackend, checkpoint: str = "c1") -> None:
        """A commit names the place that this writer has made."""
        self.places[checkpoint] = backend.place()

    def crash(self) -> None:
        self.opened = []
        self.disk.lose_power()

    @property
    def forgets(self) -> bool:  # type: ignore[override]
        return self.kind == "log"

    def copy(self) -> Any:
        copied = self.path.parent / f"copy-{len(os.listdir(self.path.parent))}"
        shutil.copytree(self.path, copied)
        return copied, dict(self.places)

    def put_back(self, copy: Any) -> None:
        copied, self.places = copy
        shutil.rmtree(self.path)
        shutil.copytree(copied, self.path)


class RedisStateStore(StateStore):
    """A part of the Redis server of all tests, which survives its crashes."""

    forgets = False  # `appendfsync always`: what it has answered is on its disk

    def __init__(self) -> None:
        self._server = state_server("redis")
        self._id = uuid.uuid4().hex[:8]

    def open(self, checkpoint: str = "c1", *, generation: int = 1) -> StateBackend:
        return RedisBackend(self._server.url(), f"{self._id}-{checkpoint}")

    def crash(self) -> None:
        self._server.process.kill()
        self._server.process.start()

    def copy(self) -> Any:
        target = self._server.data / f"copy-{uuid.uuid4().hex[:8]}"
        shutil.copytree(self._server.data / "appendonlydir", target)
        return target

    def put_back(self, copy: Any) -> None:
        self._server.process.kill()
        shutil.rmtree(self._server.data / "appendonlydir")
        shutil.copytree(copy, self._server.data / "appendonlydir")
        self._server.process.start()


class HBaseStateStore(StateStore):
    """A table of the HBase of all tests; backups are its snapshots."""

    def __init__(self, durability: str) -> None:
        self._server = state_server("hbase")
        self.forgets = durability == "flush"  # what is in no log is lost with the process
        self.table = f"t{uuid.uuid4().hex[:8]}"
        self._options = f"?durability={durability}&timeout=120s"

    def open(self, checkpoint: str = "c1", *, generation: int = 1) -> StateBackend:
        found = HBaseBackend(self._server.url(self.table, self._options), checkpoint)
        found.lead(generation, "")
        return found

    def crash(self) -> None:
        self._server.process.kill()
        self._server.restart()

    def copy(self) -> Any:
        name = f"s{uuid.uuid4().hex[:8]}"
        hbase_admin.snapshot(self._server.process.port, self.table, name)
        return name

    def put_back(self, copy: Any) -> None:
        hbase_admin.put_back(self._server.process.port, self.table, copy)


STORES: dict[str, Callable[[Path], StateStore]] = {
    "memory": lambda path: MemoryStateStore(),
    "files": lambda path: DirectoryStateStore(path, "files"),
    "log": lambda path: DirectoryStateStore(path, "log"),
    "redis": lambda path: RedisStateStore(),
    "hbase": lambda path: HBaseStateStore("fsync"),
    "hbase-flush": lambda path: HBaseStateStore("flush"),
}

HISTORIES = {"redis": 3, "hbase": 2, "hbase-flush": 1}
"""How many random histories a store is given, where fewer than others: a server answers slowly."""
