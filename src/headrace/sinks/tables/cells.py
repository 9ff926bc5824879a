"""Values as the text that Postgres reads into a column of some type; and types for new columns.

A value goes into a column only if it stays what it is: no number is rounded into a whole number or
cut off, no number becomes text, no text a number. Microseconds since 1970, Headrace's own form of
time, do become times. What does not fit is a `CellError` that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pyarrow as pa

from headrace.model.values.kinds import kind_of
from headrace.sinks.jsonl import with_digits

Convert = Callable[[Any], str]

_START = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS = {"int2": 15, "int4": 31, "int8": 63}
_TEXTS = ("text", "varchar", "bpchar", "name", "citext")


class CellError(Exception):
    """Why a value does not fit its column."""


class TableColumn(NamedTuple):
    """A column of a table, as the server describes it."""

    name: str
    kind: str
    """The name of its type, of a domain's base type; `_int8` is an array of `int8`."""
    shown: str
    """Its type as people write it: `character varying(20)`."""
    required: bool
    """Whether it is NOT NULL."""
    has_default: bool
    """Whether the database fills it in where rows lack it."""


def converter(kind: str) -> Convert:
    """Turns values that are not None into text for a column of this type."""
    if kind in _INTEGERS:
        return _integer(_INTEGERS[kind])
    if kind in _TEXTS:
        return _text
    if kind.startswith("_"):
        return _array(converter(kind[1:]))
    return _CONVERTERS.get(kind, _as_text)


def _integer(bits: int) -> Convert:
    def convert(value: Any) -> str:
        if type(value) is not int:
            raise CellError(f"it is {kind_of(value)}")
        if not -(2**bits) <= value < 2**bits:
            raise CellError("it is out of range")
        return str(value)

    return convert


def _text(value: Any) -> str:
    if type(value) is not str:
        raise CellError(f"it is {kind_of(value)}")
    if "\0" in value:
        raise CellError("Postgres cannot store the character NUL")
    return value


def _as_text(value: Any) -> str:
    if not isinstance(value, str | UUID):
        raise CellError(f"it is {kind_of(value)}: give it as text")
    return _text(str(value))


def _number(value: Any) -> str:
    if type(value) is int:
        return str(Decimal(value))
    if isinstance(value, float | Decimal):
        return str(value)
    if isinstance(value, str):  # as which a Decimal travels in a record
        try:
            return str(Decimal(value))
        except ArithmeticError:
            pass
    raise CellError(f"it is {kind_of(value)}")


def _float(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    if type(value) is not int:
        raise CellError(f"it is {kind_of(value)}")
    try:
        if int(float(value)) == value:
            return str(value)
    except OverflowError:
        pass
    raise CellError("it would be rounded")


def _truth(value: Any) -> str:
    if type(value) is not bool:
        raise CellError(f"it is {kind_of(value)}")
    return "t" if value else "f"


def _bytes(value: Any) -> str:
    if not isinstance(value, bytes):
        raise CellError(f"it is {kind_of(value)}")
    return f"\\x{value.hex()}"


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(with_digits(value)).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise CellError(f"it cannot be written as JSON: {error}") from None


def _instant(value: Any) -> str:
    """The session's time zone is UTC, so a time without a zone means UTC."""
    if type(value) is int:
        try:
            value = _START + timedelta(microseconds=value)
        except OverflowError:
            raise CellError("as microseconds since 1970 it is beyond the year 9999") from None
    if isinstance(value, datetime | date):
        return value.isoformat()
    return _as_text(value)


def _local(value: Any) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return _instant(value).removesuffix("+00:00")


def _date(value: Any) -> str:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    return _as_text(value)


def _time(value: Any) -> str:
    return value.isoformat() if isinstance(value, time) else _as_text(value)


def _interval(value: Any) -> str:
    if isinstance(value, timedelta):
        seconds = f"{value.seconds} seconds {value.microseconds} microseconds"
        return f"{value.days} days {seconds}"
    return _as_text(value)


def _array(item: Convert) -> Convert:
    def convert(value: Any) -> str:
        if not isinstance(value, list | tuple):
            raise CellError(f"it is {kind_of(value)}")
        return "{" + ",".join(literal(each) for each in value) + "}"

    def literal(value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, list | tuple):
            return convert(value)
        text = item(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'

    return convert


_CONVERTERS: dict[str, Convert] = {
    "numeric": _number,
    "float4": _float,
    "float8": _float,
    "bool": _truth,
    "bytea": _bytes,
    "json": _json,
    "jsonb": _json,
    "timestamptz": _instant,
    "timestamp": _local,
    "date": _date,
    "time": _time,
    "interval": _interval,
}


def type_for(values: Iterable[Any]) -> str | None:
    """The type of a new column with these values; None if all are None.

    Values of several kinds, lists and dicts become jsonb; integers beyond 64 bits become numeric.
    """
    kinds: set[str] = set()
    for value in values:
        if value is None:
            continue
        if type(value) is int and not -(2**63) <= value < 2**63:
            kinds.add("numeric")
        elif isinstance(value, datetime):
            kinds.add("timestamp" if value.tzinfo is None else "timestamptz")
        else:
            kinds.add(_TYPES.get(type(value), "jsonb"))
    if kinds == {"numeric", "bigint"}:
        return "numeric"
    if kinds == {"double precision", "bigint"}:
        return "double precision"
    if len(kinds) > 1:
        return "jsonb"
    return next(iter(kinds), None)


_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    str: "text",
    bytes: "bytea",
    Decimal: "numeric",
    date: "date",
    time: "time",
    timedelta: "interval",
    UUID: "uuid",
}


def type_of_arrow(kind: pa.DataType) -> str | None:
    """The type of a new column for an Arrow type; None if there is none."""
    types = pa.types
    if types.is_dictionary(kind):
        return type_of_arrow(kind.value_type)
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if types.is_nested(kind):
        return "jsonb"
    for accepts, name in _ARROW:
        if accepts(kind):
            return name
    return None


_ARROW: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (pa.types.is_boolean, "boolean"),
    (lambda kind: kind in (pa.int8(), pa.uint8(), pa.int16()), "smallint"),
    (lambda kind: kind in (pa.uint16(), pa.int32()), "integer"),
    (lambda kind: kind in (pa.uint32(), pa.int64()), "bigint"),
    (pa.types.is_uint64, "numeric(20, 0)"),
    (lambda kind: kind in (pa.float16(), pa.float32()), "real"),
    (pa.types.is_float64, "double precision"),
    (lambda kind: kind in (pa.string(), pa.large_string(), pa.string_view()), "text"),
    (lambda kind: kind in (pa.binary(), pa.large_binary(), pa.binary_view()), "bytea"),
    (pa.types.is_fixed_size_binary, "bytea"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (pa.types.is_duration, "interval"),
]
