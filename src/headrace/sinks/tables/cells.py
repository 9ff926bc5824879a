"""Values as the text that Postgres reads into a column of some type.

A value goes into a column only if it stays what it is: nothing is rounded or cut off, no number
becomes text. Postgres alone would round to the scale and the digits of a second that a column
keeps, and drop zones. Text becomes a number or a time only as which such values travel in a record.
Microseconds since 1970, Headrace's own form of time, do become times. What does not fit is `Unfit`,
which says why.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np

from headrace.model.texts import (
    Unfit,
    date_of,
    decimal_of,
    duration_of,
    moment_of,
    time_of,
)
from headrace.model.values.kinds import kind_of
from headrace.sinks.fitting.arrays import is_kept
from headrace.sinks.jsonl import with_digits

Convert = Callable[[Any], str]

NAME_BYTES_MAX = 63
_START = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS = {"int2": 15, "int4": 31, "int8": 63}
_LENGTHS = ("varchar", "bpchar")
_MICRO_DIGITS = 6
_FOREVER = ("infinity", "-infinity")
_GRAINS = (
    (1 << 12, timedelta(microseconds=1)),
    (1 << 11, timedelta(minutes=1)),
    (1 << 10, timedelta(hours=1)),
    (1 << 3, timedelta(days=1)),
)
"""What an interval keeps, by bits of its modifier; one of years or months keeps none of them."""


class TableColumn(NamedTuple):
    """A column of a table, as the server describes it."""

    name: str
    kind: str
    """The name of its type, of a domain's base type; `_int8` is an array of `int8`."""
    modifier: int
    """What its type says in brackets, as the server encodes it; -1 for nothing."""
    shown: str
    """Its type as people write it: `character varying(20)`."""
    required: bool
    """Whether it is NOT NULL."""
    has_default: bool
    """Whether the database fills it in where rows lack it."""


def converter(kind: str, modifier: int = -1) -> Convert:
    """Turns values that are not None into text for a column of this type."""
    if kind in _INTEGERS:
        return _integer(_INTEGERS[kind])
    if kind in _LENGTHS and modifier >= 0:
        return _limited(modifier - 4)
    if kind.startswith("_"):
        item = converter(kind[1:], modifier)
        return _array(item, lists_are_items=item is _json)
    if kind in _WITH_MODIFIER:
        return _WITH_MODIFIER[kind](modifier)
    return _CONVERTERS.get(kind, _as_text)


def _integer(bits: int) -> Convert:
    def convert(value: Any) -> str:
        if type(value) is not int:
            raise Unfit(f"it is {kind_of(value)}")
        if not -(2**bits) <= value < 2**bits:
            raise Unfit("it is out of range")
        return str(value)

    return convert


def _text(value: Any) -> str:
    if isinstance(value, UUID):
        return str(value)  # as which it travels in a record
    if type(value) is not str:
        raise Unfit(f"it is {kind_of(value)}")
    if "\0" in value:
        raise Unfit("Postgres cannot store the character NUL")
    return value


def _limited(length: int) -> Convert:
    """Postgres cuts off spaces that are too many."""

    def convert(value: Any) -> str:
        if len(text := _text(value)) > length:
            raise Unfit(f"it is too long: the column keeps {length} characters")
        return text

    return convert


def _name(value: Any) -> str:
    """Postgres cuts off what is longer."""
    if len((text := _text(value)).encode()) > NAME_BYTES_MAX:
        raise Unfit(f"it is too long: the column keeps {NAME_BYTES_MAX} bytes")
    return text


def _as_text(value: Any) -> str:
    if not isinstance(value, str | UUID):
        raise Unfit(f"it is {kind_of(value)}: give it as text")
    return _text(value)


def _numeric(modifier: int) -> Convert:
    # Eleven bits with a sign: the scale may be negative.
    scale = None if modifier < 0 else (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400

    def convert(value: Any) -> str:
        number = _number(value)
        if scale is not None and number.is_finite():
            _, digits, exponent = number.as_tuple()
            beyond = -scale - int(exponent)
            if beyond > 0 and any(digits[-beyond:]):
                raise Unfit(f"it would be rounded: the scale of the column is {scale}")
        return str(number)

    return convert


def _number(value: Any) -> Decimal:
    """A float is the number that it is written as: 0.1 is a tenth."""
    if isinstance(value, Decimal) or type(value) is int:
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value))
    if type(value) is str:  # as which a Decimal travels in a record
        return decimal_of(value)
    raise Unfit(f"it is {kind_of(value)}")


def _float8(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    if type(value) is not int:
        raise Unfit(f"it is {kind_of(value)}")
    try:
        if int(float(value)) == value:
            return str(value)
    except OverflowError:
        pass
    raise Unfit("it would be rounded")


def _float4(value: Any) -> str:
    text = _float8(value)
    if not is_kept(value, np.float32):
        raise Unfit("it would be rounded: real keeps six digits, double precision fifteen")
    return text


def _truth(value: Any) -> str:
    if type(value) is not bool:
        raise Unfit(f"it is {kind_of(value)}")
    return "t" if value else "f"


def _bytes(value: Any) -> str:
    if not isinstance(value, bytes):
        raise Unfit(f"it is {kind_of(value)}")
    return f"\\x{value.hex()}"


def _json(value: Any) -> str:
    """As in JSON lines: NaN is null, and bytes are in base64."""
    try:
        return msgspec.json.encode(with_digits(value)).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise Unfit(f"it cannot be written as JSON: {error}") from None


def _instant(modifier: int) -> Convert:
    """A time without a zone is one of UTC."""

    def convert(value: Any) -> str:
        if value in _FOREVER:
            return str(value)
        return _in_utc(value, modifier).isoformat()

    return convert


def _local(modifier: int) -> Convert:
    """A time with a zone becomes the time of UTC."""

    def convert(value: Any) -> str:
        if value in _FOREVER:
            return str(value)
        return _in_utc(value, modifier).replace(tzinfo=None).isoformat()

    return convert


def _in_utc(value: Any, digits: int) -> datetime:
    try:
        if type(value) is int:
            value = _START + timedelta(microseconds=value)
        elif type(value) is str:
            value = moment_of(value)
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        elif not isinstance(value, datetime):
            raise Unfit(f"it is {kind_of(value)}: give it as text")
        _refuse_finer(value.microsecond, digits)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise Unfit("in microseconds since 1970, UTC, it is beyond the year 9999") from None


def _refuse_finer(micros: int, digits: int) -> None:
    if 0 <= digits < _MICRO_DIGITS and micros % 10 ** (_MICRO_DIGITS - digits):
        raise Unfit(f"it would be rounded: the column keeps {digits} digits of a second")


def _date(value: Any) -> str:
    if value in _FOREVER:
        return str(value)
    if type(value) is str:
        value = date_of(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    raise Unfit(f"it is {kind_of(value)}, and no date")


def _time(modifier: int) -> Convert:
    def convert(value: Any) -> str:
        if type(value) is str:
            value = time_of(value)
        if not isinstance(value, time):
            raise Unfit(f"it is {kind_of(value)}: give it as text")
        if value.tzinfo is not None:
            raise Unfit("it has a zone, which the column does not keep")
        _refuse_finer(value.microsecond, modifier)
        return value.isoformat()

    return convert


def _interval(modifier: int) -> Convert:
    units, digits = modifier >> 16, modifier & 0xFFFF
    grain = next((kept for bit, kept in _GRAINS if units & bit), timedelta.max)

    def convert(value: Any) -> str:
        if type(value) is str:
            try:
                value = duration_of(value)
            except Unfit:
                if modifier < 0:
                    return _text(value)  # as Postgres writes it: 1 year 2 days
                raise
        if not isinstance(value, timedelta):
            raise Unfit(f"it is {kind_of(value)}: give it as text")
        if value % grain:
            raise Unfit("it would be cut off: the column keeps whole minutes, hours, days or more")
        _refuse_finer(value.microseconds, digits)
        seconds = f"{value.seconds} seconds {value.microseconds} microseconds"
        return f"{value.days} days {seconds}"

    return convert


def _array(item: Convert, *, lists_are_items: bool) -> Convert:
    """Lists inside of the list are more dimensions of the array, unless they are items: JSON."""

    def convert(value: Any) -> str:
        if not isinstance(value, list | tuple):
            raise Unfit(f"it is {kind_of(value)}")
        return "{" + ",".join(literal(each) for each in value) + "}"

    def literal(value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, list | tuple) and not lists_are_items:
            return convert(value)
        text = item(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'

    return convert


_WITH_MODIFIER: dict[str, Callable[[int], Convert]] = {
    "numeric": _numeric,
    "timestamptz": _instant,
    "timestamp": _local,
    "time": _time,
    "interval": _interval,
}
_CONVERTERS: dict[str, Convert] = {
    "text": _text,
    "varchar": _text,
    "bpchar": _text,
    "citext": _text,
    "name": _name,
    "float4": _float4,
    "float8": _float8,
    "bool": _truth,
    "bytea": _bytes,
    "json": _json,
    "jsonb": _json,
    "date": _date,
}
