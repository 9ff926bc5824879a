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
from headrace.model.state import Field
from headrace.model.values.codec import decode_value
from headrace.model.values.keys import decode_key, hash_key
from headrace.model.values.shown import shown
from headrace.model.values.time import END
from headrace.state.backend import Stored
from headrace.state.segment import Cell
from headrace.worker.cells import dropped_field_cell, entry_cells, field_cell, is_written
from headrace.worker.runtime import Live


class KeyState:
    """The object of one key, with the stored bytes from which it was created."""

    __slots__ = ("dropped", "expires", "object", "stored", "until", "written")

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
        self.stored = stored
        self.expires = expires
        """For each field with a TTL: when its value expires."""
        self.until = dict(expires)
        """The stored version of `expires`."""
        self.written: dict[str, bytes] = {}
        """For each field whose writes are observed: its bytes at the last write in this epoch."""


def load(live: Live, key: bytes, stored: Stored) -> KeyState:
    """Creates the object of a key from its stored cells."""
    shape = live.shape
    obj = live.object_class.__new__(live.object_class)
    # Assign a new dict: with the dict that Python creates for vars(), which shares its keys with
    # other objects of the class, `self.count += 1` takes 40 ns longer.
    attributes: dict[str, Any] = {}
    obj.__dict__ = attributes
    version = shape.options.version
    if stored.version > version:
        raise IncompatibleState(
            f"computation {live.node.name!r}, key {decode_key(key)!r}: the state was written by "
            f"version {stored.version} of {shape.cls.__qualname__}, this is version {version}: "
            "run the newer code"
        )
    kept: dict[str, bytes] = {}
    expires: dict[str, int] = {}
    dropped: tuple[str, ...] = ()
    migrating = 0 < stored.version < version
    if migrating:
        dropped = _migrate(live, key, stored, attributes, kept, expires)
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
        if stored.fields.get(field.name) is not None:
            raise unfit(live, key, field, TypeError("it is a field, not a Map"))
        attributes[field.name] = Map(
            field.codec,
            stored.map_of(key, field.name),
            field.ttl_us,
            watched=shape.options.ttl_us is not None,
            name=f"{shape.cls.__qualname__}.{field.name}",
            key_type=field.key_type,
        )
    state = KeyState(obj, kept, expires, dropped)
    if migrating:
        for field in shape.plain:
            # A migration is not a write, so it renews no TTL. A field with a TTL and without an
            # end starts its TTL at the first hook.
            if field.ttl_us is None or field.name in expires:
                with suppress(TypeError):  # the error is raised later, when the value is stored
                    state.written[field.name] = field.codec.encode(attributes[field.name])
    return state


def _migrate(
    live: Live,
    key: bytes,
    stored: Stored,
    attributes: dict[str, Any],
    kept: dict[str, bytes],
    expires: dict[str, int],
) -> tuple[str, ...]:
    """Calls `migrate` of the class, which turns old fields into new ones; all are written again.

    `migrate` does not see expired values. A field that keeps its name keeps the end of its TTL.
    """
    cells = {name: cell for name, cell in stored.fields.items() if cell is not None}
    living = {name: cell for name, cell in cells.items() if cell[1] > stored.clock}
    old = {name: decode_value(data) for name, (data, _) in living.items()}
    new = live.shape.cls.migrate(old, stored.version) if old else {}
    for field in live.shape.plain:
        if field.name not in new:
            attributes[field.name] = field.fresh()
            continue
        try:
            attributes[field.name] = msgspec.convert(new[field.name], field.codec.type)
        except msgspec.ValidationError as error:
            raise unfit(live, key, field, error) from None
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
    for field in shape.maps:
        changed = list(_map_of(live, state, field).take_changes())
        if changed:
            where = hash_key(key) if where is None else where
            yield from entry_cells(where, key, field.name, changed, time, version)
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
