"""Which files a source reads: paths, directories and patterns, turned into names.

A name is the path relative to a base directory. The base depends on what the user wrote and
never on which files exist, so a file keeps its name when other files appear or are deleted.
Files whose path below the base has a part that begins with `.` or `_` are left out: they are
still being written, or are not data. Only regular files count: opening a pipe would wait for
a writer.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Container, Iterable, Iterator, Sequence

from headrace.errors import InvalidPipeline, SourceError
from headrace.sources.files.directories import (
    ENTRIES,
    NOTHING,
    files_below,
    files_like,
    is_directory,
    is_file,
)
from headrace.store.location import filesystem_path

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class FileSet:
    """The files under some paths, directories and glob patterns."""

    entries_at_once: int = ENTRIES
    look_s: float = 0.001
    look_share: float = 0.05
    """A look into a large directory takes `look_s`, or this share of the time since the last."""

    def __init__(self, paths: Paths, *, kind: str, watch: bool) -> None:
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        self.written = tuple(os.fspath(path) for path in given)
        if not self.written or not all(self.written):
            raise InvalidPipeline(f"sources.{kind} needs a path, a directory or a pattern")
        self.watch = watch
        self._patterns = tuple(_absolute(path, kind) for path in self.written)
        self._base: str | None = None

    @property
    def base(self) -> str:
        """The directory that names are relative to."""
        if self._base is None:
            self._base = os.path.commonpath([self._anchor(pattern) for pattern in self._patterns])
        return self._base

    def path(self, name: str) -> str:
        """The path of the file with this name."""
        return os.path.join(self.base, name)

    def names(self, skip: Container[str] = NOTHING) -> list[str]:
        """The names of the files that exist now, sorted, without the paths in `skip`."""
        found = {path for path in self.walk(skip) if path is not None}
        if not found and not self.watch:
            raise SourceError(
                f"{self._nothing()}: correct the path, "
                "or use watch=True for a directory that fills up later"
            )
        return self.named(found)

    def walk(self, skip: Container[str]) -> Iterator[str | None]:
        """The paths of all files; None in between, now and then."""
        for pattern in self._patterns:
            yield from self._matches(pattern, skip)

    def named(self, found: Iterable[str]) -> list[str]:
        """The names of some paths, sorted."""
        base = self.base
        names = sorted(_below(path, base).replace(os.sep, "/") for path in found)
        if not _is_text("/".join(names)):
            odd = next(name for name in names if not _is_text(name))
            raise SourceError(
                f"the name of the file {os.fsencode(self.path(odd))!r} is not UTF-8, and cannot be "
                "noted in the epoch log: rename the file, or move it out of the directory"
            )
        return names

    def __str__(self) -> str:
        return ", ".join(self.written)

    def _nothing(self) -> str:
        """Why no file was found."""
        for pattern in self._patterns:
            if not os.path.exists(anchor := self._anchor(pattern)):
                return f"there is no directory {anchor}"
        return f"no file matches {self}"

    def _anchor(self, pattern: str) -> str:
        """The deepest directory that a pattern names without a wildcard."""
        if glob.has_magic(pattern):
            parts = pattern.split(os.sep)
            fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
            return os.sep.join(parts[:fixed]) or os.sep
        if self.watch or is_directory(pattern):
            return pattern
        return os.path.dirname(pattern)

    def _matches(self, pattern: str, skip: Container[str]) -> Iterator[str | None]:
        if self.watch and not is_directory(self._anchor(pattern)):
            raise SourceError(
                f"there is no directory {self._anchor(pattern)} to watch: make it, "
                "or correct the path"
            )
        if glob.has_magic(pattern):
            anchor = self._anchor(pattern)
            yield from files_like(
                anchor, _below(pattern, anchor).split(os.sep), skip, self.entries_at_once
            )
        elif is_directory(pattern):
            yield from files_below(pattern, skip, self.entries_at_once)
        elif is_file(pattern):
            if pattern not in skip:
                yield pattern
        elif not self.watch:
            raise SourceError(f"there is no file {pattern}: correct the path")


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
        if self._walk is None:
            self._walk, self._found = self._files.walk(skip), set()
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
        return self._files.named(unread)


def _absolute(path: str, kind: str) -> str:
    found = filesystem_path(path)
    if found is None:
        raise InvalidPipeline(
            f"sources.{kind} reads paths that every executor can open, not {path!r}: "
            "mount it, or read it with Spark and use sources.dataframe"
        )
    return os.path.abspath(os.path.expanduser(found))


def _below(path: str, base: str) -> str:
    """`path` relative to `base`. Called for every file at every plan; `relpath` is too slow."""
    prefix = base if base.endswith(os.sep) else base + os.sep
    return path[len(prefix) :] if path.startswith(prefix) else os.path.relpath(path, base)


def _is_text(name: str) -> bool:
    """Whether a name is valid text: a name of bytes that are not UTF-8 cannot be logged."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
