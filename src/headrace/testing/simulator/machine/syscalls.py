"""`Filesystem` on a simulated disk.

Every call passes a gate first, where the simulation may kill or pause the process, or answer with a
`Fault`. The faults are those of real filesystems, networked ones included: the call is refused; it
is done but reported as failed; it is done, repeated by the network and reported as done by another
process; or it is refused but still done later.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from enum import Enum

import pyarrow as pa

from headrace.system import AnyPath, Filesystem
from headrace.testing.simulator.machine.disk import Directory, File, Node, SimulatedDisk


class Fault(Enum):
    """How a call on the disk, or a request to an object store, can go wrong."""

    REFUSED = "is refused"
    UNREPORTED = "is done but reported as failed"
    REPEATED = "is done, sent again and answered with the second answer"
    LATE = "is refused and done later"
    TORN = "is done in part"
    TWICE = "is done, and once more later"
    CONFLICT = "is refused: another request for this name is under way"
    THROTTLED = "is refused: too many requests"


Gate = Callable[[str, str], Fault | None]


class Syscalls(Filesystem):
    """The calls on files that Headrace makes."""

    def __init__(self, disk: SimulatedDisk, gate: Gate, clock: Callable[[], float]) -> None:
        super().__init__()
        self.disk = disk
        self.gate = gate
        self._clock = clock
        self._open: dict[int, tuple[Node, str]] = {}
        self._next = 3
        self.remembered: Callable[[], set[str]] = lambda: self._durable
        """The directories that the running process knows to be on disk."""
        self.seen: Callable[[str, bytes], bytes] = lambda path, data: data
        """The bytes of a file that a reader sees, which may be older or torn."""
        self.late: list[tuple[str, Callable[[], None]]] = []
        """Calls that were refused, but will still be done later."""

    @property
    def durable_directories(self) -> set[str]:
        return self.remembered()

    # Files ----------------------------------------------------------------

    def create(self, path: AnyPath) -> int:
        name = str(path)
        if self.gate("create", name) is not None:
            raise _failed("open", name)
        file = File(self._clock())
        self.disk.put(name, file)
        return self._descriptor(file, name)

    def open_directory(self, path: AnyPath) -> int:
        name = str(path)
        if self.gate("open", name) is not None:
            raise _failed("open", name)
        found = self.disk.find(name)
        return self._descriptor(
            found if isinstance(found, File) else self.disk.directory(name), name
        )

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        file, path = self._open[descriptor]
        fault = self.gate("write", path)
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
        if self.gate("fsync", path) is not None:
            raise _failed("fsync", path)
        self.disk.sync(node)

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def read(self, path: AnyPath) -> bytes:
        name = str(path)
        if self.gate("read", name) is not None:
            raise _failed("read", name)
        return self.seen(name, self.disk.file(name).data)

    def map(self, path: AnyPath) -> pa.Buffer:
        """A simulated file cannot be mapped into memory."""
        return pa.py_buffer(self.read(path))

    def _descriptor(self, node: Node, path: str) -> int:
        self._next += 1
        self._open[self._next] = (node, path)
        return self._next

    def status(self, path: AnyPath) -> tuple[int, str]:
        name = str(path)
        if self.gate("read", name) is not None:
            raise _failed("stat", name)
        if isinstance(self.disk.find(name), Directory):
            raise FileNotFoundError(2, "not a regular file", name)
        file = self.disk.file(name)
        return len(file.data), f"{file.changed_s!r}-{id(file):x}"

    # Names ----------------------------------------------------------------

    def link(self, source: AnyPath, target: AnyPath) -> None:
        node, name = self.disk.file(str(source)), str(target)
        self._perform("link", name, lambda: self.disk.put(name, node), FileExistsError(17, name))

    def replace(self, old: AnyPath, new: AnyPath) -> None:
        self.rename(old, new)

    def rename(self, old: AnyPath, new: AnyPath) -> None:
        before, after = str(old), str(new)
        again = FileNotFoundError(2, "no such file", before)
        self._perform("rename", after, lambda: self.disk.rename(before, after), again)

    def unlink(self, path: AnyPath) -> None:
        name = str(path)
        again = FileNotFoundError(2, "no such file", name)
        self._perform("unlink", name, lambda: self.disk.remove(name), again)

    def mkdir(self, path: AnyPath) -> None:
        name = str(path)
        again = FileExistsError(17, "file exists", name)
        self._perform("mkdir", name, lambda: self.disk.put(name, Directory()), again)

    def rmdir(self, path: AnyPath) -> None:
        name = str(path)
        if self.disk.directory(name).names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", name)
        again = FileNotFoundError(2, "no such file", name)
        self._perform("rmdir", name, lambda: self.disk.remove(name), again)

    def _perform(self, call: str, path: str, act: Callable[[], None], again: OSError) -> None:
        fault = self.gate(call, path)
        if fault is Fault.LATE:
            self.late.append((f"{call} {path}", act))
        if fault in (Fault.REFUSED, Fault.LATE):
            raise _failed(call, path)
        act()
        if fault is Fault.REPEATED:
            raise again
        if fault is not None:
            raise _failed(call, path)

    def list(self, path: AnyPath) -> list[str]:
        if self.gate("list", str(path)) is not None:
            raise _failed("list", str(path))
        return [*self.disk.directory(str(path)).names]

    def modified_s(self, path: AnyPath, suffix: str) -> Sequence[tuple[str, float]]:
        return [
            (name, node.changed_s)
            for name, node in self.disk.directory(str(path)).names.items()
            if isinstance(node, File) and name.endswith(suffix)
        ]

    def exists(self, path: AnyPath) -> bool:
        return self.disk.find(str(path)) is not None

    def is_directory(self, path: AnyPath) -> bool:
        return isinstance(self.disk.find(str(path)), Directory)

    def real_path(self, path: AnyPath) -> str:
        return str(path)

    def remove_tree(self, path: AnyPath) -> None:
        name = str(path)
        try:
            for inner in self.list(name):
                if self.is_directory(f"{name}/{inner}"):
                    self.remove_tree(f"{name}/{inner}")
                else:
                    self.unlink(f"{name}/{inner}")
            self.rmdir(name)
        except OSError:
            pass


def _failed(call: str, path: str) -> OSError:
    return OSError(errno.EIO, f"simulated failure of {call}", path)
