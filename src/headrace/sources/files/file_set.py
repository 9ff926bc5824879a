"""Which files a source reads: what the user wrote, turned into names.

A name is the path relative to a base. The base depends on what the user wrote and never on which
files exist, so a file keeps its name when other files appear or are deleted. Files whose path below
the base has a part that begins with `.` or `_` are left out: they are still being written, or are
not data.

There are two kinds of sets: on a filesystem (`local_set`), and in a store (`stored_set`).
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Sequence

from headrace.errors import InvalidPipeline, SourceError
from headrace.sources.files.directories import ENTRIES, NOTHING
from headrace.sources.files.input_file import InputFile
from headrace.store.store import Store

OnePath = str | os.PathLike[str]
Paths = OnePath | Store | Sequence[OnePath]


class FileSet(ABC):
    """The files under some paths, directories and glob patterns."""

    entries_at_once: int = ENTRIES
    look_s: float = 0.001
    look_share: float = 0.05
    """A look into a large directory takes `look_s`, or this share of the time since the last."""
    look_every_s: float = 0.0
    """A new walk begins at most this often."""

    written: tuple[str, ...]
    watch: bool

    @property
    @abstractmethod
    def base(self) -> str:
        """The directory that names are relative to."""

    @abstractmethod
    def path(self, name: str) -> str:
        """The path of the file with this name."""

    @abstractmethod
    def file(self, name: str) -> InputFile:
        """The file with this name."""

    @abstractmethod
    def walk(self, skip: Container[str]) -> Iterator[str | None]:
        """The paths of all files, without those in `skip`; None in between, now and then."""

    @abstractmethod
    def named(self, found: Iterable[str]) -> list[str]:
        """The names of some paths, sorted."""

    @abstractmethod
    def nothing(self) -> str:
        """Why no file was found."""

    def names(self, skip: Container[str] = NOTHING) -> list[str]:
        """The names of the files that exist now, sorted, without the paths in `skip`."""
        found = {path for path in self.walk(skip) if path is not None}
        if not found and not self.watch:
            raise SourceError(
                f"{self.nothing()}: correct the path, "
                "or use watch=True for a directory that fills up later"
            )
        return self.named(found)

    def __str__(self) -> str:
        return ", ".join(self.written)


class Listing:
    """Lists a watched directory in small steps.

    Each look takes a small share of the time since the one before, so that epochs do not get
    slower while files that were read long ago stay in the directory. New files count when the
    walk is complete. With up to a thousand files every look is a complete walk.
    """

    def __init__(self, files: FileSet) -> None:
        self._files = files
        self._walk: Iterator[str | None] | None = None
        self._found: set[str] = set()
        self._known: set[str] = set()
        """The paths found in the last complete walk."""
        self._began_at = float("-inf")
        self._looked_at: float | None = None
        self._began_idle = False
        self.is_whole = False
        """Whether nothing else was there at the last look for the end."""

    def look(self, skip: Container[str]) -> list[str]:
        """The names of the files that exist, without the paths in `skip`."""
        files, began = self._files, time.monotonic()
        until = float("inf")
        if self._looked_at is not None:
            until = began + max(files.look_s, files.look_share * (began - self._looked_at))
        is_new = self._walk is None
        if is_new and began - self._began_at < files.look_every_s:
            self.is_whole = False  # what has appeared since the last walk is not known
            return files.named(path for path in self._known if path not in skip)
        if self._walk is None:
            self._walk, self._found = files.walk(skip), set()
            self._began_at = began
            self._began_idle = all(path in skip for path in self._known)
        try:
            for path in self._walk:
                if path is not None:
                    self._found.add(path)
                elif time.monotonic() > until:
                    break
            else:
                self._walk, self._known = None, self._found
        except BaseException:
            self._walk = None
            raise
        self._looked_at = time.monotonic()
        unread = {path for path in self._known if path not in skip}
        self.is_whole = self._walk is None and (is_new or (self._began_idle and not unread))
        return files.named(unread)


def checked_paths(paths: OnePath | Sequence[OnePath], kind: str) -> list[OnePath]:
    """What the user wrote, as a list."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given or not all(os.fspath(path) for path in given):
        raise InvalidPipeline(f"sources.{kind} needs a path, a directory or a pattern")
    return given
