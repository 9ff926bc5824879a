"""The kinds of values, and one order over all of them, as bytes.

A value is of one kind: null, truth value, number, time, text, bytes, list or dict, in this
order. No kind is converted to another: `1`, `1.0`, `True` and `"1"` are four values.
Within a kind:

- numbers are ordered by their exact value, integers and floats together, of any size. If an integer
  and a float are equal, the integer comes first. -0.0 comes directly before 0.0 and is another
  value. NaN comes after all numbers, and there is one NaN.
- decimals, times and ids follow the numbers, each kind by itself: decimals, instants, local
  times, dates, times of day, durations, UUIDs.
- text is ordered by code points, bytes by their numbers.
- lists are ordered item by item, dicts by their entries, sorted by name. A null inside of them is
  the smallest value. Dicts that are equal are one value, whatever the order of their names.

`ordered` returns bytes that sort in this order. The bytes are equal only for equal values of one
kind. `from_ordered` returns the value of such bytes. Both handle nested values without recursion,
so that depth does not matter.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from msgspec.msgpack import Ext

from headrace.model.values.codec import decode_value, packed

_NULL, _FALSE, _TRUE = b"\x05", b"\x10", b"\x11"
_LEAST, _NEGATIVE, _ZERO, _POSITIVE, _MOST, _NAN = 0x20, 0x21, 0x22, 0x23, 0x24, 0x25
_DECIMAL, _INSTANT, _LOCAL, _DATE, _TIME, _DURATION, _UUID, _EXTENSION = range(0x26, 0x2E)
_TEXT, _BYTES, _LIST, _DICT = 0x30, 0x40, 0x50, 0x60
_END = b"\x00"
"""Ends texts, lists and dicts. It is below every other byte, so that a prefix sorts first."""

_INTEGER, _FLOAT, _POSITIVE_ZERO = b"\x01", b"\x02", b"\x03"
_INVERTED = bytes(255 - i for i in range(256))
_EPOCH, _LOCAL_EPOCH = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1)
_MICRO = timedelta(microseconds=1)

NUMBERS = range(_FALSE[0], _NAN + 1)
"""First bytes of values that can be added: truth values and numbers."""

INTEGERS_ONLY = frozenset({_NEGATIVE, _ZERO, _POSITIVE})
"""First bytes that an integer may have."""


def ordered(value: Any) -> bytes:
    """The bytes of a value. They sort as the values do."""
    encode = _SCALARS.get(type(value))
    return _nested(value) if encode is None else encode(value)


def from_ordered(data: bytes) -> Any:
    """The value of bytes from `ordered`."""
    tag = data[0]
    if tag == _TEXT:
        return _unescaped(data[1:-1]).decode()
    found, _ = _decoded(data)
    return found


def kind_of(value: Any) -> str:
    """The name of a value's kind, for messages."""
    return _NAMES.get(type(value), type(value).__name__)


def micros_of(value: datetime | date | time | timedelta) -> int:
    """A time as whole microseconds, as in Arrow: since 1970, or since midnight."""
    if isinstance(value, datetime):
        return (value - (_LOCAL_EPOCH if value.tzinfo is None else _EPOCH)) // _MICRO
    if isinstance(value, date):
        return (datetime(value.year, value.month, value.day) - _LOCAL_EPOCH) // _MICRO
    if isinstance(value, timedelta):
        return value // _MICRO
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


class _Raw:
    """The bytes of a nested value that is already encoded."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def _nested(value: Any) -> bytes:
    out: list[bytes] = []
    todo: list[Any] = [value]
    while todo:
        one = todo.pop()
        kind = type(one)
        encode = _SCALARS.get(kind)
        if encode is not None:
            out.append(encode(one))
        elif kind is _Raw:
            out.append(one.data)
        elif kind is list or kind is tuple:
            out.append(b"\x50")
            todo.append(_Raw(_END))
            todo.extend(reversed(one))
        elif kind is dict:
            out.append(b"\x60")
            todo.append(_Raw(_END))
            for name, cell in sorted(((ordered(k), v) for k, v in one.items()), key=_first)[::-1]:
                todo += (cell, _Raw(name))
        else:  # numpy numbers, sets, objects of a class: in the form in which they are sent
            todo.append(_travelled(one))
    return b"".join(out)


def _first(pair: tuple[bytes, Any]) -> bytes:
    return pair[0]


def _travelled(value: Any) -> Any:
    found = decode_value(packed(value))
    if type(found) is type(value):
        raise TypeError(f"a value of type {type(value).__name__} has no place in the order")
    return found


# Encoding ---------------------------------------------------------------------


def _of_int(value: int) -> bytes:
    if not value:
        return b"\x22\x01"
    size = abs(value)
    bits = size.bit_length() - 1
    if value < 0 or bits > 63:
        return _number(value < 0, bits, size, bits, _INTEGER)
    # The same for the usual integers, in about 0.7 of the time.
    fill = -bits % 8
    digits = ((size - (1 << bits)) << fill).to_bytes((bits + fill) >> 3, "big").rstrip(b"\x00")
    return _POWERS[bits] + _escaped(digits) + _INTEGER_ENDS


_POWERS = tuple(b"\x23" + struct.pack(">I", power + 2**31) for power in range(64))
_INTEGER_ENDS = _END + _INTEGER


def _of_float(value: float) -> bytes:
    if value == 0.0:
        return b"\x22\x02" if math.copysign(1.0, value) < 0 else b"\x22\x03"
    if value != value:
        return b"\x25"
    if math.isinf(value):
        return b"\x24" if value > 0 else b"\x20"
    mantissa, power = math.frexp(abs(value))
    return _number(value < 0, power - 1, int(mantissa * 2.0**53), 52, _FLOAT)


def _number(negative: bool, power: int, size: int, bits: int, kind: bytes) -> bytes:
    """Encodes 1.xxx * 2**power, where `size` is 1xxx with `bits` bits after the first one."""
    fraction = size - (1 << bits)
    fill = -bits % 8
    digits = (fraction << fill).to_bytes((bits + fill) // 8, "big").rstrip(b"\x00")
    body = struct.pack(">I", power + 2**31) + _escaped(digits) + _END
    if negative:
        return b"\x21" + body.translate(_INVERTED) + kind
    return b"\x23" + body + kind


def _of_text(value: str) -> bytes:
    return b"\x30" + _escaped(value.encode()) + _END


def _of_bytes(value: bytes) -> bytes:
    return b"\x40" + _escaped(value) + _END


def _escaped(raw: bytes) -> bytes:
    return raw.replace(b"\x00", b"\x00\xff") if b"\x00" in raw else raw


def _unescaped(raw: bytes) -> bytes:
    return raw.replace(b"\x00\xff", b"\x00") if b"\x00" in raw else raw


def _of_datetime(value: datetime) -> bytes:
    tag = b"\x28" if value.tzinfo is None else b"\x27"
    return tag + struct.pack(">Q", micros_of(value) + 2**63)


def _of_decimal(value: Decimal) -> bytes:
    """Sign, place of the first digit, digits; then the exponent, because 1.0 is not 1.00."""
    if value.is_nan():
        return b"\x26\x05"
    if value.is_infinite():
        return b"\x26\x04" if value > 0 else b"\x26\x00"
    sign, digits, exponent = value.as_tuple()
    tail = struct.pack(">q", int(exponent))
    if not any(digits):
        return b"\x26\x02" + (b"\x00" if sign else b"\x01") + tail
    shown = bytes(48 + digit for digit in digits).lstrip(b"0").rstrip(b"0")
    body = struct.pack(">Q", value.adjusted() + 2**63) + shown + _END
    return (b"\x26\x01" + body.translate(_INVERTED) if sign else b"\x26\x03" + body) + tail


def _of_micros(tag: bytes) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        # Durations in microseconds can need slightly more than 64 bits.
        return tag + (micros_of(value) + 2**71).to_bytes(9, "big")

    return encode


_SCALARS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: _NULL,
    bool: lambda value: _TRUE if value else _FALSE,
    int: _of_int,
    float: _of_float,
    str: _of_text,
    bytes: _of_bytes,
    datetime: _of_datetime,
    Decimal: _of_decimal,
    date: _of_micros(b"\x29"),
    time: _of_micros(b"\x2a"),
    timedelta: _of_micros(b"\x2b"),
    UUID: lambda value: b"\x2c" + value.bytes,
    Ext: lambda value: b"\x2d" + bytes((value.code + 128,)) + _escaped(bytes(value.data)) + _END,
}

_NAMES: dict[type, str] = {
    type(None): "null", bool: "a truth value", int: "an integer", float: "a float", str: "text",
    bytes: "bytes", list: "a list", tuple: "a list", dict: "a dict", datetime: "a time",
    date: "a date", time: "a time of day", timedelta: "a duration", Decimal: "a decimal",
    UUID: "a UUID",
}  # fmt: skip

# Decoding ---------------------------------------------------------------------


def _decoded(data: bytes) -> tuple[Any, int]:
    """The value at the start of the bytes, and the position of its end."""
    at = 0
    open_: list[tuple[int, list[Any]]] = []
    while True:
        tag = data[at]
        if tag in (_LIST, _DICT):
            open_.append((tag, []))
            at += 1
            continue
        if tag == 0:
            if not open_:
                raise ValueError("the end of a list or dict that did not begin")
            kind, items = open_.pop()
            found: Any = items
            if kind == _DICT:
                found = dict(zip(map(_as_name, items[::2]), items[1::2], strict=True))
            at += 1
        else:
            found, at = _scalar(data, at, tag)
        if not open_:
            return found, at
        open_[-1][1].append(found)


def _as_name(key: Any) -> Any:
    """Turns a dict's key that was decoded as a list back into a tuple."""
    return tuple(map(_as_name, key)) if type(key) is list else key


def _scalar(data: bytes, at: int, tag: int) -> tuple[Any, int]:
    if tag in (_TEXT, _BYTES):
        end = _end_of(data, at + 1)
        raw = _unescaped(data[at + 1 : end])
        return (raw.decode() if tag == _TEXT else raw), end + 1
    if tag in (_NEGATIVE, _POSITIVE):
        return _finite(data, at, tag == _NEGATIVE)
    if tag == _ZERO:
        mark = data[at + 1 : at + 2]
        found = 0 if mark == _INTEGER else 0.0 if mark == _POSITIVE_ZERO else -0.0
        return found, at + 2
    if tag in _SIMPLE:
        return _SIMPLE[tag], at + 1
    if tag in (_INSTANT, _LOCAL):
        micros = struct.unpack_from(">Q", data, at + 1)[0] - 2**63
        return (_EPOCH if tag == _INSTANT else _LOCAL_EPOCH) + micros * _MICRO, at + 9
    if tag == _DECIMAL:
        return _decimal(data, at + 1)
    if tag in (_DATE, _TIME, _DURATION):
        micros = int.from_bytes(data[at + 1 : at + 10], "big") - 2**71
        if tag == _DURATION:
            return micros * _MICRO, at + 10
        moment = _LOCAL_EPOCH + micros * _MICRO
        return (moment.date() if tag == _DATE else moment.time()), at + 10
    if tag == _UUID:
        return UUID(bytes=data[at + 1 : at + 17]), at + 17
    if tag == _EXTENSION:
        end = _end_of(data, at + 2)
        return Ext(data[at + 1] - 128, _unescaped(data[at + 2 : end])), end + 1
    raise ValueError(f"unknown kind {tag:#x}")


_SIMPLE: dict[int, Any] = {
    _NULL[0]: None, _FALSE[0]: False, _TRUE[0]: True,
    _LEAST: -math.inf, _MOST: math.inf, _NAN: math.nan,
}  # fmt: skip


def _end_of(data: bytes, at: int, end: int = 0, escape: int = 255) -> int:
    """The end of a text: a zero byte that is not escaped (inverted in negative numbers)."""
    while True:
        at = data.index(end, at)
        if at + 1 >= len(data) or data[at + 1] != escape:
            return at
        at += 2


def _finite(data: bytes, at: int, negative: bool) -> tuple[Any, int]:
    end = _end_of(data, at + 5, 255, 0) if negative else _end_of(data, at + 5)
    body = data[at + 1 : end]
    if negative:
        body = body.translate(_INVERTED)
    power = struct.unpack_from(">I", body)[0] - 2**31
    digits = _unescaped(body[4:])
    bits = 8 * len(digits)
    size = (1 << bits) + int.from_bytes(digits, "big")
    if data[end + 1] == _FLOAT[0]:
        found: Any = math.ldexp(size, power - bits)
    else:
        found = size << (power - bits) if power >= bits else size >> (bits - power)
    return (-found if negative else found), end + 2


def _decimal(data: bytes, at: int) -> tuple[Decimal, int]:
    part = data[at]
    if part in (0, 4, 5):
        return Decimal({0: "-Infinity", 4: "Infinity", 5: "NaN"}[part]), at + 1
    if part == 2:
        exponent = struct.unpack_from(">q", data, at + 2)[0]
        return Decimal((0 if data[at + 1] else 1, (0,), exponent)), at + 10
    negative = part == 1
    end = data.index(255 if negative else 0, at + 9)
    body = data[at + 1 : end]
    if negative:
        body = body.translate(_INVERTED)
    adjusted = struct.unpack_from(">Q", body)[0] - 2**63
    exponent = struct.unpack_from(">q", data, end + 1)[0]
    shown = body[8:].ljust(adjusted - exponent + 1, b"0")
    digits = tuple(byte - 48 for byte in shown)
    return Decimal((int(negative), digits, exponent)), end + 9
