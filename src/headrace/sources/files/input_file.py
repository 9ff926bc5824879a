"""One file that a source reads: the contract of formats with the place where files lie.

There are two kinds: `LocalFile`, a path on a filesystem, here; and `StoredFile`, an object of a
store (`stored_file`). A format opens a file and reads ranges of its bytes. It must not know where
the file lies.

What identifies the content of a file (`Stamp`) differs:
- On a filesystem: size, time, and a digest of the first and last block. A file may be appended to.
- In a store: size and version (an etag). An object is never appended to, only replaced whole.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO, NamedTuple

import xxhash

from headrace.errors import SourceError
from headrace.model.source import Seen

BLOCK_BYTES = 4096


class Stamp(NamedTuple):
    """What identifies the present content of a file without reading all of it."""

    size: int
    time_ns: int
    """When it was last modified. Of an object in a store: a number that its version decides."""
    ends: str
    """A digest of its first and last block; "" in a store, where the version says enough."""


class OpenFile(ABC):
    """A file while it is read. What it says is of the moment at which it was opened."""

    size: int

    @abstractmethod
    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, or to the end of the file."""

    def fetch(self, *spans: tuple[int, int]) -> None:
        """Says that all bytes of these spans will be read, so that a store is asked once for each.

        They are kept in memory until the next call.
        """

    @abstractmethod
    def stamp(self) -> Stamp:
        """What identifies its content."""

    @abstractmethod
    def fingerprint(self, start: int | None = None, end: int | None = None) -> str:
        """Changes when the file changes: its ends, and the ends of a range, are looked at."""

    @abstractmethod
    def stream(self) -> BinaryIO:
        """The file as a stream from its beginning, which the caller closes."""

    @abstractmethod
    def for_arrow(self) -> Any:
        """What pyarrow opens to read Parquet: a path, or a file object."""


class InputFile(ABC):
    """A file by its name; `str` of it is the name that users see and give to `accept_changed`."""

    __slots__ = ()

    @property
    def suffix(self) -> str:
        """The end of its name, from the last dot on."""
        return os.path.splitext(str(self))[1]

    @abstractmethod
    def open(self) -> AbstractContextManager[OpenFile]:
        """Opens it. Errors of the place become errors that say what to do."""

    @abstractmethod
    def has_bytes(self) -> bool:
        """Whether it exists and is not empty: an empty file may still be filled."""

    @abstractmethod
    def looks_like(self, seen: Seen) -> bool:
        """Whether its size and time (or version) are those in `seen`; FileNotFoundError."""

    @abstractmethod
    def identity(self) -> Hashable:
        """Changes when the file changes, and is cheap to ask; OSError if there is none."""

    def fresh(self) -> InputFile:
        """The same file, without what a listing has said of it some time ago."""
        return self


class LocalFile(InputFile):
    """A file on a filesystem."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __str__(self) -> str:
        return self.path

    @contextmanager
    def open(self) -> Iterator[OpenFile]:
        try:
            # Not blocking: opening a pipe of that name could wait for ever.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise unreadable_error(self, error) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise SourceError(
                    f"{self.path} is not a regular file and cannot be read: remove it"
                )
            yield OpenLocalFile(self.path, descriptor, status)
        except OSError as error:
            raise unreadable_error(self, error) from error
        finally:
            os.close(descriptor)

    def has_bytes(self) -> bool:
        try:
            return os.stat(self.path).st_size > 0
        except FileNotFoundError:
            return False
        except PermissionError as error:  # the run decides whether other errors are transient
            raise unreadable_error(self, error) from error

    def looks_like(self, seen: Seen) -> bool:
        now = os.stat(self.path)
        return (now.st_size, now.st_mtime_ns) == (seen.size, seen.time_ns)

    def identity(self) -> Hashable:
        now = os.stat(self.path)
        return now.st_ino, now.st_size, now.st_mtime_ns


class OpenLocalFile(OpenFile):
    """An open descriptor."""

    __slots__ = ("_descriptor", "_path", "_status", "size")

    def __init__(self, path: str, descriptor: int, status: os.stat_result) -> None:
        self._path = path
        self._descriptor = descriptor
        self._status = status
        self.size = status.st_size

    def read(self, start: int, end: int) -> bytes:
        parts, end = [], min(end, self.size)
        while start < end:
            part = os.pread(self._descriptor, end - start, start)
            if not part:
                break
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def stamp(self) -> Stamp:
        ends = xxhash.xxh3_64()
        for place in (0, max(0, self.size - BLOCK_BYTES)):
            ends.update(os.pread(self._descriptor, BLOCK_BYTES, place))
        return Stamp(self.size, self._status.st_mtime_ns, ends.hexdigest())

    def fingerprint(self, start: int | None = None, end: int | None = None) -> str:
        digest = xxhash.xxh3_128()
        places = [0, max(0, self.size - BLOCK_BYTES)]
        if start is not None and end is not None:
            places += [start, max(start, end - BLOCK_BYTES)]
        for place in places:
            digest.update(os.pread(self._descriptor, BLOCK_BYTES, place))
        return f"{self.size}-{digest.hexdigest()}"

    def stream(self) -> BinaryIO:
        return open(self._path, "rb")

    def for_arrow(self) -> Any:
        return self._path


def stamp_of(file: InputFile) -> Stamp:
    """The stamp of a file as it is now."""
    with file.open() as opened:
        return opened.stamp()


def unreadable_error(file: InputFile | str, error: Exception) -> SourceError:
    """The error for a file that cannot be opened or decoded."""
    if isinstance(error, FileNotFoundError):
        return SourceError(f"the file {file} is missing and not yet read to its end: put it back")
    if isinstance(error, PermissionError):
        return SourceError(f"the file {file} cannot be read: permission denied for this user")
    return SourceError(f"the file {file} cannot be read: {error}")


def changed_error(file: InputFile | str) -> SourceError:
    """The error for a file that has changed since the plan was made."""
    return SourceError(
        f"the file {file} has changed since it was first read: put the old file back; or start "
        f"with --accept-changed {file} (accept_changed= in Python): reading then goes on at the "
        "old position of the new file; or start a new checkpoint"
    )


def moved_error(file: InputFile | str) -> SourceError:
    """The error for a file whose length has changed, where other files follow it in its split."""
    return SourceError(
        f"the file {file} has changed: it is not as long as when it was first seen, and has its "
        "place among the files of one split (ordered_by_name=True). Put the old file back, or "
        "start a new checkpoint; such a change can be accepted only of a file read to its end"
    )
