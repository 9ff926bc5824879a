"""Walks through directories and never hides an error.

`glob` and most hand-written walks treat a directory that cannot be listed as an empty one: a
run over a fixed set of files would then end normally, without its input. Here the error of the
filesystem is raised, so that the run can decide whether it is transient. Only a path that was
deleted meanwhile, or a broken link, counts as missing.

Only regular files are listed, and no names that begin with `.` or `_`: such files are still
being written, or are not data.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
from collections.abc import Callable, Container, Iterator
from itertools import islice

from headrace.errors import SourceError

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""The path was deleted after it was listed, or is a broken or circular link."""
_CLOSED = frozenset({errno.EACCES, errno.EPERM})
_ALL = re.compile("")

NOTHING: Container[str] = frozenset()
ENTRIES = 1000
"""How many entries of a directory are read at once."""


def files_below(
    directory: str, skip: Container[str] = NOTHING, at_once: int = ENTRIES
) -> Iterator[str | None]:
    """The paths of all files below a directory, except those in `skip`.

    Links to directories are not followed. The iterator gives None now and then, so that the
    caller can interrupt a walk through many files and continue it later.
    """
    folders = []
    for entries in _entries_of(directory, at_once):
        for entry in entries:
            if entry.name[0] in "._" or (path := entry.path) in skip:
                continue
            if _holds(entry.is_dir, path, follow_symlinks=False):
                folders.append(path)
            elif _holds(entry.is_file, path):
                yield path
        if len(entries) == at_once:
            yield None
    for folder in folders:
        yield from files_below(folder, skip, at_once)


def files_like(
    anchor: str, parts: list[str], skip: Container[str] = NOTHING, at_once: int = ENTRIES
) -> Iterator[str | None]:
    """The paths of all files below `anchor` that a pattern names, part by part, as `glob` does.

    `**` stands for any number of directories. Links to directories are followed. None between
    paths means the same as above.
    """
    head, rest = parts[0], parts[1:]
    if head == "**" and rest:
        yield from files_like(anchor, rest, skip, at_once)
    pattern = _ALL if head == "**" else re.compile(fnmatch.translate(head))
    folders = []
    for entries in _entries_of(anchor, at_once):
        for entry in entries:
            if entry.name[0] in "._" or (path := entry.path) in skip:
                continue
            if not pattern.match(entry.name):
                continue
            if _holds(entry.is_dir, path):
                folders.append(path)
            elif not rest and _holds(entry.is_file, path):
                yield path
        if len(entries) == at_once:
            yield None
    for folder in folders:
        if head == "**":
            yield from files_like(folder, parts, skip, at_once)
        elif rest:
            yield from files_like(folder, rest, skip, at_once)


def is_file(path: str) -> bool:
    """Whether there is a regular file, or a link to one."""
    return _holds(lambda: _stat(path, 0o100000), path)


def is_directory(path: str) -> bool:
    """Whether there is a directory, or a link to one."""
    return _holds(lambda: _stat(path, 0o040000), path)


def _stat(path: str, kind: int) -> bool:
    return os.stat(path).st_mode & 0o170000 == kind


def _entries_of(directory: str, at_once: int) -> Iterator[list[os.DirEntry[str]]]:
    """The entries of a directory, at most `at_once` at a time."""
    try:
        with os.scandir(directory) as entries:
            while some := list(islice(entries, at_once)):
                yield some
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise _refused(directory, error) from error


def _holds(ask: Callable[..., bool], path: str, **how: bool) -> bool:
    try:
        return ask(**how)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return False
        raise _refused(path, error) from error


def _refused(path: str, error: OSError) -> Exception:
    """A SourceError where permission is denied; other errors may be transient: an outage."""
    if error.errno in _CLOSED:
        return SourceError(
            f"{path} cannot be listed, so its files are not known: permission denied "
            "for this user. Let this user read it, or name the paths so that it is left out"
        )
    reason = f"cannot be listed, so its files are not known: {error.strerror or error}"
    return OSError(error.errno, reason, path)
