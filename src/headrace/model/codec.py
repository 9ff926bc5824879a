"""How values become bytes: MessagePack by msgspec, typed on the way back.

Invariant: what is stored equals what is read, `decode(encode(x)) == x`. Types
for which that cannot be promised (a bare `list`, `Any` holding tuples) are
checked on every write; types that cannot be encoded at all are refused when the
pipeline is built. `settle` gives bytes and value as a reader of the bytes would
have them, so a warm object and a decoded one cannot differ (5 in a float field).

Values of streams come back as they were: integers of any size, as extension types beyond
64 bits. What a function produces becomes what MessagePack makes of it (`Decimal` text);
what Arrow columns hold, and the engine carries, is packed `exactly`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from headrace.errors import InvalidPipeline, InvalidRecord
from headrace.model.extensions import exact, from_extension, wide


def plain_number(value: Any) -> Any:
    """A scalar of numpy as the Python number that it is; msgspec asks about nothing else."""
    if isinstance(value, _NUMBERS) and value.itemsize <= 8:
        return value.item()
    kind = type(value)
    advice = ": write .tolist()" if isinstance(value, np.ndarray) else ""
    raise TypeError(
        f"Encoding objects of type {kind.__module__}.{kind.__qualname__} is unsupported{advice}"
    )


_SIMPLE = frozenset((str, int, float, bool, bytes, type(None)))
_NUMBERS = (np.integer, np.floating, np.bool_)
_encoder = msgspec.msgpack.Encoder(enc_hook=plain_number)
_plain_decoder = msgspec.msgpack.Decoder(ext_hook=from_extension)

encode_value = _encoder.encode
decode_value = _plain_decoder.decode


def packed(value: Any, *, what: str = "the value") -> bytes:
    """A record's value as MessagePack, or an error that says what it holds."""
    try:
        return _encoder.encode(value)
    except OverflowError:
        return _packed(value, what, wide)
    except (TypeError, ValueError, UnicodeError) as error:
        raise _unencodable(value, what, error) from None


def packed_exactly(value: Any, *, what: str = "the value") -> bytes:
    """The same for what Arrow columns may hold: decimals and times come back as they are."""
    if type(value) is dict and _SIMPLE.issuperset(map(type, value.values())):
        return packed(value, what=what)
    return _packed(value, what, exact)


def _packed(value: Any, what: str, extended: Callable[[Any], Any]) -> bytes:
    try:
        return _encoder.encode(extended(value))
    except (TypeError, ValueError, OverflowError, UnicodeError) as error:
        raise _unencodable(value, what, error) from None


def _unencodable(value: Any, what: str, error: Exception) -> InvalidRecord:
    return InvalidRecord(f"{what} cannot be encoded: {error} ({value!r:.120}){_advice(value)}")


def _advice(value: Any) -> str:
    if inspect.isgenerator(value):
        return ". It is a generator: use flat_map instead of map, or produce its values one by one"
    if inspect.isawaitable(value):
        return ". It comes of an async function, which nobody awaits"
    return ""


class Codec:
    """Encodes and decodes one declared state type."""

    __slots__ = ("_decoder", "_encoder", "_floats", "_loose", "type")

    def __init__(self, declared: Any, *, where: str) -> None:
        self.type = declared
        try:
            self._decoder = msgspec.msgpack.Decoder(declared, ext_hook=from_extension)
            parts = list(_parts(declared))
        except TypeError as error:
            raise _refused(where, declared, str(error)) from None
        for part in parts:
            if isinstance(part, msgspec.inspect.CustomType) and part.cls is not object:
                raise _refused(where, declared, f"{part.cls.__qualname__} is unknown")
        kinds = {type(part) for part in parts}
        has_set = bool(kinds & {msgspec.inspect.SetType, msgspec.inspect.FrozenSetType})
        self._encoder = msgspec.msgpack.Encoder(
            order="deterministic" if has_set else None, enc_hook=plain_number
        )
        # Room for values that change in encoding: tuples become lists, rich types text.
        self._loose = bool(kinds & {msgspec.inspect.AnyType, msgspec.inspect.CustomType})
        self._floats = msgspec.inspect.FloatType in kinds

    def __reduce__(self) -> tuple[Any, ...]:
        return _codec, (self.type,)  # msgspec's coders do not travel; their type does

    def encode(self, value: Any) -> bytes:
        """The bytes of `value`; raises TypeError where it is not of the declared type."""
        return self.settle(value)[0]

    def settle(self, value: Any) -> tuple[bytes, Any]:
        """The bytes of `value`, and `value` as whoever decodes them will see it."""
        kind = type(value)
        try:
            data = self._encoded(value)
        except (TypeError, ValueError, OverflowError, UnicodeError, RecursionError) as error:
            raise TypeError(
                f"declared as {_show(self.type)}, but {value!r:.80} cannot be stored: {error}"
            ) from None
        if kind is self.type and kind in _SCALARS:
            return data, value
        try:
            back = self._decoder.decode(data)
        except msgspec.ValidationError as error:
            found = str(error).replace("`ext`", "an integer of more than 64 bits")
            raise TypeError(f"declared as {_show(self.type)}, but {found}") from None
        if self._loose and back != value and not _alike(back, value):
            raise TypeError(
                f"declared as {_show(self.type)}, and {value!r:.80} would come back as "
                f"{back!r:.80}: declare the exact type"
            )
        return (self._encoded(back) if self._floats else data), back

    def _encoded(self, value: Any) -> bytes:
        try:
            return self._encoder.encode(value)
        except OverflowError:
            if not self._loose:
                raise  # `int` is one of 64 bits, as tables of state have it
            return self._encoder.encode(wide(value))

    def decode(self, data: bytes) -> Any:
        """The value that these bytes stand for."""
        return self._decoder.decode(data)


def _codec(declared: Any) -> Codec:
    return Codec(declared, where="state")


_SCALARS = {int, str, bytes, bool, float}


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are equal but for NaN, which equals nothing and comes back all the same.

    Their bytes would not tell: a tuple and the list that it comes back as have the same.
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


def _parts(declared: Any) -> Iterator[msgspec.inspect.Type]:
    """Every type inside a declared one, fields of its classes included."""
    seen: set[int] = set()
    todo: list[Any] = [msgspec.inspect.type_info(declared)]
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        for name in ("type", "item_type", "key_type", "value_type"):
            if isinstance(inner := getattr(part, name, None), msgspec.inspect.Type):
                todo.append(inner)
        for name in ("item_types", "types"):
            todo.extend(getattr(part, name, ()))
        todo.extend(field.type for field in getattr(part, "fields", ()))
