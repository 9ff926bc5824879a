"""Builds an epoch's directory aside, durably, before anybody can see it.

A part that is one file, staged on this filesystem, is linked instead of copied:
its bytes are then on disk already. The published file and the staged one are
the same file until the checkpoint drops its name, so consumers may move or
delete what they read, and should not write into it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import xxhash

from headrace.errors import SinkError
from headrace.log.files import explained, sync_directory
from headrace.model.sink import Part

HEAD_BYTES = 8
LABEL_CHARACTERS_MAX = 180

Split = Callable[[bytes], Sequence[tuple[str, bytes]]]


def build(
    root: Path, parts: Sequence[Part], suffix: str, is_split: Callable[[bytes], bool], split: Split
) -> bool:
    """Makes the directory `root` of these parts, on disk; False where no part has rows.

    `is_split` tells from the head of a staged form whether it holds several files,
    `split` gives them as (directory, bytes).
    """
    root.mkdir()
    try:
        directories = {root}
        count = 0
        for part in parts:
            name = f"part-{label_name(part.label)}{suffix}"
            data = part.read()  # and checks it against its digest, also where it is only linked
            several = is_split(data[:HEAD_BYTES])
            if data and not several and part.path is not None and _link(part.path, root / name):
                count += 1
                continue
            files = split(data) if several else [("", data)]
            for directory, content in files:
                if content:
                    home = _inside(root, directory, directories)
                    _write(home / name, content)
                    count += 1
        if not count:
            root.rmdir()
            return False
        for made in sorted(directories, reverse=True):
            sync_directory(made)
        sync_directory(root.parent)
    except BaseException:
        # Nobody has claimed it, and a full disk must not fill up with failed tries.
        shutil.rmtree(root, ignore_errors=True)
        raise
    return True


def label_name(label: str) -> str:
    """A label as a part of a file's name."""
    quoted = quote(label, safe="")
    if len(quoted) <= LABEL_CHARACTERS_MAX:
        return quoted
    digest = xxhash.xxh3_128_hexdigest(label.encode())
    return f"{quoted[: LABEL_CHARACTERS_MAX - 33]}-{digest}"


def _inside(root: Path, directory: str, directories: set[Path]) -> Path:
    """Makes a directory below `root` and notes it and its parents, to be synced."""
    relative = PurePosixPath(directory)
    if relative.is_absolute() or ".." in relative.parts:
        raise SinkError(f"a staged part names the directory {directory!r}: it is damaged")
    # Step by step and never `root` itself: if that is gone, another driver has swept it.
    home = root
    for component in relative.parts:
        home = home / component
        if home not in directories:
            with explained("make the directory", home):
                home.mkdir()
            directories.add(home)
    return home


def _link(source: str, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        # A network filesystem may have done it all the same, and told of a second try.
        if not _is_linked(source, target):
            if isinstance(error, FileExistsError):
                raise  # Two parts with one label.
            return False  # Another filesystem, or one without links.
    with explained("write", target), open(target, "rb") as file:
        os.fsync(file.fileno())
    return True


def _is_linked(source: str, target: Path) -> bool:
    try:
        return os.path.samefile(source, target)
    except OSError:
        return False


def _write(path: Path, data: bytes) -> None:
    with explained("write", path), open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
