"""An object store in memory: objects under names, conditional puts, no directories, no renames.

Objects lie in the tree of the simulated disk, so that the checkers find them as they find files. A
directory of that tree is there exactly while a name lies in it. What has landed is durable and
seen by all: reads and lists are strongly consistent, and no power loss belongs to this face.

Every request passes the gate of the simulation (see `syscalls.py`), which may answer with a
`Fault`. Requests that change something land, or not, or later, or twice; with or without an
answer. A large object is sent in parts, which are not seen until the last request completes it.

`put_if_absent` resolves unknown outcomes by the code that the real object stores use
(`store/conditional.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from headrace.errors import StoreError
from headrace.store.conditional import Unanswered, put_until_known
from headrace.store.store import ObjectInfo, Store, checked_name
from headrace.system import System
from headrace.testing.simulator.machine.disk import Directory, File, Node, SimulatedDisk
from headrace.testing.simulator.machine.syscalls import Fault, Gate

PART_BYTES = 3_000
"""Larger objects are sent in parts; small enough for some segments of a simulation."""

PAGE_OBJECTS = 3
"""How many objects one request lists."""

_WHY = {
    Fault.UNREPORTED: "timed out",
    Fault.LATE: "timed out",
    Fault.CONFLICT: "409 conflicting request",
    Fault.THROTTLED: "429 too many requests",
}
_LANDED = (Fault.UNREPORTED, Fault.REPEATED, Fault.TWICE)


class StoredObject(File):
    """An object; `nonce` is the metadata that its writer gave it."""

    __slots__ = ("nonce",)

    def __init__(self, data: bytes, nonce: str, changed_s: float) -> None:
        super().__init__(changed_s)
        self.data, self.nonce = data, nonce
        self.sync()


class ObjectServer:
    """Objects by their paths; each method is one atomic act."""

    def __init__(self, disk: SimulatedDisk, clock_s: Callable[[], float]) -> None:
        self._disk, self._clock_s = disk, clock_s
        self._lock = threading.Lock()
        self.late: list[tuple[str, Callable[[], object]]] = []
        """Requests that will still land: what they are, and how."""
        self.parts: dict[str, list[bytes]] = {}
        """Upload -> the parts of an object that is not complete."""

    def find(self, path: str) -> StoredObject | None:
        """The object of this name."""
        found = self._disk.find(path)
        return found if isinstance(found, StoredObject) else None

    def put(self, path: str, data: bytes, nonce: str, *, replace: bool) -> bool:
        """Creates an object; False where the name is taken and `replace` is false."""
        with self._lock:
            home, last = self._home(path), path.rpartition("/")[2]
            if last in home.names and not replace:
                return False
            home.names[last] = home.durable[last] = StoredObject(data, nonce, self._clock_s())
            return True

    def copy(self, old: str, new: str, nonce: str) -> None:
        """Copies an object as it is now; does nothing where there is none."""
        found = self.find(old)
        if found is not None:
            self.put(new, found.data, nonce, replace=True)

    def delete(self, path: str) -> None:
        """Removes an object, and the directories in which no name is left."""
        with self._lock:
            if not isinstance(self._disk.find(path), File):
                return
            while path:
                above, _, last = path.rpartition("/")
                home = self._disk.directory(above)
                del home.names[last]
                home.durable.pop(last, None)
                if home.names:
                    return
                path = above

    def below(self, path: str, after: str) -> list[tuple[str, StoredObject]]:
        """The objects below a path with paths greater than `after`, sorted."""
        with self._lock:
            found = sorted(_objects(self._disk.find(path), path))
            return [(name, each) for name, each in found if name > after]

    def names(self, path: str) -> list[str]:
        """The names one level below a path, sorted."""
        with self._lock:
            return self._disk.list(path)

    def _home(self, path: str) -> Directory:
        """The directory of an object, made where it is missing."""
        home = self._disk.root
        for component in path.split("/")[1:-1]:
            inner = home.names.get(component)
            if inner is None:
                inner = home.names[component] = home.durable[component] = Directory()
            if not isinstance(inner, Directory):
                raise NotADirectoryError(20, "an object has the name of a directory", path)
            home = inner
        return home


def _objects(node: Node | None, path: str) -> Iterator[tuple[str, StoredObject]]:
    """All objects below a path, without hidden ones."""
    if isinstance(node, StoredObject):
        yield path, node
    elif isinstance(node, Directory):
        for name, inner in node.names.items():
            if not name.startswith("."):
                yield from _objects(inner, f"{path}/{name}")


class SimulatedObjectStore(Store):
    """A process's client of an object server."""

    is_shared = False
    rewrite_interval_s = 1.1

    def __init__(self, server: ObjectServer, root: str, system: System, gate: Gate) -> None:
        """`root`: the path of its first directory; a bucket and a prefix."""
        self.system = system
        self.location = f"objects:{root}"
        self._server, self._root, self._gate = server, root, gate
        self.seen: Callable[[str, bytes], bytes] = lambda path, data: data
        """The bytes of an object that a reader sees (see `Syscalls.seen`)."""
        self.pause: Callable[[float], None] = system.sleep
        """How it waits before it sends a request again."""

    # Changing -------------------------------------------------------------

    def write(self, name: str, data: bytes) -> None:
        nonce, whole = self.system.token_hex(8), self._sent(name, data)
        path = self._path(name)
        self._change("overwrite", name, lambda: self._server.put(path, whole, nonce, replace=True))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        nonce, whole = self.system.token_hex(8), self._sent(name, data)
        path = self._path(name)

        def land() -> bool:
            return self._server.put(path, whole, nonce, replace=False)

        def look() -> bool | None:
            if self._gate("look", path) is not None:
                raise Unanswered("timed out")
            found = self._server.find(path)
            return None if found is None else found.nonce == nonce

        return put_until_known(
            self.where(name), lambda: self._request("put", name, land), look, self.pause
        )

    def copy(self, old: str, new: str) -> None:
        """Copies an object on the server, replacing an existing one."""
        source, target, nonce = self._path(old), self._path(new), self.system.token_hex(8)
        if self._server.find(source) is None:
            raise FileNotFoundError(old)
        self._change("copy", new, lambda: self._server.copy(source, target, nonce))

    def delete(self, name: str) -> None:
        path = self._path(name)
        self._change("delete", name, lambda: self._server.delete(path))

    def _change(self, call: str, name: str, land: Callable[[], object]) -> None:
        """A request without a condition: repeating it does no harm, so the caller may."""
        try:
            self._request(call, name, lambda: bool(land()))
        except Unanswered as error:
            raise StoreError(f"cannot {call} {self.where(name)}: {error}") from error

    def _request(self, call: str, name: str, land: Callable[[], bool]) -> bool:
        """Sends a request; gives its answer, or raises Unanswered."""
        path = self._path(name)
        fault, what = self._gate(call, path), f"{call} {path}"
        if fault in (Fault.LATE, Fault.TWICE):
            self._server.late.append((what, land))
        if fault is not None and fault not in _LANDED:
            raise Unanswered(_WHY.get(fault, "503 service unavailable"))
        answer = land()
        if fault is Fault.UNREPORTED:
            raise Unanswered(_WHY[fault])
        return land() if fault is Fault.REPEATED else answer

    def _sent(self, name: str, data: bytes) -> bytes:
        """The bytes of an object as they arrive; large ones in parts, each a request."""
        path = self._path(name)
        if len(data) <= PART_BYTES:
            return bytes(data)
        upload = self.system.token_hex(8)
        parts: list[bytes] = []
        self._server.parts[upload] = parts
        for start in range(0, len(data), PART_BYTES):
            if self._gate("part", path) is not None:
                raise StoreError(f"cannot send a part of {self.where(name)}: timed out")
            parts.append(bytes(data[start : start + PART_BYTES]))
        return b"".join(self._server.parts.pop(upload))

    # Looking --------------------------------------------------------------

    def read(self, name: str) -> bytes:
        path = self._path(name)
        if self._gate("read", path) is not None:
            raise StoreError(f"cannot read {self.where(name)}: timed out")
        found = self._server.find(path)
        if found is None:
            raise FileNotFoundError(name)
        return self.seen(path, found.data)

    def list(self, directory: str) -> list[str]:
        path = self._path(directory)
        if self._gate("list", path) is not None:
            raise StoreError(f"cannot list {path}: timed out")
        return [name for name in self._server.names(path) if not name.startswith(".")]

    def stat(self, name: str) -> ObjectInfo:
        path = self._path(name)
        if self._gate("look", path) is not None:
            raise StoreError(f"cannot look at {self.where(name)}: timed out")
        found = self._server.find(path)
        if found is None:
            raise FileNotFoundError(name)
        return ObjectInfo(name, len(found.data), found.nonce)

    def walk(self, directory: str = "", *, after: str = "") -> Iterator[ObjectInfo | None]:
        """Page by page, each a request: what changes in between is seen or not."""
        path, last = self._path(directory), self._path(after) if after else ""
        while True:
            if self._gate("list", path) is not None:
                raise StoreError(f"cannot list {path}: timed out")
            page = self._server.below(path, last)[:PAGE_OBJECTS]
            for last, found in page:
                name = last.removeprefix(f"{self._root}/")
                yield ObjectInfo(name, len(found.data), found.nonce)
            if len(page) < PAGE_OBJECTS:
                return
            yield None

    def sweep(self, directory: str, older_than_s: float) -> int:
        until = self.system.wall_s() - older_than_s
        prefix = f"{directory}/" if directory else ""
        hidden = [n for n in self._server.names(self._path(directory)) if n.startswith(".")]
        old = []
        for name in (f"{prefix}{name}" for name in hidden):
            found = self._server.find(self._path(name))
            if found is not None and found.changed_s < until:
                old.append(name)
        for name in old:
            self.delete(name)
        return len(old)

    def _path(self, name: str) -> str:
        return f"{self._root}/{checked_name(name)}" if name else self._root
