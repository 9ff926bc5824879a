"""Durable file operations on a POSIX filesystem.

Three promises, each needed by the protocol:
- `write` : a file under its final name is complete and on disk, or absent.
- `put_if_absent`: of all writers of one name exactly one succeeds, and a crash
  leaves the name either free or complete. `rename` would overwrite and `O_EXCL`
  would leave an empty file behind, so it writes aside and `link`s.
- `sync_directory`: a name that was made or removed stays so after a power loss.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import StoreError


@contextmanager
def explained(action: str, path: str | Path) -> Iterator[None]:
    """Turns the refusals of a filesystem into errors that say what to do."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        hints = {
            errno.ENOSPC: "the disk is full: free some space and start again, nothing is lost",
            errno.EDQUOT: "the quota is used up: free some space and start again, nothing is lost",
            errno.EACCES: "permission denied: let this user write there, or choose another path",
            errno.EPERM: "permission denied: let this user write there, or choose another path",
            errno.EROFS: "the filesystem is read-only: choose another path",
        }
        hint = hints.get(error.errno or 0, error.strerror or str(error))
        raise StoreError(f"cannot {action} {path}: {hint}") from error


def sync_directory(path: str | Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_durable: set[str] = set()
"""Directories whose names this process knows to be on disk."""


def make_directory(path: str | Path) -> None:
    """Makes a directory and its parents, durably.

    One that is there already may be another process's, made an instant ago and not yet on
    disk: so its name, and those of its parents, are synced too, once in a process.
    """
    path = Path(path)
    with explained("make the directory", path):
        if str(path) in _durable and path.is_dir():
            return
        missing = {p for p in (path, *path.parents) if not p.exists()}
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise StoreError(f"cannot make the directory {path}: a file has that name") from None
        except FileNotFoundError as error:
            raise _vanished(path, error.filename) from None
        for made in (path, *path.parents):
            known = made not in missing and str(made) in _durable
            if known or made == made.parent:
                continue
            try:
                sync_directory(made.parent)
            except FileNotFoundError:
                raise _vanished(path, made.parent) from None
            except OSError as error:
                # Far above, directories may be closed to this user, and were never made by us.
                if made in missing or error.errno == errno.EIO:
                    raise
            _durable.add(str(made))


def _vanished(path: Path, above: object) -> StoreError:
    return StoreError(
        f"cannot make the directory {path}: {above} has vanished meanwhile; is it still mounted?"
    )


def write(path: str | Path, data: bytes, *, durable: bool = True) -> None:
    """Writes a whole file under its name, replacing what lay there."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with explained("write", path):
        try:
            _write_through(aside, data, durable=durable)
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        if durable:
            sync_directory(path.parent)


def put_if_absent(path: str | Path, data: bytes) -> bool:
    """Writes a whole file under a name that nobody has taken; False if somebody has."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with explained("write", path):
        try:
            _write_through(aside, data)
            try:
                os.link(aside, path)
            except FileExistsError:
                return False
        finally:
            aside.unlink(missing_ok=True)
        sync_directory(path.parent)
    return True


def _write_through(path: Path, data: bytes, *, durable: bool = True) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
