"""Map entries of many keys at once: read as columns, changed in columns, sealed as cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.model.keys import decode_key, encode_part
from headrace.model.state import Field
from headrace.state.segment import ENTRY
from headrace.state.view import SlotView

_COLUMNS = (1, 3, 4, 5, 9)


class MapEntries:
    """The maps of some keys of a slot: what is stored, and what an epoch changes."""

    def __init__(
        self,
        view: SlotView,
        fields: Sequence[Field],
        keys: Sequence[bytes],
        hashes: np.ndarray[Any, np.dtype[np.uint64]],
    ) -> None:
        self._view, self._keys, self._hashes = view, keys, hashes
        self._fields = {field.name: field for field in fields}
        self._stored: dict[tuple[str, int], dict[bytes, bytes]] = {}
        """(map, key's index) -> its entries, where they were read."""
        self._written: dict[tuple[str, int], dict[bytes, bytes | None]] = {}

    def read(self, name: str, key_index: Sequence[int] | None) -> pa.Table:
        """`key_index, entry, value` of every entry of these keys, each key's in entry order."""
        field = self._field(name)
        indexes = list(range(len(self._keys)) if key_index is None else key_index)
        self._load(name, indexes)
        owners: list[int] = []
        entries: list[Any] = []
        values: list[Any] = []
        decode = field.codec.decode
        for i in indexes:
            now: dict[bytes, bytes | None] = {**self._stored[name, i]}
            now.update(self._written.get((name, i), {}))
            for entry, data in sorted(now.items()):
                if data is not None:
                    owners.append(i)
                    entries.append(decode_key(entry))
                    values.append(decode(data))
        return pa.table(
            {
                "key_index": pa.array(owners, pa.int32()),
                "entry": _column(entries),
                "value": pa.array(values),
            }
        )

    def put(
        self, name: str, key_index: Sequence[int], entry: Sequence[Any], value: Sequence[Any]
    ) -> None:
        """Sets entries, row by row, without reading them; None removes."""
        if not len(key_index) == len(entry) == len(value):
            raise ValueError(
                f"put_entries({name!r}): {len(key_index)} key indexes, {len(entry)} entries and "
                f"{len(value)} values: give as many of each"
            )
        encode = self._field(name).codec.encode
        for i, key, cell in zip(key_index, entry, value, strict=True):
            place = encode_part(tuple(key) if isinstance(key, list) else key)
            data = None if cell is None else encode(cell)
            self._written.setdefault((name, i), {})[place] = data

    def changes(self) -> Iterator[tuple[str, int, bytes, bytes | None]]:
        """(map, key's index, entry, bytes or None where it is gone) of what is to be written."""
        for (name, i), written in self._written.items():
            stored = self._stored.get((name, i))
            for place in sorted(written):
                if stored is None or written[place] != stored.get(place):
                    yield name, i, place, written[place]

    def shown_changes(self) -> Iterator[tuple[str, int, Any, Any, Any]]:
        """The same decoded, (map, key's index, entry, before, after), for people to look at."""
        for name, i, place, data in list(self.changes()):
            self._load(name, [i])
            decode, was = self._field(name).codec.decode, self._stored[name, i].get(place)
            before = None if was is None else decode(was)
            yield name, i, decode_key(place), before, None if data is None else decode(data)

    def _field(self, name: str) -> Field:
        field = self._fields.get(name)
        if field is None:
            known = ", ".join(self._fields) or "none"
            raise ValueError(f"there is no Map {name!r} here; there are: {known}")
        return field

    def _load(self, name: str, indexes: Sequence[int]) -> None:
        missing = [i for i in indexes if (name, i) not in self._stored]
        if missing:
            keys = [self._keys[i] for i in missing]
            found = stored_entries(self._view, name, keys, self._hashes[missing])
            self._stored.update(zip(((name, i) for i in missing), found, strict=True))


def stored_entries(
    view: SlotView,
    name: str,
    keys: Sequence[bytes],
    hashes: np.ndarray[Any, np.dtype[np.uint64]],
) -> list[dict[bytes, bytes]]:
    """The entries of a map for each key, from all segments at once."""
    found: list[dict[bytes, bytes | None]] = [{} for _ in keys]
    for segment, candidates, lows, highs in view.runs(hashes):
        counts = highs - lows
        starts = np.repeat(lows - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        rows = starts + np.arange(int(counts.sum()))
        owners = np.repeat(candidates, counts)
        chosen = segment.kinds[rows] == ENTRY
        if not chosen.any():
            continue
        columns = segment.rows(rows[chosen], _COLUMNS)
        for owner, key, field, entry, value, gone in zip(
            owners[chosen].tolist(), *columns, strict=True
        ):
            # Parts come newest first, so the first version of an entry counts.
            if key == keys[owner] and field == name:
                found[owner].setdefault(entry, None if gone else value)
    return [{e: data for e, data in entries.items() if data is not None} for entries in found]


def _column(entries: list[Any]) -> pa.Array:
    """Entries as one column; tuples become structs of `part_0`, `part_1`, ..."""
    if entries and all(isinstance(e, tuple) and len(e) == len(entries[0]) for e in entries):
        parts = [pa.array(part) for part in zip(*entries, strict=True)]
        return pa.StructArray.from_arrays(parts, [f"part_{i}" for i in range(len(parts))])
    return pa.array(entries)
