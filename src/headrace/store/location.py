"""Locations as users write them, and the stores that they name.

A location is text: a path, or a URL for stores that are not on a filesystem (`store/url.py`). It
is sent to the executors with the work, so it must never contain a credential.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from headrace.errors import CorruptCheckpoint, InvalidPipeline
from headrace.store.disk import DiskStore
from headrace.store.memory import open_memory
from headrace.store.store import Store
from headrace.store.url import StoreUrl, is_url, parse_url

# A Path has removed one slash from what was a URL; "C:/" is a path.
_HALF_URL = re.compile(r"(?=[a-z0-9]*[a-z])[a-z0-9]{2,}:/(?!/)", re.IGNORECASE)


def open_store(location: str) -> Store:
    """Opens the store that has this location (`Store.location`), in any process."""
    if location.startswith("memory:"):
        whole, slash, prefix = location.partition("/")
        found = open_memory(whole)
        return found.below(prefix) if slash else found
    if is_url(location):
        return _remote(parse_url(location))
    return DiskStore(location)


def filesystem_path(given: str | os.PathLike[str]) -> str | None:
    """A location as a path, without `file://`; None if it is another URL."""
    text = os.fspath(given).removeprefix("file://")
    return None if _HALF_URL.match(text) or "://" in text else text


def checkpoint_store(given: str | os.PathLike[str] | Store) -> Store:
    """The store that `checkpoint=` names; creates and reads nothing in it."""
    if isinstance(given, Store):
        return given
    if not isinstance(given, str | os.PathLike):
        raise InvalidPipeline(
            f"checkpoint= names a directory or a store, as a text or a Path, not {given!r}"
        )
    text = filesystem_path(given)
    if text is None:
        return _remote(checked_url(given, "checkpoint="))
    if not text:
        raise InvalidPipeline("checkpoint= names a directory or a store, not an empty text")
    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise InvalidPipeline(f"checkpoint= names a directory; {path} is a file")
    return DiskStore(path)


def checked_url(given: str | os.PathLike[str], what: str) -> StoreUrl:
    """The parts of a URL that a user has given; InvalidPipeline if no store can have it."""
    text = os.fspath(given)
    if not isinstance(given, str) or _HALF_URL.match(text):
        scheme = text.partition(":")[0]
        raise InvalidPipeline(
            f"{what} is a URL with one slash too few: write {scheme}://, and give it as a text, "
            "because a Path removes a slash"
        )
    if not is_url(text):
        raise InvalidPipeline(
            f"{what} is neither a path nor a URL: {text.partition('?')[0]} has '://' in its middle"
        )
    return parse_url(text)


def no_checkpoint(store: Store) -> CorruptCheckpoint | InvalidPipeline:
    """The error for a location that contains no checkpoint, or does not exist."""
    if not store.is_present():
        kind = "store" if is_url(store.location) else "directory"
        return InvalidPipeline(f"there is no {kind} {store.where()}: correct the checkpoint's path")
    return CorruptCheckpoint(f"{store.where()} is not a checkpoint: there is no IDENTITY file")


def _remote(url: StoreUrl) -> Store:
    # Imported here, because their packages are extras.
    if url.scheme == "hdfs":
        from headrace.store.hdfs import HdfsStore

        return HdfsStore(url)
    from headrace.store.objects import ObjectStore

    return ObjectStore(url)
