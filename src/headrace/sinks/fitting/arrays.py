"""Cells of a column as an Arrow array of a declared type. Each stays what it is, or is refused.

Arrow alone would cut 1.5 to 1 in a column of integers, a time to its date, make 1e39 infinite in a
short float, and drop names that a struct lacks. A decimal, a date or a time may be text, as which a
produced one travels in a record. Integers in a column of times are in its unit. A time without a
zone is one of UTC, and a time with a zone becomes that of UTC where the column has none.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SinkError
from headrace.model.texts import (
    Unfit,
    date_of,
    decimal_of,
    duration_of,
    moment_of,
    time_of,
)
from headrace.model.values.arrow import in_microseconds
from headrace.model.values.kinds import kind_of

Cells = Any
"""The cells of a column: an Arrow array, or a list of Python values."""

Fit = Callable[[Any], Any]
"""Returns a value that is not None as Arrow takes it, or raises `Unfit`."""

_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_MICROS = {"s": 1_000_000, "ms": 1_000}
"""Microseconds of a unit that is coarser than one."""
_SHORT: dict[pa.DataType, type[np.floating[Any]]] = {
    pa.float16(): np.float16,
    pa.float32(): np.float32,
}


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of the lists."""
    return any(accepts(kind) for accepts in _LISTS)


def column(
    field: pa.Field, cells: Cells | None, length: int, *, first: int = 0, whose: str = "the table"
) -> pa.Array:
    """Cells as the column that a field declares, without None if it says so; all None for None."""
    if cells is None:
        found = pa.nulls(length, field.type)
    else:
        found = fitted(field.name, cells, field.type, first=first, whose=whose)
    if found.null_count and not field.nullable:
        row = first + pc.index(pc.is_null(found), True).as_py() + 1
        raise SinkError(
            f"column {field.name!r}, row {row} of the epoch: it is None, but {whose} says that the "
            "column has a value in each row"
        )
    return found


def fitted(
    name: str, cells: Cells, kind: pa.DataType, *, first: int = 0, whose: str = "the table"
) -> pa.Array:
    """Cells as a column of a type, which `whose` says. The error names the column and the row,
    counted from `first`."""
    if isinstance(cells, pa.Array):
        return _cast(name, cells, kind, first, whose)

    def refused(row: int, value: Any, why: object) -> SinkError:
        return SinkError(
            f"column {name!r}, row {first + row + 1} of the epoch: {value!r:.80} does not fit "
            f"{kind}, the type of {whose}: {why}"
        )

    fit = fit_for(kind)
    values = []
    for row, value in enumerate(cells):
        try:
            values.append(None if value is None else fit(value))
        except Unfit as error:
            raise refused(row, value, error) from None
    try:
        return pa.array(values, kind)
    except _REFUSALS as error:
        for row, value in enumerate(values):
            try:
                pa.array([value], kind)
            except _REFUSALS as found:
                raise refused(row, value, found) from None
        raise SinkError(f"column {name!r} does not fit {kind}: {error}") from None


def _cast(name: str, cells: pa.Array, kind: pa.DataType, first: int, whose: str) -> pa.Array:
    if cells.type == kind:
        return cells
    if pa.types.is_dictionary(cells.type) and not pa.types.is_dictionary(kind):
        cells = cells.dictionary_decode()
    if not (pa.types.is_null(cells.type) or _is_safe(cells.type, kind)):
        micros = in_microseconds(cells.type)
        if micros != cells.type and in_microseconds(kind) == kind:
            # As values of Python, times inside would lose their nanoseconds silently.
            cells = _as_arrow_does(name, cells, micros, kind, whose)
        return fitted(name, cells.to_pylist(), kind, first=first, whose=whose)
    return _as_arrow_does(name, cells, kind, kind, whose)


def _as_arrow_does(
    name: str, cells: pa.Array, to: pa.DataType, kind: pa.DataType, whose: str
) -> pa.Array:
    try:
        return cells.cast(to)
    except _REFUSALS as error:
        raise SinkError(
            f"column {name!r} is of type {cells.type} and does not fit {kind}, the type of "
            f"{whose}: {error}"
        ) from None


def _is_safe(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether Arrow keeps each value as it is, or refuses it, from one type to another."""
    if pa.types.is_nested(kind) or pa.types.is_nested(given):
        return False
    if pa.types.is_integer(given) and pa.types.is_timestamp(kind):
        return True
    if kind in _SHORT and pa.types.is_floating(given) and given.bit_width > kind.bit_width:
        return False
    if pa.types.is_float16(kind) and pa.types.is_integer(given):
        return False
    return _family(given) == _family(kind)


def _family(kind: pa.DataType) -> str:
    for accepts, family in _FAMILIES:
        if accepts(kind):
            return family
    return str(kind)


_FAMILIES: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (pa.types.is_boolean, "truth values"),
    (lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind), "numbers"),
    (pa.types.is_decimal, "decimals"),
    (lambda kind: any(accepts(kind) for accepts in _TEXTS), "text"),
    (lambda kind: any(accepts(kind) for accepts in _BYTES), "bytes"),
    (pa.types.is_timestamp, "timestamps"),
    (pa.types.is_date, "dates"),
    (pa.types.is_time, "times of day"),
    (pa.types.is_duration, "durations"),
]


def fit_for(kind: pa.DataType) -> Fit:
    """What makes a value fit a type; values of types that are not known here stay as they are."""
    if pa.types.is_struct(kind):
        return _struct({field.name: fit_for(field.type) for field in kind})
    if is_list(kind):
        return _list(fit_for(kind.value_type))
    if pa.types.is_map(kind):
        return _map(fit_for(kind.key_type), fit_for(kind.item_type))
    if pa.types.is_dictionary(kind):
        return fit_for(kind.value_type)
    if isinstance(kind, pa.UuidType):
        return _uuid
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _moment(_MICROS.get(kind.unit, 1), zoned=kind.tz is not None)
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_time(kind):
        return _time(_MICROS.get(kind.unit, 1))
    if pa.types.is_duration(kind):
        return _duration(_MICROS.get(kind.unit, 1))
    if kind in _SHORT:
        return _short(_SHORT[kind])
    if pa.types.is_floating(kind):
        return _of_types(int, float)
    return _PLAIN.get(_family(kind), _as_it_is)


def _of_types(*allowed: type) -> Fit:
    def fit(value: Any) -> Any:
        if isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool)):
            return value
        raise Unfit(f"it is {kind_of(value)}")

    return fit


def _as_it_is(value: Any) -> Any:
    return value


_PLAIN: dict[str, Fit] = {
    "truth values": _of_types(bool),
    "numbers": _of_types(int),
    "text": lambda value: str(value) if isinstance(value, UUID) else _of_types(str)(value),
    "bytes": _of_types(bytes),
}


def _struct(inside: dict[str, Fit]) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Unfit(f"it is {kind_of(value)}")
        found = {}
        for name, inner in value.items():
            if name in inside:
                try:
                    found[name] = None if inner is None else inside[name](inner)
                except Unfit as error:
                    raise Unfit(f"{name}: {error}") from None
            elif not is_bare(inner):
                raise Unfit(f"the column has no {name!r} inside")
        return found

    return fit


def is_bare(value: Any) -> bool:
    """Whether a value shows no type: None, and lists and dicts of nothing else."""
    if isinstance(value, dict):
        return all(map(is_bare, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_bare, value))
    return value is None


def _list(item: Fit) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise Unfit(f"it is {kind_of(value)}")
        return [None if each is None else item(each) for each in value]

    return fit


def _map(key: Fit, item: Fit) -> Fit:
    def fit(value: Any) -> Any:
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list | tuple):
            raise Unfit(f"it is {kind_of(value)}")
        found = []
        for pair in pairs:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise Unfit(f"{pair!r:.40} is no pair of a key and a value")
            found.append((key(pair[0]), None if pair[1] is None else item(pair[1])))
        return found

    return fit


def _short(kind: type[np.floating[Any]]) -> Fit:
    def fit(value: Any) -> Any:
        number = _of_types(int, float)(value)
        if not is_kept(number, kind):
            raise Unfit("it would be rounded: a double keeps fifteen digits, a shorter float fewer")
        return number

    return fit


def is_kept(value: float, kind: type[np.floating[Any]]) -> bool:
    """Whether a short float has the value, or is written as the same number."""
    try:
        with np.errstate(over="ignore"):
            short = kind(value)
    except OverflowError:
        return False
    is_written_alike = type(value) is not int and float(str(short)) == value
    return bool(float(short) == value or is_written_alike or value != value)


def _uuid(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, bytes):
        return value
    if type(value) is not str:
        raise Unfit(f"it is {kind_of(value)}")
    try:
        return UUID(value).bytes
    except ValueError:
        raise Unfit("it is text, but no UUID") from None


def _decimal(precision: int, scale: int) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is int:
            number = Decimal(value)
        elif isinstance(value, Decimal):
            number = value
        elif type(value) is str:
            number = decimal_of(value)
        else:
            raise Unfit(f"it is {kind_of(value)}")
        if not number.is_finite():
            raise Unfit("it is not finite")
        sign, digits, exponent = number.as_tuple()
        beyond = -scale - int(exponent)
        if beyond > 0 and any(digits[-beyond:]):
            raise Unfit(f"it would be rounded to {scale} digits behind the point")
        if number and number.adjusted() >= precision - scale:
            raise Unfit(f"it has more than {precision - scale} digits before the point")
        if not number:
            return Decimal(0)  # Arrow takes no 0e999
        # Nor zeros behind the last digit that the column keeps.
        return Decimal((sign, digits[:-beyond], -scale)) if beyond > 0 else number

    return fit


def _moment(grain: int, *, zoned: bool) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is str:
            value = moment_of(value)
        elif type(value) is int:
            return value
        if not isinstance(value, date):
            raise Unfit(f"it is {kind_of(value)}")
        if not isinstance(value, datetime):
            value = datetime.combine(value, time())
        _refuse_finer(value.microsecond, grain)
        try:
            if value.tzinfo is None:
                return value.replace(tzinfo=UTC) if zoned else value
            return value if zoned else value.astimezone(UTC).replace(tzinfo=None)
        except OverflowError:
            raise Unfit("in UTC it is not between the years 1 and 9999") from None

    return fit


def _date(value: Any) -> Any:
    if type(value) is str:
        return date_of(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise Unfit(f"it is {kind_of(value)}")


def _time(grain: int) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is str:
            value = time_of(value)
        if not isinstance(value, time):
            raise Unfit(f"it is {kind_of(value)}")
        if value.tzinfo is not None:
            raise Unfit("it has a zone, which the column does not keep")
        _refuse_finer(value.microsecond, grain)
        return value

    return fit


def _duration(grain: int) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is str:
            value = duration_of(value)
        if not isinstance(value, timedelta):
            raise Unfit(f"it is {kind_of(value)}")
        _refuse_finer(value.microseconds, grain)
        return value

    return fit


def _refuse_finer(micros: int, grain: int) -> None:
    if micros % grain:
        raise Unfit("it would be rounded: the column keeps fewer digits of a second")
