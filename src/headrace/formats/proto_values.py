"""Messages of Protobuf as values of records, and back.

A message is a dict with all fields of its type. A field that can be absent (a message, `optional`,
a part of a `oneof`) is None if it is. Enums are names; a number that has no name stays a number.
Google's own types are what they stand for: timestamps and durations those of Python (microseconds),
wrappers their values, `Struct` a dict. The text of a timestamp may have nanoseconds, and they are
written; what a field would round is refused.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.formats.format import holds
from headrace.model.texts import Unfit, duration_of, moment_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GOOGLE = "google.protobuf."
_WRAPPERS = {
    f"{_GOOGLE}{kind}Value"
    for kind in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
}
_MESSAGE, _ENUM = 10, 8  # FieldDescriptor.CPPTYPE_MESSAGE, CPPTYPE_ENUM
_FLOATS = {5: "double", 6: "float"}
_BOOL = 7
_STRING = 9  # FieldDescriptor.TYPE_STRING
_NANOS = re.compile(r"([^.,]*[.,][0-9]{6})([0-9]{1,3})0*(Z|[+-][0-9:]+)")
"""The text of a time: to microseconds, the rest of its nanoseconds, its zone."""
_NANOSECOND = 1e-9


def to_value(message: Any) -> Any:
    """The value of a message."""
    name = message.DESCRIPTOR.full_name
    if name.startswith(_GOOGLE):
        special = _READ.get(name[len(_GOOGLE) :])
        if special is not None:
            return special(message)
        if name in _WRAPPERS:
            return message.value
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    if field.is_repeated:
        found = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            return {key: _one(found[key], inner) for key in sorted(found)}
        return [_one(each, field) for each in found]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(getattr(message, field.name), field)


def _one(found: Any, field: Any) -> Any:
    if field.cpp_type == _MESSAGE:
        return to_value(found)
    if field.cpp_type == _ENUM:
        named = field.enum_type.values_by_number.get(found)
        return found if named is None else named.name
    return found


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _duration(message: Any) -> timedelta:
    return timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _struct(message: Any) -> dict[str, Any]:
    return {name: _any_value(message.fields[name]) for name in sorted(message.fields)}


def _any_value(message: Any) -> Any:
    which = message.WhichOneof("kind")
    if which == "struct_value":
        return _struct(message.struct_value)
    if which == "list_value":
        return _list(message.list_value)
    return None if which in (None, "null_value") else getattr(message, which)


def _list(message: Any) -> list[Any]:
    return [_any_value(each) for each in message.values]


_READ = {
    "Timestamp": lambda message: _EPOCH + _duration(message),
    "Duration": _duration,
    "Struct": _struct,
    "Value": _any_value,
    "ListValue": _list,
}


def fill(message: Any, value: Any, place: str = "") -> None:
    """Writes a value into an empty message; ValueError if it does not fit."""
    name = message.DESCRIPTOR.full_name
    if name.startswith(_GOOGLE):
        if name in _WRAPPERS:
            if value is None:
                raise _misfit(place, "it is part of a list or a map, where nothing can be absent")
            value = {"value": value}
        elif name[len(_GOOGLE) :] in _WRITE:
            _WRITE[name[len(_GOOGLE) :]](message, value, place)
            message.SetInParent()
            return
    if type(value) is not dict:
        raise _misfit(place, f"a {name} is a dict, not {type(value).__name__}")
    fields = message.DESCRIPTOR.fields_by_name
    for key, inner in value.items():
        at = f"{place}.{key}" if place else str(key)
        field = fields.get(key)
        if field is None:
            raise _misfit(at, f"{name} has no such field")
        if inner is not None:
            chosen = field.containing_oneof and message.WhichOneof(field.containing_oneof.name)
            if chosen:
                raise _misfit(at, f"{chosen} is there, too, and they are parts of one oneof")
            _set(message, field, inner, at)
        elif not field.is_repeated and not field.has_presence:
            raise _misfit(at, "it has no `optional`, so it cannot be None: leave it out, or say 0")
    message.SetInParent()


def _set(message: Any, field: Any, value: Any, place: str) -> None:
    try:
        if not field.is_repeated:
            if field.cpp_type == _MESSAGE:
                fill(getattr(message, field.name), value, place)
            else:
                setattr(message, field.name, _plain(value, field))
        elif _is_map(field):
            _set_map(getattr(message, field.name), field.message_type, value, place)
        elif type(value) is not list:
            raise _misfit(place, f"it is repeated, so a list, not {type(value).__name__}")
        else:
            target = getattr(message, field.name)
            for number, each in enumerate(value):
                if field.cpp_type == _MESSAGE:
                    fill(target.add(), each, f"{place}[{number}]")
                else:
                    target.append(_plain(each, field))
    except _Misfit:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise _misfit(place, str(error)) from None


def _set_map(target: Any, entry: Any, value: Any, place: str) -> None:
    if type(value) is not dict:
        raise _misfit(place, f"it is a map, so a dict, not {type(value).__name__}")
    key_field, inner = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for key, each in value.items():
        checked = _plain(key, key_field)
        if inner.cpp_type == _MESSAGE:
            fill(target[checked], each, f"{place}[{key!r}]")
        else:
            target[checked] = _plain(each, inner)


def _plain(value: Any, field: Any) -> Any:
    """A value that is neither a message nor a list. The library itself refuses most that is wrong,
    but takes True for a number, and rounds."""
    if field.cpp_type == _ENUM and type(value) is str:
        named = field.enum_type.values_by_name.get(value)
        if named is None:
            raise ValueError(f"{field.enum_type.full_name} has no {value!r:.80}")
        return named.number
    if type(value) is bool and field.cpp_type != _BOOL:
        raise TypeError("it is a bool, not a number")
    kind = _FLOATS.get(field.cpp_type)
    if type(value) is float and kind is None:
        raise TypeError(f"{value!r} is no integer")
    if type(value) in (int, float) and kind is not None and not holds(kind, value):
        raise ValueError(f"{str(value)[:40]} is no {kind}")
    if type(value) is bytes and field.type == _STRING:
        raise TypeError("it is bytes, not text")
    if field.cpp_type == _BOOL and type(value) is not bool:
        raise TypeError(f"it is {type(value).__name__}, not a bool")
    return value


class _Misfit(ValueError):
    pass


def _misfit(place: str, reason: str) -> _Misfit:
    return _Misfit(f"{place}: {reason}" if place else reason)


def _write_timestamp(message: Any, value: Any, place: str) -> None:
    nanos = 0
    if type(value) is str:
        if found := _NANOS.fullmatch(value):
            value, nanos = found[1] + found[3], int(found[2].ljust(3, "0"))
        try:
            value = moment_of(value)
        except Unfit as error:
            raise _misfit(place, f"{value[:40]!r}: {error}") from None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _misfit(place, "a timestamp is a datetime with a zone, or its text")
    _write_span(message, value - _EPOCH)
    message.nanos += nanos


def _write_duration(message: Any, value: Any, place: str) -> None:
    if type(value) is str:  # as a produced timedelta is
        try:
            value = duration_of(value)
        except Unfit:
            raise _misfit(
                place, f"{value[:40]!r} is no duration to microseconds, such as 'PT1.5S'"
            ) from None
    if not isinstance(value, timedelta):
        if type(value) not in (int, float):
            raise _misfit(place, "a duration is a timedelta, its text, or a number of seconds")
        span = timedelta(seconds=value)
        # What is less than the field itself could hold is the noise of floats, as in 0.1 + 0.2.
        if type(value) is float and abs(span.total_seconds() - value) >= _NANOSECOND / 2:
            raise _misfit(place, f"{value} seconds would be rounded to microseconds")
        value = span
    _write_span(message, value, towards_zero=True)


def _write_span(message: Any, span: timedelta, *, towards_zero: bool = False) -> None:
    micros = span // timedelta(microseconds=1)
    seconds, rest = divmod(micros, 1_000_000)
    if towards_zero and micros < 0 and rest:  # the two parts of a duration have one sign
        seconds, rest = seconds + 1, rest - 1_000_000
    message.seconds, message.nanos = seconds, rest * 1000


def _write_struct(message: Any, value: Any, place: str) -> None:
    if type(value) is not dict:
        raise _misfit(place, f"a Struct is a dict, not {type(value).__name__}")
    message.SetInParent()
    for key, inner in value.items():
        _write_any(message.fields[key], inner, f"{place}.{key}")


def _write_list(message: Any, value: Any, place: str) -> None:
    if type(value) is not list:
        raise _misfit(place, f"it is a list, not {type(value).__name__}")
    message.SetInParent()
    for number, inner in enumerate(value):
        _write_any(message.values.add(), inner, f"{place}[{number}]")


def _write_any(message: Any, value: Any, place: str) -> None:
    kind = type(value)
    if value is None:
        message.null_value = 0
    elif kind is bool:
        message.bool_value = value
    elif kind in (int, float):
        if kind is int and int(float(value)) != value:
            raise _misfit(place, f"{value} is beyond what a number of a Struct can hold")
        message.number_value = value
    elif kind is str:
        message.string_value = value
    elif kind is list:
        _write_list(message.list_value, value, place)
    else:
        _write_struct(message.struct_value, value, place)


_WRITE = {
    "Timestamp": _write_timestamp,
    "Duration": _write_duration,
    "Struct": _write_struct,
    "Value": _write_any,
    "ListValue": _write_list,
}
