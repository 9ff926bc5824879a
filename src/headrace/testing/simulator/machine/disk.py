"""A disk in memory that forgets, when the power fails, what was not synced.

It keeps two trees: what processes see now, and what a power loss would leave. A
file's bytes move over by `sync` of the file, a name by `sync` of its directory. What
is on its way when the power fails arrives or not, as chance will have it: a file
may be torn, a later name may survive an earlier one.

It knows nothing of processes and faults; `syscalls.py` puts them in between.
"""

from __future__ import annotations

from random import Random


class File:
    """Bytes, and how many of them are on disk."""

    __slots__ = ("changed_s", "data", "synced")

    def __init__(self, changed_s: float) -> None:
        self.data = b""
        self.synced: bytes | None = None
        self.changed_s = changed_s

    def sync(self) -> None:
        """What is written stays."""
        self.synced = self.data

    def lose_power(self, random: Random) -> None:
        """Unsynced bytes: some of the first of them, or none."""
        if self.synced is not None:
            self.data = self.synced
        else:
            self.data = self.data[: random.randint(0, len(self.data))]
            self.synced = self.data


class Directory:
    """Names, as seen now and as they are on disk."""

    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = File | Directory
Change = list[tuple[Directory, str, Node | None]]
"""What one call does to directories; a rename changes two names at once."""


class SimulatedDisk:
    """Directories and files under absolute names."""

    def __init__(self) -> None:
        self.root = Directory()
        self._unsynced: list[Change] = []

    # Looking --------------------------------------------------------------

    def find(self, path: str) -> Node | None:
        """What has this name now."""
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
        """A new name for a file or directory; FileExistsError where it is taken."""
        home, name = self._place(path)
        if name in home.names:
            raise FileExistsError(17, "file exists", path)
        self._change([(home, name, node)])

    def remove(self, path: str) -> None:
        """A name goes."""
        home, name = self._place(path)
        if name not in home.names:
            raise FileNotFoundError(2, "no such file", path)
        self._change([(home, name, None)])

    def rename(self, old: str, new: str) -> None:
        """A name goes and another comes, at once, replacing what had it."""
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
        """Everything that happened to this file, or to the names of this directory, stays."""
        if isinstance(node, File):
            node.sync()
            return
        if not any(home is node for change in self._unsynced for home, _, _ in change):
            return
        touched = {id(node)}
        kept: list[Change] = []
        settled: list[Change] = []
        # Backwards: a rename also settles what its other directory's same name went through.
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
        """Whether this name, or (`inside`) a name in this directory, may vanish with the power."""
        place, _, name = path.rpartition("/")
        home = self.find(path if inside else place)
        return any(
            changed is home and (inside or what == name) and node is not None
            for change in self._unsynced
            for changed, what, node in change
        )

    def lose_power(self, random: Random) -> None:
        """Only what is on disk remains; what was on its way is left to chance."""
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
