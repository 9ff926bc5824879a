"""A disk in memory that loses, when the power fails, what was not synced.

It keeps two trees: what processes see now, and what a power loss would leave. `sync` of a file
makes its bytes durable, `sync` of a directory makes its names durable. When the power fails,
whether an unsynced change survives is random: a file may be torn, a later name may survive an
earlier one.

It must not know processes and faults; `syscalls.py` adds them.
"""

from __future__ import annotations

from random import Random


class File:
    """Bytes, and how many of them are durable."""

    __slots__ = ("changed_s", "data", "synced")

    def __init__(self, changed_s: float) -> None:
        self.data = b""
        self.synced: bytes | None = None
        self.changed_s = changed_s

    def sync(self) -> None:
        """Makes all bytes durable."""
        self.synced = self.data

    def lose_power(self, random: Random) -> None:
        """Keeps a random part of the unsynced bytes, from their beginning, or none."""
        if self.synced is not None:
            self.data = self.synced
        else:
            self.data = self.data[: random.randint(0, len(self.data))]
            self.synced = self.data


class Directory:
    """Names, as seen now and as they are durable."""

    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = File | Directory
Change = list[tuple[Directory, str, Node | None]]
"""The effect of one call on directories; a rename changes two names at once."""


class SimulatedDisk:
    """Directories and files under absolute names."""

    def __init__(self) -> None:
        self.root = Directory()
        self._unsynced: list[Change] = []

    # Looking --------------------------------------------------------------

    def find(self, path: str) -> Node | None:
        """The file or directory that has this name now."""
        node: Node | None = self.root
        for name in path.split("/"):
            if name:
                if not isinstance(node, Directory):
                    return None
                node = node.names.get(name)
        return node

    def file(self, path: str) -> File:
        """The file of this name."""
        found = self.find(path)
        if found is None:
            raise FileNotFoundError(2, "no such file", path)
        if not isinstance(found, File):
            raise IsADirectoryError(21, "is a directory", path)
        return found

    def directory(self, path: str) -> Directory:
        """The directory of this name."""
        found = self.find(path)
        if found is None:
            raise FileNotFoundError(2, "no such directory", path)
        if not isinstance(found, Directory):
            raise NotADirectoryError(20, "not a directory", path)
        return found

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; none where it is missing."""
        found = self.find(path)
        return sorted(found.names) if isinstance(found, Directory) else []

    # Changing -------------------------------------------------------------

    def put(self, path: str, node: Node) -> None:
        """Adds a name for a file or directory; FileExistsError where it is taken."""
        home, name = self._place(path)
        if name in home.names:
            raise FileExistsError(17, "file exists", path)
        self._change([(home, name, node)])

    def remove(self, path: str) -> None:
        """Removes a name."""
        home, name = self._place(path)
        if name not in home.names:
            raise FileNotFoundError(2, "no such file", path)
        self._change([(home, name, None)])

    def rename(self, old: str, new: str) -> None:
        """Replaces one name by another in one step; what had the new name is removed."""
        home, name = self._place(old)
        target, new_name = self._place(new)
        node = home.names.get(name)
        if node is None:
            raise FileNotFoundError(2, "no such file", old)
        there = target.names.get(new_name)
        if isinstance(there, Directory) and there.names:
            raise OSError(39, "directory not empty", new)
        self._change([(home, name, None), (target, new_name, node)])

    def _place(self, path: str) -> tuple[Directory, str]:
        home, _, name = path.rpartition("/")
        return self.directory(home), name

    def _change(self, change: Change) -> None:
        for home, name, node in change:
            if node is None:
                home.names.pop(name, None)
            else:
                home.names[name] = node
        self._unsynced.append(change)

    # Durability -----------------------------------------------------------

    def sync(self, node: Node) -> None:
        """Makes all changes of this file, or of the names of this directory, durable."""
        if isinstance(node, File):
            node.sync()
            return
        if not any(home is node for change in self._unsynced for home, _, _ in change):
            return
        touched = {id(node)}
        kept: list[Change] = []
        settled: list[Change] = []
        # Backwards: a durable rename also decides all earlier changes of its other name.
        for change in reversed(self._unsynced):
            if any(id(home) in touched for home, _, _ in change):
                settled.append(change)
                touched |= {id(home) for home, _, _ in change}
            else:
                kept.append(change)
        for change in reversed(settled):
            _make_durable(change)
        self._unsynced = kept[::-1]

    def is_unsynced(self, path: str, *, inside: bool = False) -> bool:
        """Whether a power loss may undo this name, or (`inside`) a name in this directory."""
        place, _, name = path.rpartition("/")
        home = self.find(path if inside else place)
        return any(
            changed is home and (inside or what == name) and node is not None
            for change in self._unsynced
            for changed, what, node in change
        )

    def lose_power(self, random: Random) -> None:
        """Keeps what is durable, and a random choice of the other changes."""
        share = random.choice((0.0, 0.5, 1.0))
        for change in self._unsynced:
            if random.random() < share:
                _make_durable(change)
        self._unsynced = []
        _restore(self.root, random)


def _make_durable(change: Change) -> None:
    for home, name, node in change:
        if node is None:
            home.durable.pop(name, None)
        else:
            home.durable[name] = node


def _restore(home: Directory, random: Random) -> None:
    home.names = dict(home.durable)
    for name in sorted(home.names):
        node = home.names[name]
        if isinstance(node, Directory):
            _restore(node, random)
        else:
            node.lose_power(random)
