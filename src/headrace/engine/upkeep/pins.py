"""Pins: the files that a reader needs for a while, so that collection keeps them (protocol C8).

A pin names its files and has an expiry time, so that the pin of a reader that died does not last
for ever. It is put if absent under a unique name, and before it expires only its owner deletes it.

1. The reader pins the files that it is about to read.
2. Then it checks that all of them exist: a collection that began before the pin may have deleted
   some, and then the reader has to do without them.
3. Collection reads the pins before it deletes.

What remains: a collection that sleeps between reading the pins and deleting. Therefore a reader
opens all its files in step 2, and an open file can be read even after its name is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from headrace.errors import CorruptCheckpoint, HeadraceError
from headrace.log import paths
from headrace.log.sealed import seal, unseal
from headrace.store.store import Store

_MAGIC = b"headrace-pin"
_logger = logging.getLogger("headrace.pins")


class Pin(msgspec.Struct, frozen=True):
    """What a reader needs, and until when (wall time in seconds)."""

    purpose: str
    expires: float
    files: list[str]
    log_from: int = 0
    """The first position of the log that is needed; 0 if none is."""
    determinants: int = 0
    """The first epoch of the directory of logged calls that is needed; 0 if none is."""


class Pinned(msgspec.Struct, frozen=True):
    """Everything that is pinned now."""

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
    """Keeps these files from collection inside the block; yields False if it cannot write a pin."""
    pin = Pin(purpose, store.system.wall_s() + seconds, sorted(files), log_from, determinants)
    name = paths.pin(store.system.token_hex(8))
    done = _put(store, name, seal(_MAGIC, msgspec.json.encode(pin)))
    try:
        yield done
    finally:
        if done:
            with suppress(OSError, HeadraceError):
                store.delete(name)  # Otherwise it expires by itself.


class HeldPin:
    """A pin whose owner works for an unknown time: it is renewed while `keep` is called."""

    def __init__(
        self, store: Store, purpose: str, files: Iterable[str], *, seconds: float, log_from: int = 0
    ) -> None:
        self._store, self._purpose, self._seconds = store, purpose, seconds
        self._files, self._log_from = sorted(files), log_from
        self._name = ""
        self._put_s = float("-inf")

    def keep(self) -> bool:
        """Renews the pin if a third of its time is over; returns whether there is one."""
        now = self._store.system.uptime_s()
        if now - self._put_s < self._seconds / 3:
            return True
        self._put_s = now  # another thread need not put one too
        expires = self._store.system.wall_s() + self._seconds
        pin = Pin(self._purpose, expires, self._files, self._log_from)
        name = paths.pin(self._store.system.token_hex(8))
        if not _put(self._store, name, seal(_MAGIC, msgspec.json.encode(pin))):
            return bool(self._name)
        self.release()  # the new one is there
        self._name = name
        return True

    def release(self) -> None:
        """Deletes the pin; otherwise it expires by itself."""
        if self._name:
            with suppress(OSError, HeadraceError):
                self._store.delete(self._name)
        self._name = ""


def _put(store: Store, name: str, data: bytes) -> bool:
    """Puts a pin; returns whether it is there."""
    try:
        store.make_directory(paths.PINS)
        return store.put_if_absent(name, data)
    except (OSError, HeadraceError):
        pass  # It may have arrived all the same.
    try:
        return store.read(name) == data
    except (OSError, HeadraceError):
        return False  # No driver collects from a copy that cannot be written to.


def pins_of(store: Store) -> Pinned:
    """What is pinned; deletes the pins that have expired."""
    found: list[Pin] = []
    for component in store.list(paths.PINS):
        name = f"{paths.PINS}/{component}"
        try:
            pin = msgspec.json.decode(unseal(_MAGIC, store.read(name), name), type=Pin)
        except FileNotFoundError:
            continue  # its owner has deleted it
        except (CorruptCheckpoint, msgspec.DecodeError) as error:
            _logger.warning("%s is not a valid pin and is ignored: %s", name, error)
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
