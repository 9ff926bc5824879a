"""`Store`: the contract of the place where a checkpoint's files lie.

A store holds whole files under names. It need not have directories, renames, links or appends:
an object store can keep this contract, and so can a dict. Each operation promises:

- `put_if_absent`: of all writers of one name, in any process, exactly one succeeds. An answer is
  exact: a store whose server may answer wrongly, or not at all, looks before it says so. After an
  error the outcome is unknown: a caller that must know reads the name back.
- `write`, `put_if_absent`: no reader ever sees a part of a file. When they return, the file
  outlives a power loss.
- `read`, `list`: they see every write that returned before they began.
- `list`: the names one level below a directory. A hidden name, one that begins with a dot, is
  not listed: it is an incomplete file that a writer left behind (`sweep`).
- `copy`: the new name is complete or absent, and durable when it returns. The store copies by
  itself if it can.

Names are relative; their components are separated by `/` (`checked_name`). On a store with
directories `make_directory` comes before the first file in one, and a write into a missing
directory is a FileNotFoundError. On other stores `make_directory` does nothing, and they cannot
detect that.

FileNotFoundError means that a name is free. StoreError means that the store refused or cannot be
reached; then the same call may succeed later.

A new kind of store is one module: a class with the abstract methods below, a line in
`store/location.py` for its URL, and a line in tests/contract/test_stores.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import xxhash

from headrace.store.counts import RequestCounts
from headrace.system import REAL, System


class ObjectInfo(NamedTuple):
    """What a store knows of a file without reading it."""

    name: str
    size: int
    version: str
    """Changes whenever the file is replaced: an etag, for example. A text without a meaning."""


class Store(ABC):
    """Whole files under names: written once, listed, read, deleted."""

    location: str
    """Where the store is: `open_store` takes it to open the same store in another process.

    Different stores have different locations, so that caches never mix them.
    """

    system: System = REAL
    """The environment of the process that uses the store: clocks, random names."""

    is_shared: bool = True
    """Whether other processes can open it; a store in memory belongs to one process."""

    rewrite_interval_s: float = 0.0
    """How much time one name needs between two writes: some stores refuse faster ones."""

    must_be_asked: bool = False
    """Whether a run asks it, before it writes anything, if puts are exact (`store/asking.py`)."""

    def requests(self) -> dict[str, RequestCounts]:
        """What this process has asked of the store so far, by purpose; {} if it does not count."""
        return {}

    def where(self, name: str = "") -> str:
        """The full name for messages, by which people find the file; by default, of the store."""
        return f"{self.location}/{name}" if name else self.location

    def is_present(self) -> bool:
        """Whether the place itself exists: a directory, a bucket."""
        return True

    def local_path(self, name: str = "") -> str | None:
        """The path of a name on a filesystem that the driver and all executors share.

        Spark and Arrow read and write there directly. None if there is no such path: sources that
        need one refuse such a store before anything is read.
        """
        return None

    @property
    def is_far(self) -> bool:
        """Whether other processes reach its files only by asking it: a server, in most cases."""
        return self.is_shared and self.local_path() is None

    def below(self, prefix: str) -> Store:
        """The part of this store whose names begin with `prefix/`, as a store of its own."""
        return PrefixStore(self, prefix)

    def location_below(self, prefix: str) -> str:
        """The location of that part."""
        return f"{self.location}/{prefix}"

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Writes a file durably, replacing an existing file."""

    def write_volatile(self, name: str, data: bytes) -> None:
        """Writes a whole file, but not durably: it may be lost after a power loss."""
        self.write(name, data)

    def write_for_now(self, name: str, data: bytes) -> bool:
        """Writes a whole immutable file that a checkpoint will replace soon (M2).

        It is where the next task of its slot looks for it. Returns whether it may be lost.
        """
        self.write_volatile(name, data)
        return True

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Writes a file durably unless the name is taken; returns whether it did."""

    def sync(self, directory: str) -> None:
        """Makes the names in a directory durable, whichever process created them.

        A file of another process may be visible before it would outlive a power loss. Stores
        where a write is durable as soon as it is visible do nothing here.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The bytes of a file; FileNotFoundError if there is none."""

    def map(self, name: str) -> pa.Buffer:
        """The bytes of an immutable file, mapped into memory if that is possible.

        They stay readable after the file is deleted.
        """
        return pa.py_buffer(self.read(name))

    def stat(self, name: str) -> ObjectInfo:
        """The size and the version of a file; FileNotFoundError if there is none."""
        data = self.map(name)
        return ObjectInfo(name, len(data), xxhash.xxh3_128_hexdigest(data))

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """The bytes of a file from `start` up to `end`, or to its end; b"" behind its end."""
        return bytes(memoryview(self.map(name))[start:end])

    def walk(self, directory: str = "", *, after: str = "") -> Iterator[ObjectInfo | None]:
        """All files below a directory, at any depth, in any order; none if it is missing.

        Their names are whole, and greater than `after` if that is given. Files with a hidden
        component are left out. None between them means that the next step may take a while (a
        request): a caller may stop there and go on later.
        """
        for component in self.list(directory):
            name = f"{directory}/{component}" if directory else component
            try:
                found = self.stat(name)
            except FileNotFoundError:
                yield from self.walk(name, after=after)
            else:
                if name > after:
                    yield found

    def near_copy(self, name: str) -> pa.Buffer | None:
        """A copy of an immutable file that this machine keeps for itself; None if there is none."""
        return None

    def keep_near(self, name: str, data: bytes | pa.Buffer) -> None:
        """Offers an immutable file to other processes of this machine, if they share a place."""

    @abstractmethod
    def list(self, directory: str) -> list[str]:
        """The names (without the directory) in a directory, sorted; [] if it is missing."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes a file; does nothing if there is none."""

    def delete_all(self, names: Iterable[str]) -> None:
        """Removes many files, with few requests if the store can; missing ones do not matter."""
        for name in names:
            self.delete(name)

    def copy(self, old: str, new: str) -> None:
        """Gives the bytes of a durable file a second name, replacing an existing file.

        FileNotFoundError if there is no such file.
        """
        self.write(new, self.read(old))

    @abstractmethod
    def sweep(self, directory: str, older_than_s: float) -> int:
        """Deletes hidden, incomplete files of that age in a directory; returns how many."""

    def make_directory(self, name: str) -> None:
        """Creates a directory durably. Tasks never do: a task without one is a zombie."""

    def remove_directory(self, name: str) -> None:
        """Removes a directory whose files were deleted, including incomplete files."""
        self.sweep(name, older_than_s=-1.0)

    def retire_directory(self, name: str) -> bool:
        """Removes a directory and its files; returns True.

        On a store with directories it happens at once, and a put into it fails from then on. On
        others a put succeeds, so callers put a marker first, which writers look for after a put.
        """
        self.delete_all([f"{name}/{left}" for left in self.list(name)])
        return True


class ForwardingStore(Store):
    """A store that forwards all calls to another one; subclasses change some of them."""

    def __init__(self, base: Store) -> None:
        self.base = base
        self.location = base.location
        self.system = base.system
        self.is_shared = base.is_shared
        self.rewrite_interval_s = base.rewrite_interval_s
        self.must_be_asked = base.must_be_asked

    def base_name(self, name: str) -> str:
        """The name in the other store for a name, or a directory."""
        return name

    def requests(self) -> dict[str, RequestCounts]:
        return self.base.requests()

    def where(self, name: str = "") -> str:
        return self.base.where(self.base_name(name))

    def location_below(self, prefix: str) -> str:
        return self.base.location_below(self.base_name(prefix))

    def is_present(self) -> bool:
        return self.base.is_present()

    def local_path(self, name: str = "") -> str | None:
        return self.base.local_path(self.base_name(name))

    def write(self, name: str, data: bytes) -> None:
        self.base.write(self.base_name(name), data)

    def write_volatile(self, name: str, data: bytes) -> None:
        self.base.write_volatile(self.base_name(name), data)

    def write_for_now(self, name: str, data: bytes) -> bool:
        return self.base.write_for_now(self.base_name(name), data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self.base.put_if_absent(self.base_name(name), data)

    def sync(self, directory: str) -> None:
        self.base.sync(self.base_name(directory))

    def read(self, name: str) -> bytes:
        return self.base.read(self.base_name(name))

    def map(self, name: str) -> pa.Buffer:
        return self.base.map(self.base_name(name))

    def stat(self, name: str) -> ObjectInfo:
        found = self.base.stat(self.base_name(name))
        return ObjectInfo(name, found.size, found.version)

    def read_range(self, name: str, start: int, end: int) -> bytes:
        return self.base.read_range(self.base_name(name), start, end)

    def walk(self, directory: str = "", *, after: str = "") -> Iterator[ObjectInfo | None]:
        whole = self.base_name(directory)
        above = whole.removesuffix(directory) if directory or not whole else f"{whole}/"
        later = f"{above}{after}" if after else ""
        for found in self.base.walk(whole, after=later):
            if found is None:
                yield None
            else:
                yield ObjectInfo(found.name[len(above) :], found.size, found.version)

    def list(self, directory: str) -> list[str]:
        return self.base.list(self.base_name(directory))

    def delete(self, name: str) -> None:
        self.base.delete(self.base_name(name))

    def delete_all(self, names: Iterable[str]) -> None:
        self.base.delete_all([self.base_name(name) for name in names])

    def copy(self, old: str, new: str) -> None:
        self.base.copy(self.base_name(old), self.base_name(new))

    def sweep(self, directory: str, older_than_s: float) -> int:
        return self.base.sweep(self.base_name(directory), older_than_s)

    def make_directory(self, name: str) -> None:
        self.base.make_directory(self.base_name(name))

    def remove_directory(self, name: str) -> None:
        self.base.remove_directory(self.base_name(name))

    def retire_directory(self, name: str) -> bool:
        return self.base.retire_directory(self.base_name(name))


class PrefixStore(ForwardingStore):
    """The names of a store below a prefix."""

    def __init__(self, base: Store, prefix: str) -> None:
        super().__init__(base)
        self._prefix = checked_name(prefix)
        self.location = base.location_below(prefix)

    def base_name(self, name: str) -> str:
        # Checked here: joined to the prefix, an empty or absolute name would pass.
        return f"{self._prefix}/{checked_name(name)}" if name else self._prefix


def checked_name(name: str) -> str:
    """A name that every store can hold; ValueError if it is not valid.

    So a name from outside (a stream's, a file's) never leaves the store; `log.paths.safe` makes a
    component of any text.
    """
    for component in name.split("/"):
        if component in ("", ".", "..") or not component.isprintable() or "\\" in component:
            raise ValueError(
                f"{name!r} is not a name in a store: components are separated by /, and none is "
                "empty, '.', '..', or has a backslash or a character that cannot be printed"
            )
    return name
