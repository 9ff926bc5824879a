"""State fields, as users declare them.

    class Orders(Computation):
        status: str = state("new")            # a field: read and written whole
        recent: Map[str, float] = state()     # a map: stored entry by entry

`state()` only marks the declaration; `declared_fields` turns a class's marks
and annotations into `Field`s.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from headrace.errors import InvalidPipeline
from headrace.model.codec import Codec
from headrace.model.keys import decode_key, encode_part
from headrace.model.time import Duration, duration

K = TypeVar("K")
V = TypeVar("V")

_UNSET: Any = object()


class _Mark:
    """What `state()` leaves in the class body until the class is complete."""

    def __init__(self, default: Any, factory: Callable[[], Any] | None, ttl: Duration | None):
        self.default, self.factory, self.ttl = default, factory, ttl


def state(
    default: Any = _UNSET, *, factory: Callable[[], Any] | None = None, ttl: Duration | None = None
) -> Any:
    """Declares a state field: `state(default)`, `state(factory=f)` or `state()`.

    Without either, the initial value is the empty value of the annotated type.
    `ttl` forgets what was not written for that long.
    """
    if default is not _UNSET and factory is not None:
        raise InvalidPipeline("state() takes a default or a factory, not both")
    return _Mark(default, factory, ttl)


class MapSource(Protocol):
    """Where a `Map` finds the entries that it has not seen yet."""

    def get(self, entry: bytes) -> bytes | None: ...
    def scan(self, low: bytes | None, high: bytes | None) -> Iterator[tuple[bytes, bytes]]: ...


class Map(Generic[K, V]):
    """State that is stored, changed and expired entry by entry, in key order.

    It reads like a dict. Changing a value in place is seen. Iteration is in the
    order of the keys' bytes: numbers by size, text by code point.
    """

    __slots__ = ("_codec", "_seen", "_source")

    def __init__(self, codec: Codec, source: MapSource) -> None:
        self._codec = codec
        self._source = source
        # entry bytes -> [present, value, bytes as stored or None]
        self._seen: dict[bytes, list[Any]] = {}

    def _look(self, key: K) -> list[Any]:
        entry = encode_part(key)
        cell = self._seen.get(entry)
        if cell is None:
            stored = self._source.get(entry)
            present = stored is not None
            cell = [present, self._codec.decode(stored) if present else None, stored]  # type: ignore[arg-type]
            self._seen[entry] = cell
        return cell

    def __getitem__(self, key: K) -> V:
        cell = self._look(key)
        if not cell[0]:
            raise KeyError(key)
        return cell[1]  # type: ignore[no-any-return]

    def __setitem__(self, key: K, value: V) -> None:
        cell = self._look(key)
        cell[0], cell[1] = True, value

    def __delitem__(self, key: K) -> None:
        cell = self._look(key)
        if not cell[0]:
            raise KeyError(key)
        cell[0], cell[1] = False, None

    def __contains__(self, key: object) -> bool:
        return bool(self._look(key)[0])  # type: ignore[arg-type]

    def get(self, key: K, default: Any = None) -> Any:
        """The value at `key`, or `default`."""
        cell = self._look(key)
        return cell[1] if cell[0] else default

    def pop(self, key: K, default: Any = _UNSET) -> Any:
        """Removes `key` and gives its value."""
        cell = self._look(key)
        if not cell[0]:
            if default is _UNSET:
                raise KeyError(key)
            return default
        value = cell[1]
        cell[0], cell[1] = False, None
        return value

    def setdefault(self, key: K, default: V) -> V:
        """The value at `key`, which becomes `default` if there is none."""
        cell = self._look(key)
        if not cell[0]:
            cell[0], cell[1] = True, default
        return cell[1]  # type: ignore[no-any-return]

    def range(self, low: K | None = None, high: K | None = None) -> Iterator[tuple[K, V]]:
        """Entries with `low <= key < high`, in key order."""
        low_bytes = None if low is None else encode_part(low)
        high_bytes = None if high is None else encode_part(high)
        entries = dict(self._source.scan(low_bytes, high_bytes))
        for entry, cell in self._seen.items():
            inside = (low_bytes is None or low_bytes <= entry) and (
                high_bytes is None or entry < high_bytes
            )
            if inside and cell[0]:
                entries[entry] = b""
            else:
                entries.pop(entry, None)
        for entry in sorted(entries):
            seen = self._seen.get(entry)
            if seen is None:
                data = entries[entry]
                seen = self._seen[entry] = [True, self._codec.decode(data), data]
            if seen[0]:
                yield decode_key(entry), seen[1]

    def items(self) -> Iterator[tuple[K, V]]:
        """All entries, in key order."""
        return self.range()

    def keys(self) -> Iterator[K]:
        """All keys, in order."""
        return (key for key, _ in self.range())

    def values(self) -> Iterator[V]:
        """All values, in the order of their keys."""
        return (value for _, value in self.range())

    __iter__ = keys

    def __len__(self) -> int:
        return sum(1 for _ in self.range())

    def __bool__(self) -> bool:
        return next(self.range(), None) is not None

    def clear(self) -> None:
        """Removes all entries."""
        for key in list(self.keys()):
            del self[key]

    def __repr__(self) -> str:
        return f"Map({dict(self.range())!r})"

    def changes(self) -> Iterator[tuple[bytes, bytes | None, bool]]:
        """(entry, new bytes or None for removed, whether it was stored) of each change."""
        for entry, (present, value, stored) in self._seen.items():
            data = self._codec.encode(value) if present else None
            if data != stored:
                yield entry, data, stored is not None


class Field:
    """One declared piece of state."""

    __slots__ = ("codec", "initial", "initial_data", "is_map", "name", "shared", "ttl_us", "type_text")

    def __init__(self, name: str, declared: Any, mark: _Mark, owner: str) -> None:
        where = f"{owner}.{name}"
        self.name = name
        self.is_map = typing.get_origin(declared) is Map or declared is Map
        self.ttl_us = None if mark.ttl is None else duration(mark.ttl, what=f"{where}: ttl")
        self.type_text = str(declared)
        if self.is_map:
            _check_map_key(declared, where)
            arguments = typing.get_args(declared)
            self.codec = Codec(arguments[1] if len(arguments) == 2 else Any, where=where)
            self.initial: Callable[[], Any] = dict
            self.initial_data = b""
            self.shared = _UNSET
            return
        self.codec = Codec(declared, where=where)
        self.initial = _initial(declared, mark, where)
        try:
            value = self.initial()
            self.initial_data = self.codec.encode(value)
        except (TypeError, ValueError) as error:
            raise InvalidPipeline(
                f"{where}: the initial value does not fit the declared type: {error}"
            ) from None
        # Immutable initial values are shared; the others are decoded anew for each key.
        immutable = isinstance(value, str | int | float | bool | bytes | type(None))
        self.shared = value if immutable else _UNSET

    def fresh(self) -> Any:
        """An initial value that belongs to one key alone."""
        return self.shared if self.shared is not _UNSET else self.codec.decode(self.initial_data)


def declared_fields(cls: type) -> tuple[Field, ...]:
    """The fields of a computation class, in the order of their declaration."""
    marks: dict[str, _Mark] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, _Mark):
                marks[name] = value
    if not marks:
        return ()
    module = sys.modules.get(cls.__module__)
    names = {**vars(typing), **(vars(module) if module else {}), "Map": Map}
    try:
        hints = typing.get_type_hints(cls, globalns=names, localns=dict(vars(cls)))
    except Exception as error:
        raise InvalidPipeline(
            f"{cls.__qualname__}: a state annotation cannot be resolved: {error}"
        ) from None
    for name in marks:
        if name not in hints:
            raise InvalidPipeline(
                f"{cls.__qualname__}.{name} has no annotation; write `{name}: int = state(0)`"
            )
    return tuple(Field(name, hints[name], mark, cls.__qualname__) for name, mark in marks.items())


def _initial(declared: Any, mark: _Mark, where: str) -> Callable[[], Any]:
    if mark.factory is not None:
        return mark.factory
    if mark.default is not _UNSET:
        return lambda: mark.default
    origin = typing.get_origin(declared) or declared
    if origin is typing.Union or (type(None) in typing.get_args(declared)):
        return lambda: None
    if origin in (Any, type(None)):
        return lambda: None
    if inspect.isclass(origin):
        try:
            origin()
        except TypeError:
            pass
        else:
            return origin
    raise InvalidPipeline(
        f"{where}: {declared!r} has no empty value; give one with state(default) or state(factory=f)"
    )


def _check_map_key(declared: Any, where: str) -> None:
    arguments = typing.get_args(declared)
    if arguments and (typing.get_origin(arguments[0]) or arguments[0]) not in (str, int, bytes, tuple):
        raise InvalidPipeline(
            f"{where}: a Map's key is str, int, bytes or a tuple of those, not {arguments[0]!r}"
        )
