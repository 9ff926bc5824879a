"""Types for new columns of Postgres: for values, or for an Arrow type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa


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
    (lambda kind: isinstance(kind, pa.UuidType), "uuid"),
]


def some_value(kind: pa.DataType) -> Any:
    """A value of an Arrow type that has one form in a record; None for those that may be text."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return []
    return next((value for accepts, value in _SOME if accepts(kind)), None)


_SOME: list[tuple[Callable[[pa.DataType], bool], Any]] = [
    (pa.types.is_boolean, True),
    (pa.types.is_integer, 0),
    (pa.types.is_floating, 0.0),
    (pa.types.is_binary, b""),
    (pa.types.is_struct, {}),
]
