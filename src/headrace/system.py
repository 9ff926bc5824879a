"""What the engine takes from its environment: files, clocks, random names, threads, limits.

Stores, the log, leases, sinks and journals get a `System`, and use the operating system only
through it. `REAL` is the default everywhere. The simulator passes its own one, so that it can stop
a process in the middle of any call, cause a power loss, or move the clocks, while the engine's own
code runs.

This module knows nothing of checkpoints. Sources and `engine/spark` use the operating system
directly: no simulation runs them.
"""

from __future__ import annotations

import errno
import os
import random
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol, TypeVar

import pyarrow as pa

from headrace import allocators
from headrace.helper_threads import run_within
from headrace.limits import LIMITS, Limits

AnyPath = str | os.PathLike[str]
_Given = TypeVar("_Given")


class Filesystem:
    """The file operations that the engine uses, each one call of the operating system."""

    def __init__(self) -> None:
        self._durable: set[str] = set()

    @property
    def durable_directories(self) -> set[str]:
        """Directories whose names are known to this process to be on disk."""
        return self._durable

    # Bytes ----------------------------------------------------------------

    def create(self, path: AnyPath) -> int:
        """The descriptor of a new, empty file; FileExistsError if the name is taken."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def open_directory(self, path: AnyPath) -> int:
        """The descriptor of a directory, or of a file that is there, to sync it."""
        return os.open(path, os.O_RDONLY)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Writes some of the bytes, and returns how many."""
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        """Makes a file's bytes, or a directory's names, durable."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Closes a file; bytes that were not synced may get lost."""
        os.close(descriptor)

    def read(self, path: AnyPath) -> bytes:
        """All bytes of a file."""
        with open(path, "rb") as file:
            return file.read()

    def map(self, path: AnyPath) -> pa.Buffer:
        """All bytes of a file, mapped into memory; an empty file cannot be mapped."""
        if os.path.getsize(path) == 0:
            return pa.py_buffer(b"")
        return pa.memory_map(os.fspath(path)).read_buffer()

    # Names ----------------------------------------------------------------

    def link(self, source: AnyPath, target: AnyPath) -> None:
        """Gives a file a second name; FileExistsError if it is taken."""
        os.link(source, target)

    def replace(self, old: AnyPath, new: AnyPath) -> None:
        """Renames a file, replacing an existing file."""
        os.replace(old, new)

    def rename(self, old: AnyPath, new: AnyPath) -> None:
        """Renames a directory."""
        os.rename(old, new)

    def unlink(self, path: AnyPath) -> None:
        """Removes a file."""
        os.unlink(path)

    def mkdir(self, path: AnyPath) -> None:
        """Creates one directory."""
        os.mkdir(path)

    def rmdir(self, path: AnyPath) -> None:
        """Removes an empty directory."""
        os.rmdir(path)

    def remove_tree(self, path: AnyPath) -> None:
        """Removes a directory with everything in it, as far as possible."""
        shutil.rmtree(path, ignore_errors=True)

    def list(self, path: AnyPath) -> list[str]:
        """The names in a directory, in any order."""
        return os.listdir(path)

    def status(self, path: AnyPath) -> tuple[int, str]:
        """The size of a file, and a text that changes when its bytes do; a directory has none."""
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a regular file", os.fspath(path))
        return found.st_size, f"{found.st_mtime_ns:x}-{found.st_ino:x}"

    def modified_s(self, path: AnyPath, suffix: str) -> Sequence[tuple[str, float]]:
        """Files of a directory whose names end with `suffix`, and when they were last written."""
        with os.scandir(path) as entries:
            return [(e.name, e.stat().st_mtime) for e in entries if e.name.endswith(suffix)]

    def exists(self, path: AnyPath) -> bool:
        """Whether anything has this name."""
        return os.path.exists(path)

    def is_directory(self, path: AnyPath) -> bool:
        """Whether a directory has this name."""
        return os.path.isdir(path)

    def real_path(self, path: AnyPath) -> str:
        """The name without symbolic links."""
        return os.path.realpath(path)


class Event(Protocol):
    """What the engine needs of `threading.Event`."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...


class Thread(Protocol):
    """What the engine needs of `threading.Thread`."""

    def start(self) -> None: ...

    def join(self) -> None: ...


class System:
    """The environment of one process."""

    def __init__(self, files: Filesystem | None = None, limits: Limits = LIMITS) -> None:
        self.files = files or Filesystem()
        self.limits = limits

    def wall_s(self) -> float:
        """Seconds since 1970, by a clock that can be set."""
        return time.time()

    def uptime_s(self) -> float:
        """Seconds by a monotonic clock."""
        return time.monotonic()

    def cpu_s(self) -> float:
        """Seconds of CPU time that this process has used."""
        return time.process_time()

    def give_back_memory(self) -> None:
        """Gives memory that is free back to the system, now and then."""
        allocators.give_back()

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)

    def token_hex(self, size: int) -> str:
        """`size` random bytes as text: a name that no other process chooses."""
        return secrets.token_hex(size)

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
        return random.random()

    def event(self) -> Event:
        """A flag that threads can wait for."""
        return threading.Event()

    def thread(self, target: Callable[[], None], name: str) -> Thread:
        """A thread that does not keep the process alive."""
        return threading.Thread(target=target, name=name, daemon=True)

    def executor(self, name: str, threads: int = 1) -> Executor:
        """Threads that do what is submitted to them; one thread does it in order.

        They have the priority of all others: a thread of low priority that waits for a processor
        may hold the interpreter's lock meanwhile, and then all others wait for it.
        """
        return ThreadPoolExecutor(threads, name)

    def run_within(
        self, timeout_s: float, act: Callable[[], _Given], leave: Callable[[], None]
    ) -> _Given:
        """The result of `act`; after a timeout it calls `leave` and raises TimeoutError."""
        return run_within(timeout_s, act, leave)


REAL = System()
"""This process on this machine."""
