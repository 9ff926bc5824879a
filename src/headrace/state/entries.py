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
        self._stored: dict[str, list[dict[bytes, bytes]]] = {}
        self._now: dict[str, list[dict[bytes, bytes]]] = {}
        self._touched: dict[tuple[str, int], set[bytes]] = {}

    def read(self, name: str, key_index: Sequence[int] | None) -> pa.Table:
        """`key_index, entry, value` of every entry of these keys, each key's in entry order."""
        field, maps = self._field(name), self._load(name)
        indexes = range(len(self._keys)) if key_index is None else key_index
        owners: list[int] = []
        entries: list[Any] = []
        values: list[Any] = []
        decode = field.codec.decode
        for i in indexes:
            for entry, data in sorted(maps[i].items()):
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

    def pairs(self, name: str, i: int) -> dict[bytes, bytes]:
        """The encoded entries of one key."""
        return self._load(name)[i]

    def put(
        self, name: str, key_index: Sequence[int], entry: Sequence[Any], value: Sequence[Any]
    ) -> None:
        """Sets entries, row by row; None removes."""
        if not len(key_index) == len(entry) == len(value):
            raise ValueError(
                f"put_entries({name!r}): {len(key_index)} key indexes, {len(entry)} entries and "
                f"{len(value)} values: give as many of each"
            )
        field, maps = self._field(name), self._load(name)
        encode = field.codec.encode
        for i, key, cell in zip(key_index, entry, value, strict=True):
            place = encode_part(tuple(key) if isinstance(key, list) else key)
            self._touched.setdefault((name, i), set()).add(place)
            if cell is None:
                maps[i].pop(place, None)
            else:
                maps[i][place] = encode(cell)

    def changes(self) -> Iterator[tuple[str, int, bytes, bytes | None]]:
        """(map, key's index, entry, bytes or None where it is gone) of what differs."""
        for (name, i), places in self._touched.items():
            now, stored = self._now[name][i], self._stored[name][i]
            for place in sorted(places):
                data = now.get(place)
                if data != stored.get(place):
                    yield name, i, place, data

    def _field(self, name: str) -> Field:
        field = self._fields.get(name)
        if field is None:
            known = ", ".join(self._fields) or "none"
            raise ValueError(f"there is no Map {name!r} here; there are: {known}")
        return field

    def _load(self, name: str) -> list[dict[bytes, bytes]]:
        if name not in self._now:
            self._stored[name] = stored_entries(self._view, name, self._keys, self._hashes)
            self._now[name] = [dict(entries) for entries in self._stored[name]]
        return self._now[name]


def stored_entries(
    view: SlotView,
    name: str,
    keys: Sequence[bytes],
    hashes: np.ndarray[Any, np.dtype[np.uint64]],
) -> list[dict[bytes, bytes]]:
    """The entries of a map for each key, from all segments at once."""
    found: list[dict[bytes, bytes | None]] = [{} for _ in keys]
    for segment, first, last in view.parts:
        candidates = np.flatnonzero(segment.bloom.may_have(hashes))
        if not len(candidates):
            continue
        wanted = hashes[candidates]
        window = segment.hashes[first:last]
        lows = np.searchsorted(window, wanted, "left") + first
        counts = np.searchsorted(window, wanted, "right") + first - lows
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
