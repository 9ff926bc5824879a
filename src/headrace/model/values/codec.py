"""Encodes values as MessagePack with msgspec, and decodes them by their declared type.

Invariant: a stored value equals the value that is read, `decode(encode(x)) == x`. Types for which
this cannot be guaranteed (a bare `list`, `Any` that holds tuples) are checked on every write. Types
that cannot be encoded at all are refused when the pipeline is built. `encode_and_read` returns the
bytes, and the value as decoding would give it, so a cached object and a decoded one cannot differ
(5 in a float field).

Values of streams keep integers of any size; beyond 64 bits they are extension types. A value that a
function produces becomes what MessagePack makes of it (`Decimal` becomes text). Values of Arrow
columns that the engine packs are packed exactly (`packed_exactly`).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from headrace.errors import InvalidPipeline, InvalidRecord
from headrace.model.values.extensions import exact, from_extension, wide
from headrace.model.values.shown import is_nested, shown

NESTED_MAX = 40
"""How deep lists and dicts may be nested in a record that is read or produced.

This is below the limits of all libraries that handle a record: Parquet fails at 48 lists, DuckDB at
62, Arrow's files at 63, pickle and `copy` at about 300. Steps may wrap a value a few times more."""
_TIGHT_BYTES = 512

CELL_NESTED_MAX = 200
"""The limit for everything that is stored or sent. Beyond it, some readers would fail."""

_CONTAINERS = bytes(int(0x80 <= b < 0xA0 or 0xDC <= b < 0xE0) for b in range(256))
"""1 for bytes that may begin a list or a dict in MessagePack."""


def plain_number(value: Any) -> Any:
    """A numpy scalar as a Python number: msgspec's `enc_hook` for all other types."""
    if isinstance(value, _NUMBERS) and value.itemsize <= 8:
        return value.item()
    kind = type(value)
    advice = ": write .tolist()" if isinstance(value, np.ndarray) else ""
    raise TypeError(
        f"Encoding objects of type {kind.__module__}.{kind.__qualname__} is unsupported{advice}"
    )


_NUMBERS = (np.integer, np.floating, np.bool_)
_encoder = msgspec.msgpack.Encoder(enc_hook=plain_number)
_plain_decoder = msgspec.msgpack.Decoder(ext_hook=from_extension)

encode_value = _encoder.encode
decode_value = _plain_decoder.decode


def packed(value: Any, *, what: str = "the value", depth: int = CELL_NESTED_MAX) -> bytes:
    """A record's value as MessagePack. The error names what cannot be encoded."""
    try:
        data = _encoder.encode(value)
    except OverflowError:
        data = _extended(value, what, depth, wide)
    except RecursionError:
        raise _too_deep(what, value, depth) from None
    except (TypeError, ValueError) as error:
        raise _unencodable(value, what, error) from None
    return _shallow(data, value, what, depth)


def packed_exactly(value: Any, *, what: str = "the value", depth: int = CELL_NESTED_MAX) -> bytes:
    """A value of Arrow columns as MessagePack: its decimals and times decode as they were."""
    if type(value) is dict and _FLAT.issuperset(map(type, value.values())):
        return packed(value, what=what, depth=depth)
    return _shallow(_extended(value, what, depth, exact), value, what, depth)


def _extended(value: Any, what: str, depth: int, extend: Callable[[Any], Any]) -> bytes:
    try:
        return _encoder.encode(extend(value))
    except RecursionError:
        raise _too_deep(what, value, depth) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise _unencodable(value, what, error) from None


def _shallow(data: bytes, value: Any, what: str, depth: int) -> bytes:
    """The bytes of a value; an error if it is nested too deeply."""
    if len(data) > depth and _is_deeper(data, value, depth):
        raise _too_deep(what, value, depth)
    return data


def _unencodable(value: Any, what: str, error: Exception) -> InvalidRecord:
    return InvalidRecord(f"{what} cannot be encoded: {error} ({shown(value, 120)}){_advice(value)}")


def _is_deeper(data: bytes, value: Any, depth: int) -> bool:
    """Whether a value, whose bytes are `data`, is nested more than `depth` deep."""
    if len(data) >= _LONG:  # most values are flat, even if their text is long
        for inner in value.values() if type(value) is dict else (value,):
            if type(inner) not in _FLAT:
                break
        else:
            return False
    if data.translate(_CONTAINERS).count(1) <= depth:
        return False
    try:
        # Check the decoded form, because objects of classes may have anything inside.
        return is_nested(_plain_decoder.decode(data), depth)
    except (RecursionError, msgspec.DecodeError):
        return True


_LONG = 512
_FLAT = frozenset((str, bytes, int, float, bool, type(None)))


def _too_deep(what: str, value: Any, depth: int) -> InvalidRecord:
    return InvalidRecord(
        f"{what} is nested more than {depth} deep, which is too deep for a record: "
        f"{shown(value, 120)}. Flatten it, or keep the deep part as text (JSON)"
    )


def _advice(value: Any) -> str:
    if inspect.isgenerator(value):
        return ". It is a generator: use flat_map instead of map, or produce its values one by one"
    if inspect.isawaitable(value):
        return ". It comes from an async function, which is never awaited"
    return ""


class Codec:
    """Encodes and decodes one declared state type."""

    __slots__ = ("_decoder", "_encoder", "_floats", "_loose", "_sets", "_unbounded", "type")

    def __init__(self, declared: Any, *, where: str) -> None:
        self.type = declared
        try:
            self._decoder = msgspec.msgpack.Decoder(declared, ext_hook=from_extension)
            parts = list(parts_of(declared))
        except TypeError as error:
            raise _refused(where, declared, str(error)) from None
        for part in parts:
            if isinstance(part, msgspec.inspect.CustomType) and part.cls is not object:
                raise _refused(where, declared, f"{part.cls.__qualname__} is unknown")
        kinds = {type(part) for part in parts}
        self._sets = bool(kinds & {msgspec.inspect.SetType, msgspec.inspect.FrozenSetType})
        self._encoder = msgspec.msgpack.Encoder(
            order="deterministic" if self._sets else None, enc_hook=plain_number
        )
        # These types allow values that encoding changes: tuples become lists, rich types text.
        self._loose = bool(kinds & {msgspec.inspect.AnyType, msgspec.inspect.CustomType})
        # For other types, the type itself limits how deep values can be nested.
        self._unbounded = self._loose or _is_recursive(parts)
        self._floats = msgspec.inspect.FloatType in kinds

    def __reduce__(self) -> tuple[Any, ...]:
        return _codec, (self.type,)  # msgspec's coders cannot be pickled, but their type can

    def encode(self, value: Any) -> bytes:
        """The bytes of `value`; raises TypeError if it is not of the declared type."""
        return self.encode_and_read(value)[0]

    def encode_and_read(self, value: Any) -> tuple[bytes, Any]:
        """The bytes of `value`, and `value` as decoding the bytes would give it."""
        kind = type(value)
        try:
            data = self._encoded(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise TypeError(
                f"declared as {_show(self.type)}, but {shown(value, 80)} cannot be stored: {error}"
            ) from None
        if (
            self._unbounded
            and len(data) > CELL_NESTED_MAX
            and _is_deeper(data, value, CELL_NESTED_MAX)
        ):
            raise TypeError(
                f"declared as {_show(self.type)}, but {shown(value, 80)} is nested more than "
                f"{CELL_NESTED_MAX} deep and cannot be stored"
            )
        if kind is self.type and kind in _SCALARS:
            return data, value
        if self._sets and (self._floats or self._loose) and _has_set_of_nan(value):
            raise TypeError(
                f"declared as {_show(self.type)}, but {shown(value, 80)} cannot be stored: a set "
                "with NaN has no order, so its bytes would differ from try to try"
            )
        try:
            back = self._decoder.decode(data)
        except msgspec.ValidationError as error:
            found = str(error).replace("`ext`", "an integer of more than 64 bits")
            raise TypeError(f"declared as {_show(self.type)}, but {found}") from None
        if self._loose and back != value and not _alike(back, value):
            raise TypeError(
                f"declared as {_show(self.type)}, and {shown(value, 80)} would come back as "
                f"{shown(back, 80)}: declare the exact type"
            )
        return (self._encoded(back) if self._floats else data), back

    def _encoded(self, value: Any) -> bytes:
        try:
            data = self._encoder.encode(value)
        except OverflowError:
            if not self._loose:
                raise  # `int` means 64 bits, as in tables of state
            data = self._encoder.encode(wide(value))
        # msgspec leaves half as much again behind large results, and some are kept for long.
        return data if len(data) < _TIGHT_BYTES else bytes(memoryview(data))

    def decode(self, data: bytes) -> Any:
        """The value of these bytes."""
        return self._decoder.decode(data)


def _codec(declared: Any) -> Codec:
    return Codec(declared, where="state")


_SCALARS = {int, str, bytes, bool, float}


def _has_set_of_nan(value: Any) -> bool:
    if isinstance(value, set | frozenset):
        return any(inner != inner or _has_set_of_nan(inner) for inner in value)
    if isinstance(value, dict):
        return any(map(_has_set_of_nan, [*value, *value.values()]))
    if isinstance(value, list | tuple):
        return any(map(_has_set_of_nan, value))
    if isinstance(value, msgspec.Struct):
        return _has_set_of_nan(msgspec.structs.astuple(value))
    if dataclasses.is_dataclass(value):
        return _has_set_of_nan(list(vars(value).values()))
    return False


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are equal, where NaN counts as equal to NaN.

    Comparing bytes is not enough: a tuple and the list that it decodes to have the same bytes.
    """
    if type(one) is not type(other):
        return bool(one == other)
    if isinstance(one, float):
        return bool(one == other or (one != one and other != other))
    if isinstance(one, dict):
        one, other = [*one, *one.values()], [*other, *other.values()]
    elif isinstance(one, set | frozenset):
        return _encoder.encode(sorted(map(_encoder.encode, one))) == _encoder.encode(
            sorted(map(_encoder.encode, other))
        )
    elif isinstance(one, msgspec.Struct):
        one, other = msgspec.structs.astuple(one), msgspec.structs.astuple(other)
    elif dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        one, other = ([getattr(each, name, None) for name in names] for each in (one, other))
    elif not isinstance(one, list | tuple):
        return bool(one == other)
    return len(one) == len(other) and all(map(_alike, one, other))


def _show(declared: Any) -> str:
    return getattr(declared, "__name__", None) or str(declared)


def _refused(where: str, declared: Any, reason: str) -> InvalidPipeline:
    return InvalidPipeline(
        f"{where}: state of type {declared!r} cannot be encoded: {reason}. "
        "Use str, int, float, bool, bytes, list[T], dict[K, V], tuple, set, "
        "a dataclass or a msgspec.Struct."
    )


def parts_of(declared: Any) -> Iterator[msgspec.inspect.Type]:
    """Every type inside a declared one, fields of its classes included."""
    seen: set[int] = set()
    todo: list[Any] = [msgspec.inspect.type_info(declared)]
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        todo += types_inside(part)


def types_inside(part: Any) -> list[Any]:
    """The types directly inside another type."""
    named = (getattr(part, n, None) for n in ("type", "item_type", "key_type", "value_type"))
    found: list[Any] = [inner for inner in named if isinstance(inner, msgspec.inspect.Type)]
    for name in ("item_types", "types"):
        found.extend(getattr(part, name, ()))
    found.extend(field.type for field in getattr(part, "fields", ()))
    return found


def _is_recursive(parts: list[msgspec.inspect.Type]) -> bool:
    """Whether one of these types contains itself, so that its values may have any depth."""
    for part in parts:
        seen: set[int] = set()
        todo = types_inside(part)
        while todo:
            inner = todo.pop()
            if inner is part:
                return True
            if id(inner) not in seen:
                seen.add(id(inner))
                todo += types_inside(inner)
    return False
