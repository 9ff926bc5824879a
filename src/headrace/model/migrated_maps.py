"""Maps of a key whose class was raised to a newer version: what `migrate` returned, as entries.

All entries of a migrated key are written again, so that they bear the new version, and what
`migrate` did not return is removed. Until then the map reads them from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from headrace.model.map import check_key
from headrace.model.state import Field
from headrace.model.values.codec import decode_value
from headrace.model.values.keys import decode_key, encode_part
from headrace.model.values.time import END

StoredEntries = Mapping[bytes, tuple[bytes, int]]
"""Entry -> (bytes, expires)."""

MigratedEntries = dict[tuple[str, bytes], tuple[bytes | None, int]]
"""(map, entry) -> (bytes, or None if it is to be removed; expires)."""


def shown_entries(entries: StoredEntries, clock: int) -> dict[Any, Any]:
    """Stored entries as `migrate` sees them; without those that have expired."""
    return {
        decode_key(entry): decode_value(data)
        for entry, (data, expires) in entries.items()
        if expires > clock
    }


def taken_over(
    field: Field, given: Any, before: StoredEntries, clock: int
) -> dict[bytes, tuple[bytes, int]]:
    """The entries of a map from the dict that `migrate` has returned for it.

    An entry that was there before keeps the end of its TTL. TypeError or ValidationError if the
    dict is not what the map is declared as.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"migrate() returns {given!r:.80} for it, and a Map takes a dict")
    fresh = END if field.ttl_us is None else min(clock + field.ttl_us, END)
    found: dict[bytes, tuple[bytes, int]] = {}
    for key, value in given.items():
        check_key(key, field.key_type, field.name)
        entry = encode_part(key)
        data = field.codec.encode(msgspec.convert(value, field.codec.type))
        known = before.get(entry)
        found[entry] = data, known[1] if known is not None and known[1] > clock else fresh
    return found


class EntriesOfMap:
    """The entries of one map after a migration, as its source."""

    __slots__ = ("_entries", "_name")

    def __init__(self, name: str, entries: MigratedEntries) -> None:
        """`entries` are those of all maps of the key."""
        self._name, self._entries = name, entries

    def get(self, entry: bytes) -> tuple[bytes, int] | None:
        """(bytes, expires) of one entry."""
        data, expires = self._entries.get((self._name, entry), (None, END))
        return None if data is None else (data, expires)

    def scan(
        self, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        """Entries from `low` up to `high`, in no particular order, each once."""
        for (name, entry), (data, expires) in list(self._entries.items()):
            inside = (low is None or low <= entry) and (high is None or entry < high)
            if name == self._name and data is not None and inside:
                yield entry, (data, expires)
