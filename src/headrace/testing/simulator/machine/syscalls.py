"""What the engine takes for its operating system: `os`, on a simulated disk.

Every call passes a gate first, where the simulation may kill or pause the process,
or answer with a `Fault`. The faults are those of real filesystems, networked ones
included: refused; done and reported as failed; done, repeated by the network and
reported as done by somebody else; refused and done all the same, later.
"""

from __future__ import annotations

import errno
import os as real_os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from types import SimpleNamespace
from typing import Any

from headrace.testing.simulator.machine.disk import Directory, File, Node, SimulatedDisk


class Fault(Enum):
    """How a call on the disk can go wrong."""

    REFUSED = "is refused"
    UNREPORTED = "is done but reported as failed"
    REPEATED = "is done, sent again and answered with the second answer"
    LATE = "is refused and done later"
    TORN = "is done in part"


Gate = Callable[[str, str], Fault | None]


class _Name(SimpleNamespace):
    """An entry of `scandir`."""

    def stat(self) -> SimpleNamespace:
        return SimpleNamespace(st_mtime=self.changed_s)


class Syscalls:
    """The calls of module `os` that Headrace makes."""

    O_RDONLY, O_WRONLY, O_CREAT, O_EXCL = (
        real_os.O_RDONLY, real_os.O_WRONLY, real_os.O_CREAT, real_os.O_EXCL,
    )  # fmt: skip
    PathLike = real_os.PathLike
    fspath = staticmethod(real_os.fspath)

    def __init__(self, disk: SimulatedDisk, gate: Gate, clock: Callable[[], float]) -> None:
        self.disk = disk
        self._gate = gate
        self._clock = clock
        self._open: dict[int, tuple[Node, str]] = {}
        self._next = 3
        self.seen: Callable[[str, bytes], bytes] = lambda path, data: data
        """What a reader gets to see of a file, which may be an older or a torn one."""
        self.late: list[tuple[str, Callable[[], None]]] = []
        """Calls that were refused, and will be done all the same."""
        self.path = SimpleNamespace(
            join=real_os.path.join,
            dirname=real_os.path.dirname,
            realpath=str,
            getsize=lambda path: len(self.read(str(path))),
        )

    # Files ----------------------------------------------------------------

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        path = str(path)
        fault = self._gate("create" if flags & self.O_CREAT else "open", path)
        if fault is not None:
            raise _failed("open", path)
        if flags & self.O_CREAT:
            file = File(self._clock())
            self.disk.put(path, file)
            return self._descriptor(file, path)
        found = self.disk.find(path)
        if found is None:
            raise FileNotFoundError(2, "no such file", path)
        return self._descriptor(found, path)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        file, path = self._open[descriptor]
        fault = self._gate("write", path)
        if not isinstance(file, File):
            raise _failed("write", path)
        taken = bytes(data) if fault is None else bytes(data[: len(data) // 2])
        file.data += taken
        file.changed_s = self._clock()
        if fault is not None and fault is not Fault.TORN:
            raise _failed("write", path)
        return len(taken)

    def fsync(self, descriptor: int) -> None:
        node, path = self._open[descriptor]
        if self._gate("fsync", path) is not None:
            raise _failed("fsync", path)
        self.disk.sync(node)

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def read(self, path: str) -> bytes:
        """All bytes of a file."""
        if self._gate("read", path) is not None:
            raise _failed("read", path)
        return self.seen(path, self.disk.file(path).data)

    def _descriptor(self, node: Node, path: str) -> int:
        self._next += 1
        self._open[self._next] = (node, path)
        return self._next

    # Names ----------------------------------------------------------------

    def link(self, source: Any, target: Any) -> None:
        node, name = self.disk.file(str(source)), str(target)
        self._perform("link", name, lambda: self.disk.put(name, node), FileExistsError(17, name))

    def replace(self, old: Any, new: Any) -> None:
        self.rename(old, new)

    def rename(self, old: Any, new: Any) -> None:
        before, after = str(old), str(new)
        again = FileNotFoundError(2, "no such file", before)
        self._perform("rename", after, lambda: self.disk.rename(before, after), again)

    def unlink(self, path: Any) -> None:
        name = str(path)
        again = FileNotFoundError(2, "no such file", name)
        self._perform("unlink", name, lambda: self.disk.remove(name), again)

    def mkdir(self, path: str) -> None:
        again = FileExistsError(17, "file exists", path)
        self._perform("mkdir", path, lambda: self.disk.put(path, Directory()), again)

    def rmdir(self, path: Any) -> None:
        name = str(path)
        if self.disk.directory(name).names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", name)
        again = FileNotFoundError(2, "no such file", name)
        self._perform("rmdir", name, lambda: self.disk.remove(name), again)

    def _perform(self, call: str, path: str, act: Callable[[], None], again: OSError) -> None:
        fault = self._gate(call, path)
        if fault is Fault.LATE:
            self.late.append((f"{call} {path}", act))
        if fault in (Fault.REFUSED, Fault.LATE):
            raise _failed(call, path)
        act()
        if fault is Fault.REPEATED:
            raise again
        if fault is not None:
            raise _failed(call, path)

    def listdir(self, path: Any) -> list[str]:
        if self._gate("list", str(path)) is not None:
            raise _failed("list", str(path))
        return list(self.disk.directory(str(path)).names)

    @contextmanager
    def scandir(self, path: Any) -> Iterator[Iterator[_Name]]:
        names = self.disk.directory(str(path)).names
        yield iter(
            [
                _Name(name=name, changed_s=node.changed_s)
                for name, node in names.items()
                if isinstance(node, File)
            ]
        )

    def rmtree(self, path: Any, ignore_errors: bool = False) -> None:
        """`shutil.rmtree`."""
        name = str(path)
        try:
            for inner in self.listdir(name):
                node = self.disk.find(f"{name}/{inner}")
                if isinstance(node, Directory):
                    self.rmtree(f"{name}/{inner}", ignore_errors)
                else:
                    self.unlink(f"{name}/{inner}")
            self.rmdir(name)
        except OSError:
            if not ignore_errors:
                raise


def _failed(call: str, path: str) -> OSError:
    return OSError(errno.EIO, f"simulated failure of {call}", path)
