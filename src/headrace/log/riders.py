"""Reads riders: small files that lie in the tail of a log entry (protocol M1).

A few entries stay open per store, because the slots of a process find their deltas in the same
entries. Names end with the digest of the bytes, so an entry that is kept too long is never wrong:
at most it lacks a name, and then the entry is read again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from weakref import WeakKeyDictionary

import pyarrow as pa

from headrace.errors import CorruptCheckpoint
from headrace.log import paths
from headrace.log.entry import EntryTail
from headrace.store.store import Store

OPEN_MAX = 64
OPEN_BYTES_MAX = 16 << 20
"""How many entries of a store stay open, and how many bytes; one at least."""


class _OpenTails:
    """The entries of one store that were read last."""

    def __init__(self) -> None:
        self._tails: OrderedDict[int, EntryTail] = OrderedDict()
        self._lock = threading.Lock()  # never held during a call of the store

    def get(self, position: int) -> EntryTail | None:
        with self._lock:
            found = self._tails.get(position)
            if found is not None:
                self._tails.move_to_end(position)
            return found

    def put(self, position: int, tail: EntryTail) -> None:
        with self._lock:
            self._tails[position] = tail
            self._tails.move_to_end(position)
            size = sum(each.bytes for each in self._tails.values())
            while len(self._tails) > 1 and (len(self._tails) > OPEN_MAX or size > OPEN_BYTES_MAX):
                size -= self._tails.popitem(last=False)[1].bytes


_open: WeakKeyDictionary[Store, _OpenTails] = WeakKeyDictionary()


def map_rider(store: Store, name: str, position: int) -> pa.Buffer:
    """The bytes of a rider; FileNotFoundError if the log has no entry at its position."""
    tails = _open.get(store)
    if tails is None:
        tails = _open.setdefault(store, _OpenTails())
    kept = tails.get(position)
    found = kept.get(name) if kept is not None else None
    if found is not None:
        return found
    entry = paths.log_entry(position, store.system.limits)
    tail = EntryTail(store.map(entry), store.where(entry))
    tails.put(position, tail)
    found = tail.get(name)
    if found is None:
        raise CorruptCheckpoint(
            f"{store.where(entry)} does not hold {name}, though a commit says so; restore the log "
            "from a copy"
        )
    return found


def is_there(store: Store, position: int) -> bool:
    """Whether the log still has the entry at a position."""
    try:
        store.stat(paths.log_entry(position, store.system.limits))
    except FileNotFoundError:
        return False
    return True
