"""Key objects: made from stored cells before the hooks, turned into changes after.

Invariant: only what changed is written; what equals its initial value is not
stored at all, so an emptied key vanishes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.errors import IncompatibleState
from headrace.model.computation import Computation
from headrace.model.keys import decode_key, hash_key
from headrace.model.state import Field, Map
from headrace.model.time import END
from headrace.state.segment import ENTRY, FIELD, Cell
from headrace.state.view import MapCells, Stored
from headrace.worker.runtime import Live


class KeyState:
    """One key's object, with the bytes it was made from."""

    __slots__ = ("dropped", "expires", "object", "stored", "written")

    def __init__(
        self,
        obj: Computation,
        stored: dict[str, bytes],
        expires: dict[str, int],
        dropped: tuple[str, ...],
    ) -> None:
        self.object = obj
        self.dropped = dropped
        """Stored fields that a migration left behind."""
        self.stored = stored
        self.expires = expires
        """Of fields with a TTL: when the stored value ends."""
        self.written: dict[str, tuple[bytes, int]] = {}
        """Of fields with a TTL: bytes at the last write in this epoch, and its time."""


def load(live: Live, key: bytes, stored: Stored) -> KeyState:
    """The object of a key."""
    shape = live.shape
    obj = live.object_class.__new__(live.object_class)
    attributes = vars(obj)
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
    if 0 < stored.version < version:
        dropped = _migrate(live, key, stored, attributes, kept)
    else:
        for field in shape.plain:
            cell = stored.fields.get(field.name)
            if cell is None:
                attributes[field.name] = field.fresh()
                continue
            try:
                attributes[field.name] = field.codec.decode(cell[0])
            except msgspec.DecodeError as error:
                raise _unfit(live, key, field, error) from None
            kept[field.name] = cell[0]
            if field.ttl_us is not None:
                expires[field.name] = cell[1]
    for field in shape.maps:
        attributes[field.name] = Map(field.codec, MapCells(stored, key, field.name), field.ttl_us)
    return KeyState(obj, kept, expires, dropped)


def _migrate(
    live: Live, key: bytes, stored: Stored, attributes: dict[str, Any], kept: dict[str, bytes]
) -> tuple[str, ...]:
    """Lets the class turn old fields into new ones; everything is then written anew."""
    old = {n: msgspec.msgpack.decode(c[0]) for n, c in stored.fields.items() if c is not None}
    new = live.shape.cls.migrate(dict(old), stored.version)
    for field in live.shape.plain:
        if field.name not in new:
            attributes[field.name] = field.fresh()
            continue
        try:
            attributes[field.name] = msgspec.convert(new[field.name], field.codec.type)
        except msgspec.ValidationError as error:
            raise _unfit(live, key, field, error) from None
    for field in live.shape.plain:
        if field.name in old:
            kept[field.name] = b""  # differs from any encoding, so it is written again
    return tuple(name for name in old if name not in kept)


def _unfit(live: Live, key: bytes, field: Field, error: Exception) -> IncompatibleState:
    return IncompatibleState(
        f"computation {live.node.name!r}, key {decode_key(key)!r}: field {field.name!r} is stored "
        f"with another type than {field.type_text}: {error}. Raise the class's version= and "
        "give it migrate(), or keep the old type"
    )


def expire(live: Live, state: KeyState, clock: int) -> None:
    """Hides what has expired at a hook's time, before the hook runs."""
    attributes = vars(state.object)
    for field in live.shape.fields:
        if field.ttl_us is None:
            continue
        if field.is_map:
            attributes[field.name].clock = clock
        elif state.expires.get(field.name, END) <= clock:
            attributes[field.name] = field.fresh()
            state.expires.pop(field.name, None)


def note_writes(live: Live, state: KeyState, clock: int) -> None:
    """Remembers when fields with a TTL were last written, after a hook."""
    attributes = vars(state.object)
    for field in live.shape.plain:
        if field.ttl_us is None:
            continue
        data = field.codec.encode(attributes[field.name])
        before = state.written.get(field.name)
        known = before[0] if before else state.stored.get(field.name, field.initial_data)
        if data != known:
            state.written[field.name] = (data, clock)
            state.expires[field.name] = clock + field.ttl_us


def reset(live: Live, state: KeyState) -> None:
    """`forget`: every field is as it was before the first record."""
    attributes = vars(state.object)
    for field in live.shape.plain:
        attributes[field.name] = field.fresh()
    for field in live.shape.maps:
        attributes[field.name].clear()
    state.expires.clear()


def changes(live: Live, key: bytes, state: KeyState, time: int) -> Iterator[Cell]:
    """What is to be written for a key; the state then counts as stored."""
    shape = live.shape
    attributes = vars(state.object)
    version = shape.options.version
    where: int | None = None
    if len(attributes) != len(shape.fields):
        extra = ", ".join(sorted(set(attributes) - {f.name for f in shape.fields}))
        raise AttributeError(
            f"{shape.cls.__qualname__} assigned {extra} in a hook: declare it as a field "
            f"(`{extra}: int = state(0)`), or set it in __init__ or setup()"
        )
    for field in shape.plain:
        name = field.name
        try:
            data = field.codec.encode(attributes[name])
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"{shape.cls.__qualname__}.{name} is {error}") from None
        old = state.stored.get(name)
        if data == old or (old is None and data == field.initial_data):
            continue
        where = hash_key(key) if where is None else where
        gone = data == field.initial_data
        expires = state.expires.get(name, END) if field.ttl_us is not None else END
        yield Cell(
            where, key, FIELD, name, b"", b"" if gone else data, time, expires, version, gone
        )
        if gone:
            state.stored.pop(name, None)
        else:
            state.stored[name] = data
    for name in state.dropped:
        yield Cell(hash_key(key), key, FIELD, name, b"", b"", time, END, version, True)
    state.dropped = ()
    for field in shape.maps:
        for entry, value, expires in attributes[field.name].settle():
            where = hash_key(key) if where is None else where
            yield Cell(
                where,
                key,
                ENTRY,
                field.name,
                entry,
                value or b"",
                time,
                expires,
                version,
                value is None,
            )
    state.written.clear()
