"""Builds an epoch's directory in a staging place, durably, before any reader can see it.

A published file is a copy of the staged file and shares nothing with it. The copied bytes were
checked against their digest in memory. A hard link would cost less for a large epoch, but would
be one file with two names. A consumer that edits or truncates the published file would then damage
the checkpoint, which may have to deliver the epoch again or replay it. And damage to the
checkpoint would appear in published files, where it would not be noticed.

The cost: nothing for a small epoch, where the syncs take most of the time and a link needs as many
of them (12 ms for one part of 200 bytes either way, on ext4). A large epoch is written twice: 64 MB
took 0.16 s instead of 0.06 s, most of it in the background, because files are synced only after
several are written (one by one it took 0.34 s).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import xxhash

from headrace.errors import SinkError
from headrace.model.sink import Part
from headrace.sinks.row_format import RowFormat
from headrace.store.files import explained, sync_directory
from headrace.system import System

HEAD_BYTES = 8
LABEL_CHARACTERS_MAX = 180


def build(root: Path, parts: Sequence[Part], format: RowFormat, system: System) -> int:
    """Makes the directory `root` of these parts, durably; returns its bytes, 0 without rows."""

    def files() -> Iterator[tuple[str, str, bytes]]:
        for part in parts:
            name = f"part-{label_name(part.label)}{format.suffix}"
            data = part.read()  # `read` also checks the digest
            found = format.split(data) if format.is_split(data[:HEAD_BYTES]) else [("", data)]
            for directory, content in found:
                yield directory, name, content

    return build_files(root, files(), system)


def publish(source: Path, target: Path, system: System, *, what: str) -> None:
    """Renames a directory that was built to where readers see it. It may be there already: another
    driver has published it, or this one did before a crash. `what` names it in errors."""
    try:
        system.files.rename(source, target)
    except FileNotFoundError:
        if system.files.exists(source):
            raise
    except OSError as error:
        if system.files.exists(target):
            raise SinkError(
                f"{what} cannot be published: {target} exists, and this delivery did not make it. "
                f"Move it away; {what} is kept, and is delivered again"
            ) from error
        raise


def build_files(root: Path, files: Iterable[tuple[str, str, bytes]], system: System) -> int:
    """Makes the directory `root` of (directory, name, bytes), durably; returns its bytes."""
    system.files.mkdir(root)
    try:
        directories = {root}
        written = _Written(system)
        with closing(written):
            for directory, name, content in files:
                if content:
                    home = _inside(root, directory, directories, system)
                    written.write(home / name, content)
            written.sync()
        if not written.size:
            system.files.rmdir(root)
            return 0
        for made in sorted(directories, reverse=True):
            sync_directory(made, system)
        sync_directory(root.parent, system)
    except BaseException:
        # The directory is not claimed yet, and failed tries must not fill the disk.
        system.files.remove_tree(root)
        raise
    return written.size


def label_name(label: str) -> str:
    """A label in a form that can be part of a file name."""
    quoted = quote(label, safe="")
    if len(quoted) <= LABEL_CHARACTERS_MAX:
        return quoted
    digest = xxhash.xxh3_128_hexdigest(label.encode())
    return f"{quoted[: LABEL_CHARACTERS_MAX - 33]}-{digest}"


def _inside(root: Path, directory: str, directories: set[Path], system: System) -> Path:
    """Makes a directory below `root`, and adds it and its parents to those to be synced."""
    relative = PurePosixPath(directory)
    if relative.is_absolute() or ".." in relative.parts:
        raise SinkError(f"a staged part names the directory {directory!r}: it is damaged")
    # One level at a time and never `root` itself: if that is missing, another driver deleted it.
    home = root
    for component in relative.parts:
        home = home / component
        if home not in directories:
            with explained("make the directory", home):
                system.files.mkdir(home)
            directories.add(home)
    return home


class _Written:
    """Files that are written but not all synced yet.

    They stay open, because the operating system reports a failed background write only to
    descriptors that were open at that time.
    """

    def __init__(self, system: System) -> None:
        self._files = system.files
        self._open_files_max = system.limits.open_files_max
        self.size = 0
        self._open: list[tuple[Path, int]] = []

    def write(self, path: Path, data: bytes) -> None:
        """Writes a new file; it is on disk after `sync`."""
        if len(self._open) == self._open_files_max:
            self.sync()
        with explained("write", path):
            descriptor = self._files.create(path)
            self._open.append((path, descriptor))
            view = memoryview(data)
            while view:
                view = view[self._files.write(descriptor, view) :]
        self.size += len(data)

    def sync(self) -> None:
        """Makes all written files durable."""
        for path, descriptor in self._open:
            with explained("write", path):
                self._files.fsync(descriptor)
        self.close()

    def close(self) -> None:
        """Closes all files, synced or not."""
        while self._open:
            self._files.close(self._open.pop()[1])
