"""Map entries of many keys at once: read and changed as columns, sealed as cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from headrace.model.map import check_key
from headrace.model.state import Field
from headrace.model.values.keys import decode_key, encode_part
from headrace.state.backend import Entries, Hashes, StateView


class MapEntries:
    """The maps of some keys of a slot: stored entries, and the changes of an epoch."""

    def __init__(
        self,
        view: StateView,
        fields: Sequence[Field],
        keys: Sequence[bytes],
        hashes: Hashes,
    ) -> None:
        self._view, self._keys, self._hashes = view, keys, hashes
        self._fields = {field.name: field for field in fields}
        self._stored: dict[str, Entries] = {field.name: {} for field in fields}
        self._loaded: dict[str, set[int]] = {field.name: set() for field in fields}
        """The keys whose stored entries were read."""
        self._written: dict[str, Entries] = {field.name: {} for field in fields}

    def read(self, name: str, key_index: Sequence[int] | None) -> pa.Table:
        """`key_index, entry, value` of every entry of these keys, each key's in entry order."""
        field = self._field(name)
        indexes = range(len(self._keys)) if key_index is None else key_index
        self._load(name, indexes)
        stored, written = self._stored[name], self._written[name]
        owners: list[int] = []
        entries: list[bytes] = []
        values: list[bytes] = []
        for i in indexes:
            now = stored.get(i)
            if i in written:
                now = written[i] if now is None else now | written[i]
            if now is None:
                continue
            for entry, data in sorted(now.items()) if len(now) > 1 else now.items():
                if data is not None:
                    owners.append(i)
                    entries.append(entry)
                    values.append(data)
        decode = field.codec.decode
        return pa.table(
            {
                "key_index": pa.array(owners, pa.int32()),
                "entry": _column([decode_key(entry) for entry in entries]),
                "value": pa.array([decode(data) for data in values]),
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
        field, written = self._field(name), self._written[name]
        encode = field.codec.encode
        unsure = set(map(type, entry)) != {field.key_type}
        for i, key, cell in zip(key_index, entry, value, strict=True):
            key = tuple(key) if type(key) is list else key
            if unsure and cell is not None:
                check_key(key, field.key_type, name)
            place = encode_part(key)
            data = None if cell is None else encode(cell)
            if i in written:
                written[i][place] = data
            else:
                written[i] = {place: data}

    def know(self, index: int, entries: Mapping[tuple[str, bytes], bytes | None]) -> None:
        """All entries of a key, (map, entry) -> bytes or None, as a migration has made them."""
        for name in self._fields:
            self._loaded[name].add(index)
            mine = {entry: data for (of, entry), data in entries.items() if of == name}
            if mine:
                self._stored[name][index] = mine

    def changes(self) -> Iterator[tuple[str, int, bytes, bytes | None]]:
        """(map, key's index, entry, bytes or None if it was removed) of each change to write."""
        for name, written in self._written.items():
            stored, loaded = self._stored[name], self._loaded[name]
            for i, changed in written.items():
                before = stored.get(i, {}) if i in loaded else None
                for place, data in changed.items():
                    if before is None or data != before.get(place):
                        yield name, i, place, data

    def shown_changes(self) -> Iterator[tuple[str, int, Any, Any, Any]]:
        """The changes decoded, (map, key's index, entry, before, after), to show to people."""
        for name, i, place, data in sorted(self.changes(), key=itemgetter(0, 1, 2)):
            self._load(name, [i])
            decode, was = self._field(name).codec.decode, self._stored[name].get(i, {}).get(place)
            before = None if was is None else decode(was)
            yield name, i, decode_key(place), before, None if data is None else decode(data)

    def _field(self, name: str) -> Field:
        field = self._fields.get(name)
        if field is None:
            known = ", ".join(self._fields) or "none"
            raise ValueError(f"there is no Map {name!r} here; there are: {known}")
        return field

    def _load(self, name: str, indexes: Sequence[int]) -> None:
        loaded = self._loaded[name]
        missing = [i for i in indexes if i not in loaded] if loaded else indexes
        if len(missing):
            loaded.update(missing)
            keys = [self._keys[i] for i in missing]
            found = self._view.entries(name, keys, self._hashes[missing])
            self._stored[name].update((missing[owner], found[owner]) for owner in found)


def _column(entries: list[Any]) -> pa.Array:
    """Entries as one column; tuples become structs of `part_0`, `part_1`, ..."""
    if entries and all(isinstance(e, tuple) and len(e) == len(entries[0]) for e in entries):
        parts = [pa.array(part) for part in zip(*entries, strict=True)]
        return pa.StructArray.from_arrays(parts, [f"part_{i}" for i in range(len(parts))])
    return pa.array(entries)
