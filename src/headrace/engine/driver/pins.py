"""Pins: files that a reader needs for a while, so that collection leaves them (protocol C8).

A pin names its files and expires by itself; a reader that died holds nothing for ever.
It is put if absent under a name that nobody else has, and only its owner deletes it
before its time.

1. The reader pins the files it is about to read.
2. Then it looks whether they are all there: a collection that began before the pin may
   have taken some, and then the reader has to do without.
3. Collection looks for pins before it deletes.

What remains: a collection that slept between its look and its deletion. A reader opens
all its files at step 2, and an open file outlives its name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from headrace.errors import CorruptCheckpoint, HeadraceError
from headrace.log import paths
from headrace.log.sealed import seal, unseal
from headrace.store.store import Store

_MAGIC = b"headrace-pin"
_logger = logging.getLogger("headrace.pins")


class Pin(msgspec.Struct, frozen=True):
    """What somebody needs, and until when (wall time in seconds)."""

    purpose: str
    expires: float
    files: list[str]
    log_from: int = 0
    """The first position of the log that is needed; 0 where none is."""
    determinants: int = 0
    """The directory of calls that must not repeat that is needed; 0 where none is."""


class Pinned(msgspec.Struct, frozen=True):
    """All that is pinned now."""

    files: frozenset[str] = frozenset()
    log_from: int | None = None
    determinants: frozenset[int] = frozenset()


@contextmanager
def pinned(
    store: Store,
    purpose: str,
    files: Iterable[str],
    *,
    seconds: float,
    log_from: int = 0,
    determinants: int = 0,
) -> Iterator[bool]:
    """While inside, collection leaves these files. False where the checkpoint cannot be written."""
    pin = Pin(purpose, store.system.wall_s() + seconds, sorted(files), log_from, determinants)
    name = paths.pin(store.system.token_hex(8))
    try:
        store.make_directory(paths.PINS)
        done = store.put_if_absent(name, seal(_MAGIC, msgspec.json.encode(pin)))
    except (OSError, HeadraceError):
        done = False  # A copy that cannot be written is a copy that nobody collects from.
    try:
        yield done
    finally:
        if done:
            store.delete(name)


def pins_of(store: Store) -> Pinned:
    """What is pinned; pins that have expired are swept."""
    found: list[Pin] = []
    for component in store.list(paths.PINS):
        name = f"{paths.PINS}/{component}"
        try:
            pin = msgspec.json.decode(unseal(_MAGIC, store.read(name), name), type=Pin)
        except FileNotFoundError:
            continue  # its owner is done
        except (CorruptCheckpoint, msgspec.DecodeError) as error:
            _logger.warning("%s is no pin and holds nothing: %s", name, error)
            continue
        if pin.expires > store.system.wall_s():
            found.append(pin)
        else:
            store.delete(name)
    return Pinned(
        frozenset(file for pin in found for file in pin.files),
        min((pin.log_from for pin in found if pin.log_from), default=None),
        frozenset(pin.determinants for pin in found if pin.determinants),
    )
