"""Durable file operations on a POSIX filesystem.

Three promises, each needed by the protocol:
- `write`: a file under its final name is complete and on disk, or absent.
- `put_if_absent`: of all writers of one name exactly one succeeds, and a crash leaves the name
  either free or complete. `rename` would overwrite, and `O_EXCL` would leave an empty file behind.
  So it writes a temporary file and `link`s it.
- `sync_directory`: a name that was created or removed stays so after a power loss.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import StoreError
from headrace.system import REAL, AnyPath, System

_LOOKS = ("read", "list", "look at")


@contextmanager
def explained(action: str, path: AnyPath) -> Iterator[None]:
    """Turns filesystem errors into errors that say what to do."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        what = "read it" if action in _LOOKS else "write there"
        denied = f"permission denied: let this user {what}, or choose another path"
        hints = {
            errno.ENOSPC: "the disk is full: free some space and start again, nothing is lost",
            errno.EDQUOT: "the quota is used up: free some space and start again, nothing is lost",
            errno.EACCES: denied,
            errno.EPERM: denied,
            errno.EROFS: "the filesystem is read-only: choose another path",
        }
        hint = hints.get(error.errno or 0, error.strerror or str(error))
        raise StoreError(f"cannot {action} {path}: {hint}") from error


def sync_directory(path: AnyPath, system: System = REAL) -> None:
    """Makes the names in a directory durable."""
    descriptor = system.files.open_directory(path)
    try:
        system.files.fsync(descriptor)
    finally:
        system.files.close(descriptor)


def sync_file(path: AnyPath, system: System = REAL) -> None:
    """Makes durable what a file has, whoever wrote it, and its name."""
    with explained("sync", path):
        descriptor = system.files.open_directory(path)
        try:
            system.files.fsync(descriptor)
        finally:
            system.files.close(descriptor)
        sync_directory(os.path.dirname(path), system)


def make_directory(path: AnyPath, system: System = REAL) -> None:
    """Creates a directory and its parents, durably.

    Another process may have created an existing one a moment ago, so that it is not yet on disk.
    Therefore its name and those of its parents are synced too, once per process.
    """
    path = os.path.join(os.getcwd(), path).rstrip("/") or "/"
    durable = system.files.durable_directories
    with explained("make the directory", path):
        if path in durable and system.files.is_directory(path):
            return
        chain = [path]
        while chain[-1] != "/":
            chain.append(os.path.dirname(chain[-1]))
        missing = {name for name in chain if not system.files.exists(name)}
        try:
            _make_with_parents(path, system)
        except FileExistsError:
            raise StoreError(f"cannot make the directory {path}: a file has that name") from None
        except FileNotFoundError as error:
            raise _vanished(path, error.filename) from None
        for made in chain[:-1]:
            if made not in missing and made in durable:
                continue
            parent = os.path.dirname(made)
            try:
                sync_directory(parent, system)
            except FileNotFoundError:
                raise _vanished(path, parent) from None
            except OSError as error:
                # Directories far above may be closed to this user, but we did not create those.
                if made in missing or error.errno == errno.EIO:
                    raise
            durable.add(made)


def _make_with_parents(path: str, system: System) -> None:
    parent = os.path.dirname(path)
    if not system.files.exists(parent):
        _make_with_parents(parent, system)
    try:
        system.files.mkdir(path)
    except FileExistsError:
        if not system.files.is_directory(path):
            raise


def _vanished(path: str, above: object) -> StoreError:
    return StoreError(
        f"cannot make the directory {path}: {above} has vanished meanwhile; is it still mounted?"
    )


def write(path: AnyPath, data: bytes, system: System = REAL, *, durable: bool = True) -> None:
    """Writes a whole file under its name, replacing an existing file."""
    aside = _aside(path, system)
    with explained("write", path):
        try:
            _write_through(aside, data, system, durable=durable)
            _rename(aside, path, system)
        except BaseException:
            remove(aside, system)
            raise
        if durable:
            sync_directory(os.path.dirname(aside), system)


def put_if_absent(path: AnyPath, data: bytes, system: System = REAL) -> bool:
    """Writes a whole file under a name that is free; False if the name is taken."""
    aside = _aside(path, system)
    with explained("write", path):
        try:
            _write_through(aside, data, system)
            try:
                system.files.link(aside, path)
            except FileExistsError:
                return False
        finally:
            remove(aside, system)
        sync_directory(os.path.dirname(aside), system)
    return True


def link(old: AnyPath, path: AnyPath, system: System = REAL) -> None:
    """Gives a durable file a second name, replacing an existing file."""
    aside = _aside(path, system)
    try:
        try:
            system.files.link(old, aside)
        except FileExistsError:
            pass  # The name is random: a network filesystem has repeated its own request.
        _rename(aside, path, system)
    finally:
        # A rename between two names of one file does nothing, and leaves both.
        remove(aside, system)
    sync_directory(os.path.dirname(aside), system)


def remove(path: AnyPath, system: System = REAL) -> None:
    """Removes a file; does nothing if there is none."""
    try:
        system.files.unlink(path)
    except FileNotFoundError:
        pass


def _aside(path: AnyPath, system: System) -> str:
    """A hidden name in the same directory, for a file that is not complete yet."""
    directory, name = os.path.split(os.path.join(os.getcwd(), path))
    return f"{directory}/.{name}.{system.token_hex(6)}.tmp"


def _rename(aside: str, path: AnyPath, system: System) -> None:
    """Gives a file of this process its final name."""
    try:
        system.files.replace(aside, path)
    except FileNotFoundError as error:
        # Its name is random. A network filesystem that repeats its own request renames it once,
        # and answers that there is no such file. Whoever writes it again loses nothing.
        raise StoreError(
            f"cannot write {path}: its temporary file {aside} has vanished; is the filesystem "
            "still mounted?"
        ) from error


def _write_through(path: str, data: bytes, system: System, *, durable: bool = True) -> None:
    descriptor = system.files.create(path)
    try:
        view = memoryview(data)
        while view:
            view = view[system.files.write(descriptor, view) :]
        if durable:
            system.files.fsync(descriptor)
    finally:
        system.files.close(descriptor)
