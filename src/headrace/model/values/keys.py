"""Keys: which values may be keys, how they are encoded, and their place in the key space.

Two keys are equal if and only if their bytes are equal. The bytes sort as the
keys do (None < bytes < str < tuples < int by kind, then by value), so a `Map`
can be iterated in key order, and timers of one instant fire in the order of their
tags. The encoding is the tuple layer of FoundationDB, reduced to the types of keys.
"""

from __future__ import annotations

from typing import Any

import xxhash

from headrace.errors import InvalidRecord
from headrace.model.values.shown import shown

Key = str | int | bytes | tuple[Any, ...]

KEY_BYTES_MAX = 64 * 1024
TUPLES_NESTED_MAX = 16
HASH_SPACE = 2**64

_NONE, _BYTES, _TEXT, _TUPLE, _ZERO = 0x00, 0x01, 0x02, 0x05, 0x14
_MOST = _ZERO + 8
"""The tag of an integer of eight bytes."""
_POSITIVE = tuple(bytes((_ZERO + size,)) for size in range(9))
"""Bytes of a positive integer -> its tag."""


def encode_key(key: Any) -> bytes:
    """The bytes of a record's key. Refuses a value that cannot be a key."""
    if isinstance(key, str | bytes) and not key:
        raise InvalidRecord("the key is empty; a key has at least one character")
    encoded = encode_part(key)
    if len(encoded) > KEY_BYTES_MAX:
        raise InvalidRecord(
            f"the key is {len(encoded):,} bytes long; the limit is {KEY_BYTES_MAX:,}: "
            "key by a digest of it instead"
        )
    if encoded == b"\x00":
        raise InvalidRecord("the key is missing (None)")
    return encoded


def encode_part(part: Any) -> bytes:
    """The bytes of a key, a timer's tag or a `Map` key, in an order-preserving form."""
    kind = type(part)
    if kind is str:
        try:
            text: bytes = part.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidRecord(f"the key {part[:80]!r} is not valid Unicode: {error}") from None
        return b"\x02" + text.replace(b"\x00", b"\x00\xff") + b"\x00"
    if kind is int:
        return _encode_int(part)
    if kind is bytes:
        return b"\x01" + part.replace(b"\x00", b"\x00\xff") + b"\x00"
    if part is None:
        return b"\x00"
    if kind is tuple:
        return _encode_tuple(part, 1)
    if hasattr(part, "item") and getattr(part, "ndim", None) == 0:
        return encode_part(part.item())  # a numpy scalar counts as its value
    if isinstance(part, str | int | bytes) and not isinstance(part, bool):
        # An enum or a subclass counts as its value; `str()` would give an enum's name.
        if isinstance(part, str):
            return encode_part(str.__str__(part))
        return encode_part(int(part) if isinstance(part, int) else bytes(part))
    raise InvalidRecord(
        f"a key is str, int, bytes or a tuple of those, not {kind.__name__}: {shown(part, 80)}"
    )


def decode_key(encoded: bytes) -> Any:
    """The key of these bytes."""
    tag = encoded[0]
    if tag in (_BYTES, _TEXT):
        # Most keys are one text: if every zero byte inside is escaped, the last byte ends it.
        raw = encoded[1:-1]
        zeros = raw.count(0)
        if not encoded[-1] and (not zeros or zeros == raw.count(b"\x00\xff")):
            raw = raw.replace(b"\x00\xff", b"\x00") if zeros else raw
            return raw if tag == _BYTES else raw.decode("utf-8")
    elif _ZERO < tag <= _MOST and len(encoded) == tag - (_ZERO - 1):
        return int.from_bytes(encoded[1:], "big")
    part, end = _decode(encoded, 0)
    if end != len(encoded):
        raise ValueError(f"{len(encoded) - end} stray bytes after a key")
    return part


def hash_key(encoded: bytes) -> int:
    """The place of a key in the 64-bit key space."""
    return xxhash.xxh3_64_intdigest(encoded)


def _encode_tuple(part: tuple[Any, ...], level: int) -> bytes:
    if level > TUPLES_NESTED_MAX:
        raise InvalidRecord(f"the tuples of a key are nested at most {TUPLES_NESTED_MAX} deep")
    inner = [
        _encode_int(item) if type(item) is int
        else b"\x00\xff" if item is None
        else _encode_tuple(item, level + 1) if type(item) is tuple
        else encode_part(item)
        for item in part
    ]  # fmt: skip
    return b"\x05" + b"".join(inner) + b"\x00"


def _encode_int(number: int) -> bytes:
    if 0 < number < HASH_SPACE:
        size = (number.bit_length() + 7) >> 3
        return _POSITIVE[size] + number.to_bytes(size, "big")
    if number == 0:
        return b"\x14"
    if not -(2**63) <= number < 0:
        raise InvalidRecord(f"an integer key has at most 64 bits, this one {number.bit_length()}")
    size = (abs(number).bit_length() + 7) // 8
    return bytes((_ZERO - size,)) + (number + (1 << (8 * size)) - 1).to_bytes(size, "big")


def _decode(data: bytes, at: int) -> tuple[Any, int]:
    tag = data[at]
    if tag == _NONE:
        return None, at + 1
    if tag in (_BYTES, _TEXT):
        end = at + 1
        while True:
            end = data.index(b"\x00", end)
            if data[end : end + 2] != b"\x00\xff":
                break
            end += 2
        raw = data[at + 1 : end].replace(b"\x00\xff", b"\x00")
        return (raw if tag == _BYTES else raw.decode("utf-8")), end + 1
    if tag == _TUPLE:
        items: list[Any] = []
        at += 1
        while (tag := data[at]) != 0 or data[at : at + 2] == b"\x00\xff":
            if _ZERO < tag <= _MOST:  # the most frequent part, without a call
                end = at + tag - (_ZERO - 1)
                items.append(int.from_bytes(data[at + 1 : end], "big"))
                at = end
            elif tag == 0:
                items.append(None)
                at += 2
            else:
                item, at = _decode(data, at)
                items.append(item)
        return tuple(items), at + 1
    if _ZERO - 8 <= tag <= _ZERO + 8:
        size = abs(tag - _ZERO)
        number = int.from_bytes(data[at + 1 : at + 1 + size], "big")
        if tag < _ZERO:
            number -= (1 << (8 * size)) - 1
        return number, at + 1 + size
    raise ValueError(f"unknown key tag {tag:#x}")
