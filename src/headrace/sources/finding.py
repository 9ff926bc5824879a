"""Which files a source reads: paths, directories and patterns, turned into names.

A name is the path relative to a base directory that depends on what the user
wrote and never on which files happen to be there, so that a file keeps its name
when others come and go. Files whose path below the base has a part that begins
with `.` or `_` are still being written, or are not data, and are left out, and so is
what is no regular file: to open a pipe would wait for somebody to write into it.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence

from headrace.errors import InvalidPipeline, SourceError
from headrace.log.location import mounted

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class FileSet:
    """The files under some paths, directories and glob patterns."""

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
        """Where the file of that name lies."""
        return os.path.join(self.base, name)

    def names(self) -> list[str]:
        """The names of the files that are there now, sorted."""
        found = {path for pattern in self._patterns for path in self._matches(pattern)}
        if not found and not self.watch:
            raise SourceError(
                f"{self._nothing()}: correct the path, "
                "or use watch=True for a directory that fills up later"
            )
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
        if self.watch or os.path.isdir(pattern):
            return pattern
        return os.path.dirname(pattern)

    def _matches(self, pattern: str) -> Iterator[str]:
        if self.watch and not os.path.isdir(self._anchor(pattern)):
            raise SourceError(
                f"there is no directory {self._anchor(pattern)} to watch: make it, "
                "or correct the path"
            )
        if glob.has_magic(pattern):
            yield from _visible(glob.iglob(pattern, recursive=True), self._anchor(pattern))
        elif os.path.isdir(pattern):
            yield from _files_below(pattern)
        elif os.path.isfile(pattern):
            yield pattern
        elif not self.watch:
            raise SourceError(f"there is no file {pattern}: correct the path")


def _absolute(path: str, kind: str) -> str:
    found = mounted(path)
    if found is None:
        raise InvalidPipeline(
            f"sources.{kind} reads paths that every executor can open, not {path!r}: "
            "mount it, or read it with Spark and use sources.dataframe"
        )
    return os.path.abspath(os.path.expanduser(found))


def _files_below(directory: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            found = [entry for entry in entries if not _is_hidden(entry.name)]
    except OSError:
        return  # gone, or closed to this user
    for entry in found:
        try:
            is_directory, is_file = entry.is_dir(follow_symlinks=False), entry.is_file()
        except OSError:
            continue  # a link that leads round in circles
        if is_directory:
            yield from _files_below(entry.path)
        elif is_file:
            yield entry.path


def _visible(paths: Iterable[str], anchor: str) -> Iterator[str]:
    for path in paths:
        parts = _below(path, anchor).split(os.sep)
        if not any(_is_hidden(part) for part in parts) and os.path.isfile(path):
            yield path


def _below(path: str, base: str) -> str:
    """`path` relative to `base`. Asked for every file at every plan, and `relpath` is slow."""
    prefix = base if base.endswith(os.sep) else base + os.sep
    return path[len(prefix) :] if path.startswith(prefix) else os.path.relpath(path, base)


def _is_text(name: str) -> bool:
    """Whether a name can be written down; one of bytes that are not UTF-8 cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_hidden(part: str) -> bool:
    return part.startswith((".", "_"))
