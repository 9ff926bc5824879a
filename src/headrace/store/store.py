"""`Store`: the contract of the place where a checkpoint's files lie.

A store holds whole files under names. It need not have directories, renames, links or appends:
an object store can keep this contract, and so can a dict. What each operation promises:

- `put_if_absent`: of all writers of one name, in whichever process, exactly one succeeds. An
  error leaves the outcome open: whoever must know reads the name back.
- `write`, `put_if_absent`: no reader ever sees a part of a file. When they return, the file
  outlives a power loss.
- `read`, `list`: they see every write that returned before they began.
- `list`: the names one level below a directory. A hidden name, one that begins with a dot, is
  not listed: it is a file on its way to its final name (`move`), or what a writer left half-done
  (`sweep`).

Names are relative and have components with `/` between them (`checked_name`). On a store with
directories `make_directory` comes before the first file in one, and a write into a directory
that is missing is a FileNotFoundError; other stores do nothing, and cannot tell.

FileNotFoundError says that a name is free, StoreError that the store refused or cannot be
reached; then the same call may succeed later.

A new kind of store is one module: a class with the abstract methods below, a line in
`store/location.py` for its URL, and a line in tests/contract/test_stores.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from headrace.system import REAL, System


class Store(ABC):
    """Whole files under names: written once, listed, read, deleted."""

    location: str
    """Where it is: what `open_store` takes to open the same store in another process. Two stores
    that are not the same have two locations, so caches never mix them."""

    system: System = REAL
    """The surroundings of whoever uses it: clocks, random names."""

    is_shared: bool = True
    """Whether other processes can open it; a store in memory is one process's alone."""

    def where(self, name: str = "") -> str:
        """A name as people can find it, for messages; without a name, the store itself."""
        return f"{self.location}/{name}" if name else self.location

    def is_present(self) -> bool:
        """Whether the place itself is there: a directory, a bucket."""
        return True

    def local_path(self, name: str = "") -> str | None:
        """The path of a name on a filesystem that the driver and all executors share.

        Spark and Arrow read and write there by themselves. None where there is none: sources that
        need one refuse such a store before anything is read.
        """
        return None

    def below(self, prefix: str) -> Store:
        """The part of this store whose names begin with `prefix/`, as a store of its own."""
        return PrefixStore(self, prefix)

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Writes a file durably, replacing what has that name."""

    def write_volatile(self, name: str, data: bytes) -> None:
        """Writes a file whole, but not durably: it need not outlive a power loss."""
        self.write(name, data)

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Writes a file durably unless the name is taken; says whether it did."""

    def sync(self, directory: str) -> None:
        """Makes the names in a directory durable, whoever gave them.

        A file that another process wrote may be seen before it would outlive a power loss. Where
        a write is durable as soon as it is seen there is nothing to do.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The bytes of a file; FileNotFoundError where there is none."""

    def map(self, name: str) -> pa.Buffer:
        """The bytes of a file that no one will change, mapped into memory where that is possible.

        They stay readable after the file is deleted.
        """
        return pa.py_buffer(self.read(name))

    @abstractmethod
    def list(self, directory: str) -> list[str]:
        """The names (without the directory) in a directory, sorted; [] where it is missing."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes a file; nothing happens where there is none."""

    def move(self, old: str, new: str) -> None:
        """Gives a durable file another name, replacing what has it.

        The new name is never seen without its bytes. After a crash both names may be there.
        """
        self.write(new, self.read(old))
        self.delete(old)

    @abstractmethod
    def sweep(self, directory: str, older_than_s: float) -> int:
        """Deletes hidden files of that age in a directory, left half-done; says how many."""

    def make_directory(self, name: str) -> None:
        """Makes a directory durably. Tasks never do: they find it, or they are zombies."""

    def remove_directory(self, name: str) -> None:
        """Removes a directory whose files were deleted, half-written ones included."""
        self.sweep(name, older_than_s=-1.0)

    def retire_directory(self, name: str) -> bool:
        """Takes a directory and its files away at once: a put into it fails from then on.

        False where the store cannot do that; then the files stay.
        """
        return False


class ForwardingStore(Store):
    """A store that hands everything to another one; subclasses change some of it."""

    def __init__(self, base: Store) -> None:
        self.base = base
        self.location = base.location
        self.system = base.system
        self.is_shared = base.is_shared

    def base_name(self, name: str) -> str:
        """What the other store calls a name, or a directory."""
        return name

    def where(self, name: str = "") -> str:
        return self.base.where(self.base_name(name))

    def is_present(self) -> bool:
        return self.base.is_present()

    def local_path(self, name: str = "") -> str | None:
        return self.base.local_path(self.base_name(name))

    def write(self, name: str, data: bytes) -> None:
        self.base.write(self.base_name(name), data)

    def write_volatile(self, name: str, data: bytes) -> None:
        self.base.write_volatile(self.base_name(name), data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self.base.put_if_absent(self.base_name(name), data)

    def sync(self, directory: str) -> None:
        self.base.sync(self.base_name(directory))

    def read(self, name: str) -> bytes:
        return self.base.read(self.base_name(name))

    def map(self, name: str) -> pa.Buffer:
        return self.base.map(self.base_name(name))

    def list(self, directory: str) -> list[str]:
        return self.base.list(self.base_name(directory))

    def delete(self, name: str) -> None:
        self.base.delete(self.base_name(name))

    def move(self, old: str, new: str) -> None:
        self.base.move(self.base_name(old), self.base_name(new))

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
        self.location = f"{base.location}/{prefix}"

    def base_name(self, name: str) -> str:
        # Checked here: joined to the prefix, an empty name or an absolute one would pass.
        return f"{self._prefix}/{checked_name(name)}" if name else self._prefix


def checked_name(name: str) -> str:
    """A name that every store can hold; ValueError where it is not one.

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
