"""Key objects: created from stored cells before the hooks run, turned into changes afterwards.

Invariant: only changes are written. A value that equals its initial value is not stored, so a key
whose values are all initial has no stored cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from headrace.errors import IncompatibleState
from headrace.model.computation import Computation
from headrace.model.map import Map
from headrace.model.migrated_maps import (
    EntriesOfMap,
    MigratedEntries,
    StoredEntries,
    shown_entries,
    taken_over,
)
from headrace.model.state import Field
from headrace.model.values.codec import decode_value
from headrace.model.values.keys import decode_key, hash_key
from headrace.model.values.shown import shown
from headrace.model.values.time import END
from headrace.state.backend import Stored
from headrace.state.objects import OBJECT_BYTES
from headrace.state.segment import Cell
from headrace.worker.cells import dropped_field_cell, entry_cells, field_cell, is_written
from headrace.worker.runtime import Live
from headrace.worker.watching.migrating import call_migrate, misfit


class KeyState:
    """The object of one key, with the stored bytes from which it was created."""

    __slots__ = ("dropped", "expires", "migrated", "object", "stored", "until", "written")

    def __init__(
        self,
        obj: Computation,
        stored: dict[str, bytes],
        expires: dict[str, int],
        dropped: tuple[str, ...],
    ) -> None:
        self.object = obj
        self.dropped = dropped
        """Stored fields that do not exist after a migration."""
        self.migrated: MigratedEntries = {}
        """After a migration: the entries of maps, which are all written again."""
        self.stored = stored
        self.expires = expires
        """For each field with a TTL: when its value expires."""
        self.until = dict(expires)
        """The stored version of `expires`."""
        self.written: dict[str, bytes] = {}
        """For each field whose writes are observed: its bytes at the last write in this epoch."""

    def weigh(self) -> tuple[int, bool]:
        """About how much memory it takes, and whether its key has no state, as far as known."""
        weight, empty = OBJECT_BYTES, not self.stored
        for data in self.stored.values():
            weight += 2 * len(data)  # the bytes, and the value that was decoded from them
        if len(self.stored) < len(self.object.__dict__):
            for value in self.object.__dict__.values():
                if type(value) is Map:
                    weight += value.weight()
                    empty = False
        return weight, empty


def load(live: Live, key: bytes, stored: Stored) -> KeyState:
    """Creates the object of a key from its stored cells."""
    shape = live.shape
    obj = live.object_class.__new__(live.object_class)
    # Assign a new dict: with the dict that Python creates for vars(), which shares its keys with
    # other objects of the class, `self.count += 1` takes 40 ns longer.
    attributes: dict[str, Any] = {}
    obj.__dict__ = attributes
    version = shape.options.version
    if not stored.version and version > 1:
        stored.version = stored.entries_version(key)
    if stored.version > version:
        raise IncompatibleState(
            f"computation {live.node.name!r}, key {decode_key(key)!r}: the state was written by "
            f"version {stored.version} of {shape.cls.__qualname__}, this is version {version}: "
            "run the newer code"
        )
    kept: dict[str, bytes] = {}
    expires: dict[str, int] = {}
    dropped: tuple[str, ...] = ()
    migrated: MigratedEntries = {}
    migrating = 0 < stored.version < version
    if migrating:
        names = stored.map_names(key)
        maps: dict[str, StoredEntries] = {
            name: dict(stored.map_of(key, name).scan(None, None)) for name in names
        }
        new = _migrated(live, key, stored, maps)
        dropped = _migrate(live, key, stored, new, attributes, kept, expires)
        migrated = _migrate_maps(live, key, stored, new, maps)
    else:
        for field in shape.plain:
            cell = stored.fields.get(field.name)
            if cell is None:
                attributes[field.name] = field.fresh()
                continue
            try:
                attributes[field.name] = field.codec.decode(cell[0])
            except msgspec.DecodeError as error:
                raise unfit(live, key, field, error) from None
            kept[field.name] = cell[0]
            if field.ttl_us is not None:
                expires[field.name] = cell[1]
    for field in shape.maps:
        if stored.fields.get(field.name) is not None and not migrating:
            raise unfit(live, key, field, TypeError("it is a field, not a Map"))
        source = stored.map_of(key, field.name)
        attributes[field.name] = Map(
            field.codec,
            EntriesOfMap(field.name, migrated) if migrating else source,
            field.ttl_us,
            watched=shape.options.ttl_us is not None,
            name=f"{shape.cls.__qualname__}.{field.name}",
            key_type=field.key_type,
        )
    state = KeyState(obj, kept, expires, dropped)
    if migrating:
        state.migrated = migrated
        for field in shape.plain:
            # A migration is not a write, so it renews no TTL. A field with a TTL and without an
            # end starts its TTL at the first hook.
            if field.ttl_us is None or field.name in expires:
                with suppress(TypeError):  # the error is raised later, when the value is stored
                    state.written[field.name] = field.codec.encode(attributes[field.name])
    return state


def _migrated(
    live: Live, key: bytes, stored: Stored, maps: dict[str, StoredEntries]
) -> dict[str, Any]:
    """Calls `migrate` of the class, which turns old fields and maps into new ones.

    It does not see expired values. A map that it does not return stays as it is.
    """
    old = {name: decode_value(data) for name, (data, _) in _living(stored).items()}
    shown = {name: shown_entries(entries, stored.clock) for name, entries in maps.items()}
    shown = {name: entries for name, entries in shown.items() if entries and name not in old}
    new = call_migrate(live, key, old | shown, stored.version) if old or shown else {}
    for field in live.shape.maps:
        if field.name not in new and field.name in shown:
            new[field.name] = shown[field.name]
    return new


def _migrate_maps(
    live: Live, key: bytes, stored: Stored, new: dict[str, Any], maps: dict[str, StoredEntries]
) -> MigratedEntries:
    """Takes maps from what `migrate` has returned; all entries are written again."""
    found: MigratedEntries = {
        (name, entry): (None, END) for name, entries in maps.items() for entry in entries
    }
    for field in live.shape.maps:
        before = maps.get(field.name, {})
        try:
            entries = taken_over(field, new.get(field.name, {}), before, stored.clock)
        except (TypeError, msgspec.ValidationError) as error:
            raise misfit(live, key, field, error, stored.version) from None
        found.update({(field.name, entry): cell for entry, cell in entries.items()})
    return found


def _living(stored: Stored) -> dict[str, tuple[bytes, int]]:
    cells = stored.fields.items()
    return {name: cell for name, cell in cells if cell is not None and cell[1] > stored.clock}


def _migrate(
    live: Live,
    key: bytes,
    stored: Stored,
    new: dict[str, Any],
    attributes: dict[str, Any],
    kept: dict[str, bytes],
    expires: dict[str, int],
) -> tuple[str, ...]:
    """Takes fields from what `migrate` has returned; all are written again.

    A field that keeps its name keeps the end of its TTL.
    """
    cells = {name: cell for name, cell in stored.fields.items() if cell is not None}
    living = _living(stored)
    for field in live.shape.plain:
        if field.name not in new:
            attributes[field.name] = field.fresh()
            continue
        try:
            attributes[field.name] = msgspec.convert(new[field.name], field.codec.type)
        except msgspec.ValidationError as error:
            raise misfit(live, key, field, error, stored.version) from None
    for field in live.shape.plain:
        if field.name in cells:
            kept[field.name] = b""  # differs from any encoding, so it is written again
        if field.name in living and field.ttl_us is not None:
            expires[field.name] = living[field.name][1]
    return tuple(name for name in cells if name not in kept)


def unfit(live: Live, key: bytes, field: Field, error: Exception) -> IncompatibleState:
    """The error for a stored field that is not of the declared type."""
    return IncompatibleState(
        f"computation {live.node.name!r}, key {decode_key(key)!r}: field {field.name!r} is stored "
        f"with another type than {field.type_text}: {error}. Raise the class's version= and "
        "give it migrate(), or keep the old type"
    )


def expire(live: Live, state: KeyState, clock: int) -> None:
    """Before a hook runs: hides the values that have expired at the hook's time."""
    attributes = vars(state.object)
    for field in live.shape.fields:
        if field.ttl_us is None:
            continue
        if field.is_map:
            attributes[field.name].clock = clock
        elif state.expires.get(field.name, END) <= clock:
            attributes[field.name] = field.fresh()
            state.expires.pop(field.name, None)
            state.written[field.name] = field.initial_data


def note_writes(live: Live, state: KeyState, clock: int) -> bool:
    """After a hook, if there are TTLs: renews the TTL of written values; whether it wrote any."""
    attributes = vars(state.object)
    watch_all = live.shape.options.ttl_us is not None
    wrote = False
    for field in live.shape.plain:
        if field.ttl_us is None and not watch_all:
            continue
        try:
            data = field.codec.encode(attributes[field.name])
        except TypeError as error:
            raise _unstorable(live, field, error) from None
        known = state.written.get(field.name)
        if known is None:
            known = state.stored.get(field.name, field.initial_data)
        if data != known:
            wrote = True
            state.written[field.name] = data
            if field.ttl_us is not None:
                state.expires[field.name] = min(clock + field.ttl_us, END)
    for field in live.shape.maps:
        wrote = _map_of(live, state, field).note() or wrote
    return wrote


def reset(live: Live, state: KeyState) -> None:
    """Does `forget`: sets every field to its initial value."""
    attributes = vars(state.object)
    for field in live.shape.plain:
        attributes[field.name] = field.fresh()
        state.written[field.name] = field.initial_data
    for field in live.shape.maps:
        entries = _map_of(live, state, field)
        entries.clear()
        entries.note()  # `forget` does not count as a write
    state.expires.clear()


def check(live: Live, state: KeyState) -> None:
    """Raises TypeError or AttributeError if the object does not match its class's declaration."""
    attributes = vars(state.object)
    _check_attributes(live, attributes)
    for field in live.shape.plain:
        try:
            field.codec.encode(attributes[field.name])
        except TypeError as error:
            raise _unstorable(live, field, error) from None
    for field in live.shape.maps:
        _map_of(live, state, field).check()


class KeySavepoint:
    """The state of a key before a hook. Creating it encodes all fields of the key."""

    def __init__(self, live: Live, state: KeyState) -> None:
        attributes = vars(state.object)
        self._live, self._state = live, state
        self._fields = [(f, f.codec.encode(attributes[f.name])) for f in live.shape.plain]
        self._maps = [(f.name, _map_of(live, state, f)) for f in live.shape.maps]
        for _, entries in self._maps:
            entries.remember()
        self._expires, self._written = dict(state.expires), dict(state.written)

    def restore(self) -> None:
        """Restores the key to the state of this savepoint."""
        attributes = vars(self._state.object)
        attributes.clear()
        for field, data in self._fields:
            attributes[field.name] = field.codec.decode(data)
        for name, entries in self._maps:
            entries.undo()
            attributes[name] = entries
        self._state.expires, self._state.written = self._expires, self._written


def trust(live: Live, state: KeyState) -> None:
    """Declares that no savepoint of this key will be restored."""
    for field in live.shape.maps:
        _map_of(live, state, field).trust()


def changes(live: Live, key: bytes, state: KeyState, time: int) -> Iterator[Cell]:
    """The cells to write for a key. Afterwards the state counts as stored."""
    shape = live.shape
    attributes = vars(state.object)
    version = shape.options.version
    where: int | None = None
    _check_attributes(live, attributes)
    for field in shape.plain:
        name = field.name
        try:
            data, attributes[name] = field.codec.encode_and_read(attributes[name])
        except TypeError as error:
            raise _unstorable(live, field, error) from None
        except KeyError:
            raise _strange(live, attributes) from None
        renewed = state.expires.get(name) != state.until.get(name)
        if not is_written(field, state.stored.get(name), data, renewed=renewed):
            continue
        where = hash_key(key) if where is None else where
        expires = state.expires.get(name, END) if field.ttl_us is not None else END
        cell = field_cell(where, key, field, data, time, expires, version)
        yield cell
        if cell.tombstone:
            state.stored.pop(name, None)
            state.expires.pop(name, None)
            state.until.pop(name, None)
        else:
            state.stored[name] = data
            if field.ttl_us is not None:
                state.until[name] = expires
    for name in state.dropped:
        yield dropped_field_cell(hash_key(key), key, name, time, version)
    state.dropped = ()
    moved, state.migrated = state.migrated, {}
    for field in shape.maps:
        changed = list(_map_of(live, state, field).take_changes())
        if moved:
            moved.update({(field.name, entry): (now, end) for entry, now, end in changed})
        elif changed:
            where = hash_key(key) if where is None else where
            yield from entry_cells(where, key, field.name, changed, time, version)
    for (name, entry), (now, end) in moved.items():
        yield from entry_cells(hash_key(key), key, name, [(entry, now, end)], time, version)
    state.written.clear()


def _check_attributes(live: Live, attributes: dict[str, Any]) -> None:
    if len(attributes) != len(live.shape.fields):
        raise _strange(live, attributes)


def _strange(live: Live, attributes: dict[str, Any]) -> AttributeError:
    """The error that names the attributes that a hook added or removed."""
    fields = live.shape.fields
    name = live.shape.cls.__qualname__
    extra = sorted(set(attributes) - {field.name for field in fields})
    if extra:
        return AttributeError(
            f"{name} assigned {', '.join(extra)} in a hook: declare it as a field "
            f"(`{extra[0]}: int = state(0)`), or set it in __init__ or setup()"
        )
    gone = ", ".join(field.name for field in fields if field.name not in attributes)
    return AttributeError(f"{name} deleted {gone} in a hook: assign the empty value instead")


def _map_of(live: Live, state: KeyState, field: Field) -> Map[Any, Any]:
    found = vars(state.object).get(field.name)
    if isinstance(found, Map):
        return found
    raise TypeError(
        f"{live.shape.cls.__qualname__}.{field.name} is a Map, but a hook assigned "
        f"{shown(found, 80)} to it: clear() it and update() it instead"
    )


def _unstorable(live: Live, field: Field, error: Exception) -> TypeError:
    return TypeError(f"{live.shape.cls.__qualname__}.{field.name} is {error}")
