"""Locations as users write them, and the stores that they name.

A location is text: a path, or a URL for stores that are not on a filesystem. It is sent to the
executors with the work, so it must never contain a credential.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.errors import CorruptCheckpoint, InvalidPipeline
from headrace.store.disk import DiskStore
from headrace.store.memory import open_memory
from headrace.store.store import Store


def open_store(location: str) -> Store:
    """Opens the store that has this location (`Store.location`), in any process."""
    if location.startswith("memory:"):
        whole, slash, prefix = location.partition("/")
        found = open_memory(whole)
        return found.below(prefix) if slash else found
    return DiskStore(location)


def filesystem_path(given: str | os.PathLike[str]) -> str | None:
    """A location as a path, without `file://`; None if it is another URL."""
    text = os.fspath(given).removeprefix("file://")
    # A Path has removed one slash from what was a URL.
    scheme, colon, _ = text.partition(":/")
    is_url = colon and scheme.isalnum() and not scheme.isdigit() and len(scheme) > 1
    return None if is_url or "://" in text else text


def checkpoint_store(given: str | os.PathLike[str] | Store) -> Store:
    """The store that `checkpoint=` names; creates and reads nothing."""
    if isinstance(given, Store):
        return given
    if not isinstance(given, str | os.PathLike):
        raise InvalidPipeline(f"checkpoint= names a directory, as a text or a Path, not {given!r}")
    text = filesystem_path(given)
    if text is None:
        raise InvalidPipeline(
            f"checkpoint= names a directory of a filesystem that the driver and all executors "
            f"see, not a URL: {os.fspath(given)}. Mount it, or choose a shared directory"
        )
    if not text:
        raise InvalidPipeline("checkpoint= names a directory, not an empty text")
    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise InvalidPipeline(f"checkpoint= names a directory; {path} is a file")
    return DiskStore(path)


def no_checkpoint(store: Store) -> CorruptCheckpoint | InvalidPipeline:
    """The error for a location that contains no checkpoint, or does not exist."""
    if not store.is_present():
        return InvalidPipeline(
            f"there is no directory {store.where()}: correct the checkpoint's path"
        )
    return CorruptCheckpoint(f"{store.where()} is not a checkpoint: there is no IDENTITY file")
