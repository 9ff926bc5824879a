"""Which files a compaction has replaced, and for how long readers may still read them.

    _compactions/<token>        when it began, for how long, which files below `data/`

A reader that has read a manifest opens its files later. So files that a compaction replaces stay
for a while, though no manifest names them any more.
"""

from __future__ import annotations

import msgspec

from headrace.sinks.stored.manifest import COMPACTED
from headrace.store.store import Store

RECORDS = "_compactions"
ORPHANS_S = 24 * 3600.0
"""After this time no compaction is still running, and its unnamed files are deleted."""


class ReplacedFiles(msgspec.Struct, frozen=True):
    """The record of one compaction; it is put before its first file."""

    at_s: float
    keep_s: float
    files: list[str]
    """Below `data/`, or, with that prefix, below `compacted/`."""


def records(store: Store) -> dict[str, ReplacedFiles]:
    """Token -> record of every compaction that is remembered."""
    found = {}
    for info in store.walk(RECORDS):
        if info is None:
            continue
        try:
            record = msgspec.json.decode(store.read(info.name), type=ReplacedFiles)
        except (FileNotFoundError, msgspec.DecodeError):
            continue  # Its time was over; or nothing that a compaction has put.
        found[info.name.rpartition("/")[2]] = record
    return found


def held_back(store: Store) -> set[str]:
    """Files that readers may still read."""
    now = store.system.wall_s()
    return {
        name
        for record in records(store).values()
        if now < record.at_s + record.keep_s
        for name in record.files
    }


def forget(store: Store, named: set[str]) -> int:
    """Deletes compacted files that neither a manifest names nor a reader needs; returns how many.

    A file of a compaction that may still run is unnamed too: it stays for a day.
    """
    now, found, held = store.system.wall_s(), records(store), held_back(store)
    deleted = 0
    for info in list(store.walk(COMPACTED)):
        if info is None:
            continue
        name = info.name.removeprefix(f"{COMPACTED}/")
        record = found.get(name.partition("/")[0])
        is_running = record is not None and now < record.at_s + ORPHANS_S
        if name not in named and f"{COMPACTED}/{name}" not in held and not is_running:
            store.delete(info.name)
            deleted += 1
    for token, record in found.items():
        if now >= record.at_s + max(record.keep_s, ORPHANS_S):
            store.delete(f"{RECORDS}/{token}")
    return deleted
