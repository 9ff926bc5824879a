"""The files of a source on a filesystem: paths, directories and patterns, turned into names.

Only regular files count: opening a pipe would wait for a writer.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Container, Iterable, Iterator

from headrace.errors import SourceError
from headrace.sources.files.directories import (
    files_below,
    files_like,
    is_directory,
    is_file,
)
from headrace.sources.files.file_set import FileSet
from headrace.sources.files.input_file import InputFile, LocalFile
from headrace.store.location import filesystem_path


class LocalFileSet(FileSet):
    """The files under some paths, directories and glob patterns of a filesystem."""

    def __init__(self, written: tuple[str, ...], *, watch: bool) -> None:
        self.written = written
        self.watch = watch
        self._patterns = tuple(_absolute(path) for path in self.written)
        self._base: str | None = None

    @property
    def base(self) -> str:
        if self._base is None:
            self._base = os.path.commonpath([self._anchor(pattern) for pattern in self._patterns])
        return self._base

    def path(self, name: str) -> str:
        return os.path.join(self.base, name)

    def file(self, name: str) -> InputFile:
        return LocalFile(os.path.join(self.base, name))

    def walk(self, skip: Container[str]) -> Iterator[str | None]:
        for pattern in self._patterns:
            yield from self._matches(pattern, skip)

    def named(self, found: Iterable[str]) -> list[str]:
        base = self.base
        names = sorted(_below(path, base).replace(os.sep, "/") for path in found)
        if not _is_text("/".join(names)):
            odd = next(name for name in names if not _is_text(name))
            raise SourceError(
                f"the name of the file {os.fsencode(self.path(odd))!r} is not UTF-8, and cannot be "
                "noted in the epoch log: rename the file, or move it out of the directory"
            )
        return names

    def nothing(self) -> str:
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


def _absolute(path: str) -> str:
    found = filesystem_path(path) or path
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
