"""Walking through directories: what is there, or an error, never silence.

`glob` and most hand-written walks take a directory that cannot be listed for an empty
one: a fixed set would then end in order, without its input. Here an error is raised as
the filesystem tells it, so that the run can judge whether it will pass; only what has
vanished meanwhile, or leads nowhere, is not there.

What is no regular file is left out, and so are names that begin with `.` or `_`:
they are still being written, or are not data.
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
"""Vanished since it was listed, or a link that leads nowhere or round in circles."""
_CLOSED = frozenset({errno.EACCES, errno.EPERM})
_ALL = re.compile("")

NOTHING: Container[str] = frozenset()
ENTRIES = 1000
"""How many entries of a directory are read at once."""


def files_below(
    directory: str, skip: Container[str] = NOTHING, at_once: int = ENTRIES
) -> Iterator[str | None]:
    """The paths of all files below a directory; not those in `skip`. Links to directories end.

    None in between says that some time has passed: a walk through many files may be left and
    taken up again.
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

    `**` stands for any number of directories. Links to directories are followed. None as above.
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
    """The entries of a directory, some at a time."""
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
    """A SourceError where permission is denied; other refusals may pass, and are outages."""
    if error.errno in _CLOSED:
        return SourceError(
            f"{path} cannot be listed, so its files are not known: permission denied "
            "for this user. Let this user read it, or name the paths so that it is left out"
        )
    reason = f"cannot be listed, so its files are not known: {error.strerror or error}"
    return OSError(error.errno, reason, path)
