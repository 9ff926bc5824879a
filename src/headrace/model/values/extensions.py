"""MessagePack extension types for wide integers, decimals and times.

MessagePack's integers have 64 bits, and msgspec writes decimals and times as text. But a record
must decode as it was, whatever other records are packed with it. So integers of any size, and all
types of Arrow columns, have extension types here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.msgpack import Ext

_INTEGER, _DECIMAL, _NAIVE, _INSTANT, _DATE, _TIME, _SPAN, _UUID = range(80, 88)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RICH = (Decimal, datetime, date, time, timedelta, UUID)
_AS_THEY_ARE = (bytes, bytearray, memoryview, *_RICH)
_I64 = struct.Struct(">q")


def wide(value: Any) -> Any:
    """Makes a value with integers of more than 64 bits encodable by msgspec."""
    kept: Any = _AS_THEY_ARE
    plain = msgspec.to_builtins(value, builtin_types=kept, str_keys=False, enc_hook=_as_it_is)
    return _extended(plain, rich=False)


def exact(value: Any) -> Any:
    """Makes a value of Arrow columns encodable: its decimals and times decode as they were."""
    return _extended(value, rich=True)


def _as_it_is(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


def _extended(value: Any, *, rich: bool) -> Any:
    kind = type(value)
    if kind is dict:
        found = {}
        for key, inner in value.items():
            if type(key) is int and not -(2**63) <= key < 2**64:
                raise OverflowError("an integer that is the key of a dict has at most 64 bits")
            found[key] = _extended(inner, rich=rich)
        return found
    if kind is list or kind is tuple:
        return [_extended(inner, rich=rich) for inner in value]
    if kind is int:
        return value if -(2**63) <= value < 2**64 else _integer(value)
    return _rich(value) if rich and isinstance(value, _RICH) else value


def _integer(value: int) -> Ext:
    return Ext(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _rich(value: Any) -> Any:
    if isinstance(value, Decimal):
        return Ext(_DECIMAL, str(value).encode())
    if isinstance(value, datetime):
        return _instant(value)
    if isinstance(value, date):
        return Ext(_DATE, value.isoformat().encode())
    if isinstance(value, time):
        return Ext(_TIME, value.isoformat().encode())
    if isinstance(value, timedelta):
        return Ext(_SPAN, str(value // _MICROSECOND).encode())
    return Ext(_UUID, value.bytes)


def _instant(value: datetime) -> Any:
    if value.tzinfo is None:
        return Ext(_NAIVE, value.isoformat().encode())
    try:
        zone = pa.lib.tzinfo_to_string(value.tzinfo)
    except (pa.ArrowException, ValueError):
        return value  # a zone that only Python knows: msgspec keeps the instant
    return Ext(_INSTANT, _I64.pack((value - _EPOCH) // _MICROSECOND) + zone.encode())


def from_extension(code: int, data: memoryview) -> Any:
    """The value of an extension type: msgspec's `ext_hook`."""
    read, raw = _READERS.get(code), bytes(data)
    return Ext(code, raw) if read is None else read(raw)


def _read_instant(raw: bytes) -> datetime:
    at = _EPOCH + _I64.unpack(raw[:8])[0] * _MICROSECOND
    return at.astimezone(pa.lib.string_to_tzinfo(raw[8:].decode()))


_READERS: dict[int, Callable[[bytes], Any]] = {
    _INTEGER: lambda raw: int.from_bytes(raw, "big", signed=True),
    _DECIMAL: lambda raw: Decimal(raw.decode()),
    _NAIVE: lambda raw: datetime.fromisoformat(raw.decode()),
    _INSTANT: _read_instant,
    _DATE: lambda raw: date.fromisoformat(raw.decode()),
    _TIME: lambda raw: time.fromisoformat(raw.decode()),
    _SPAN: lambda raw: int(raw) * _MICROSECOND,
    _UUID: lambda raw: UUID(bytes=raw),
}
