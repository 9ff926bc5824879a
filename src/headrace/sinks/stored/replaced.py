"""Which files a compaction has replaced, and for how long readers may still read them.

    _compactions/<token>        when it began, for how long, which files below `data/`

A reader that has read a manifest opens its files later. So files that a compaction replaces stay
for a while, though no manifest names them any more.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.sinks.stored.manifest import COMPACTED
from headrace.sinks.stored.manifests import Manifests
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
    return _held(records(store), store.system.wall_s())


def _held(found: Mapping[str, ReplacedFiles], now: float) -> set[str]:
    return {
        name
        for record in found.values()
        if now < record.at_s + record.keep_s
        for name in record.files
    }


def forget(store: Store) -> int:
    """Deletes compacted files that neither a manifest names nor a reader needs; returns how many.

    A file of a compaction that may still run is unnamed too: it stays for a day. The files are
    listed before the records, and these before the manifests. Another compaction puts them in the
    opposite order, so the record of each file that is listed is found.
    """
    files = [info.name for info in store.walk(COMPACTED) if info is not None]
    now, found = store.system.wall_s(), records(store)
    named = {
        file.place
        for each, _, _ in Manifests(store).since(0)
        for file in each.files
        if file.first is not None
    }
    held, deleted = _held(found, now), 0
    for place in files:
        record = found.get(place.removeprefix(f"{COMPACTED}/").partition("/")[0])
        is_running = record is not None and now < record.at_s + ORPHANS_S
        if place not in named and place not in held and not is_running:
            store.delete(place)
            deleted += 1
    for token, record in found.items():
        if now >= record.at_s + max(record.keep_s, ORPHANS_S):
            store.delete(f"{RECORDS}/{token}")
    return deleted
