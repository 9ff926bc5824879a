"""How values become bytes: MessagePack by msgspec, typed on the way back.

Invariant: what is stored equals what is read, `decode(encode(x)) == x`. Types
for which that cannot be promised (a bare `list`, `Any` holding tuples) are
checked on every write; types that cannot be encoded at all are refused when the
pipeline is built.
"""

from __future__ import annotations

import typing
from typing import Any

import msgspec

from headrace.errors import InvalidPipeline, InvalidRecord

_encoder = msgspec.msgpack.Encoder()
_plain_decoder = msgspec.msgpack.Decoder()

encode_value = _encoder.encode
decode_value = _plain_decoder.decode


def packed(value: Any, *, what: str = "the value") -> bytes:
    """A record's value as MessagePack, or an error that says what it holds."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, UnicodeError) as error:
        raise InvalidRecord(f"{what} cannot be encoded: {error} ({value!r:.120})") from None


class Codec:
    """Encodes and decodes one declared state type."""

    __slots__ = ("_decoder", "_encoder", "_loose", "type")

    def __init__(self, declared: Any, *, where: str) -> None:
        self.type = declared
        self._encoder = msgspec.msgpack.Encoder(
            order="deterministic" if _has_set(declared) else None
        )
        try:
            self._decoder = msgspec.msgpack.Decoder(declared)
        except (TypeError, NotImplementedError) as error:
            raise InvalidPipeline(
                f"{where}: state of type {declared!r} cannot be encoded: {error}. "
                "Use str, int, float, bool, bytes, list[T], dict[K, V], tuple, set, "
                "a dataclass or a msgspec.Struct."
            ) from None
        self._loose = _is_loose(declared)

    def __reduce__(self) -> tuple[Any, ...]:
        return _codec, (self.type,)  # msgspec's coders do not travel; their type does

    def encode(self, value: Any) -> bytes:
        """The bytes of `value`; raises TypeError where it is not of the declared type."""
        kind = type(value)
        data = self._encoder.encode(value)
        if kind is self.type and kind in _SCALARS:
            return data
        try:
            back = self._decoder.decode(data)
        except msgspec.ValidationError as error:
            raise TypeError(f"declared as {_show(self.type)}, but {error}") from None
        if self._loose and back != value:
            raise TypeError(
                f"declared as {_show(self.type)}, and {value!r:.80} would come back as "
                f"{back!r:.80}: declare the exact type"
            )
        return data

    def decode(self, data: bytes) -> Any:
        """The value that these bytes stand for."""
        return self._decoder.decode(data)


def _codec(declared: Any) -> Codec:
    return Codec(declared, where="state")


_SCALARS = {int, str, bytes, bool, float}


def _show(declared: Any) -> str:
    return getattr(declared, "__name__", None) or str(declared)


def _is_loose(declared: Any) -> bool:
    """Whether the type leaves room for values that change in encoding."""
    if declared in (Any, object, list, dict, tuple, set, frozenset):
        return True
    return any(_is_loose(part) for part in typing.get_args(declared) if part is not Ellipsis)


def _has_set(declared: Any) -> bool:
    origin = typing.get_origin(declared) or declared
    if origin in (set, frozenset):
        return True
    return any(_has_set(part) for part in typing.get_args(declared))
