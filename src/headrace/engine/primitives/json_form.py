"""Values of state as JSON, and keys as people type them.

JSON has only text as names, and state may have any key: of a window, of a `Map[bytes, int]`.

- For people (`json_line`): a dict whose keys are texts and integers is an object, with integers as
  text. Any other dict, and one in which two names would be equal ({1: ..., "1": ...}), is a list of
  [key, value] pairs. Bytes are {"bytes": their base64}. NaN and Infinity are texts. A key is typed
  in the same form (`typed_key`).
- For columns of exports (`exact_json`): what JSON has no form for is an object with one name, which
  says what it is: {"bytes": ...}, {"float": "NaN"}, {"time": ...}, {"pairs": [[key, value], ...]}.
  So every value comes back as it was (`from_exact_json`).

All of it is pure.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import datetime
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from headrace.errors import InvalidRecord

BYTES, _FLOAT, _INTEGER, _TIME = "bytes", "float", "integer", "time"
_EXTENSION, _PAIRS, _SHOWN = "extension", "pairs", "shown"
_TAGS = frozenset((BYTES, _FLOAT, _INTEGER, _TIME, _EXTENSION, _PAIRS, _SHOWN))
_BITS_MAX = 10_000
"""Python refuses to write integers of many more bits as decimal text."""


def json_line(value: Any) -> str:
    """A value as one line of JSON for people; a type that JSON does not know is shown by `repr`."""
    plain = msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=False, enc_hook=repr)
    return json.dumps(_readable(plain), default=repr)


def _readable(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        names = [str(_readable(key)) if type(key) is int else key for key in value]
        cells = [_readable(inner) for inner in value.values()]
        if len(set(names)) == len(names) and all(type(name) is str for name in names):
            return dict(zip(names, cells, strict=True))
        return [[_readable(key), cell] for key, cell in zip(value, cells, strict=True)]
    if kind in (list, tuple):
        return [_readable(inner) for inner in value]
    if kind is bytes:
        return {BYTES: base64_of(value)}
    if kind is float and not math.isfinite(value):
        return name_of(value)
    return hex(value) if kind is int and value.bit_length() > _BITS_MAX else value


def name_of(number: float) -> str:
    """The name of a float that JSON has no number for."""
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def base64_of(raw: bytes) -> str:
    """Bytes as text."""
    return base64.b64encode(raw).decode()


# Exactly ---------------------------------------------------------------------


def exact_json(value: Any) -> str:
    """A value of state as JSON, from which `from_exact_json` makes it again."""
    return json.dumps(_exact(value), ensure_ascii=False)


def _exact(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        cells = [_exact(inner) for inner in value.values()]
        is_object = all(type(name) is str for name in value)
        if is_object and not (len(value) == 1 and next(iter(value)) in _TAGS):
            return dict(zip(value, cells, strict=True))
        return {_PAIRS: [[_exact(key), cell] for key, cell in zip(value, cells, strict=True)]}
    if kind in (list, tuple):
        return [_exact(inner) for inner in value]
    if kind is bytes:
        return {BYTES: base64_of(value)}
    if kind is float:
        return value if math.isfinite(value) else {_FLOAT: name_of(value)}
    if kind is int:
        return value if value.bit_length() <= _BITS_MAX else {_INTEGER: hex(value)}
    if value is None or kind in (str, bool):
        return value
    if kind is datetime:
        return {_TIME: value.isoformat()}
    if kind is Ext:
        return {_EXTENSION: [value.code, base64_of(bytes(value.data))]}
    return {_SHOWN: repr(value)}


def from_exact_json(text: str) -> Any:
    """The value of what `exact_json` wrote; ValueError if it cannot be made again."""
    return _made(json.loads(text))


def _made(found: Any) -> Any:
    if type(found) is list:
        return [_made(each) for each in found]
    if type(found) is not dict:
        return found
    if len(found) == 1:
        [(tag, form)] = found.items()
        if tag in _TAGS:
            return _tagged(tag, form)
    return {name: _made(inner) for name, inner in found.items()}


def _tagged(tag: str, form: Any) -> Any:
    if tag == _PAIRS:
        return {_as_name(_made(key)): _made(cell) for key, cell in form}
    if tag == BYTES:
        return base64.b64decode(form, validate=True)
    if tag == _FLOAT:
        return float(form)
    if tag == _INTEGER:
        return int(form, 16)
    if tag == _TIME:
        return datetime.fromisoformat(form)
    if tag == _EXTENSION:
        return Ext(form[0], base64.b64decode(form[1], validate=True))
    raise ValueError(f"{form} was exported as it is shown, and cannot be read back")


def _as_name(key: Any) -> Any:
    """The key of a dict: a list was a tuple."""
    return tuple(map(_as_name, key)) if type(key) is list else key


# Keys ------------------------------------------------------------------------


def typed_key(text: str) -> Any:
    """A key as typed: JSON as `json_line` prints it, or a bare word for a text.

    A list is a key of several parts. What is JSON but no key, such as true and 1.5, is a text.
    """
    try:
        found = json.loads(text)
        if type(found) is list or _is_bytes(found):
            return _part(found)
    except (ValueError, RecursionError):
        return text
    return found if type(found) in (str, int) else text


def untyped_hint(typed: str) -> str:
    """How to type the text that was taken for another key; "" if it was not."""
    key = typed_key(typed)
    if key == typed or isinstance(key, str):
        return ""
    kind = {int: "a number", bytes: "bytes"}.get(type(key), "a key of several parts")
    return f" ({kind}; if the key is a text, quote it: '{json.dumps(typed)}')"


def _is_bytes(found: Any) -> bool:
    return type(found) is dict and list(found) == [BYTES] and type(found[BYTES]) is str


def _part(found: Any) -> Any:
    if type(found) is list:
        return tuple(_part(each) for each in found)
    if not _is_bytes(found):
        return found
    try:
        return base64.b64decode(found[BYTES], validate=True)
    except ValueError as error:
        raise InvalidRecord(
            f"the bytes of the key {json.dumps(found)} are no base64: {error}"
        ) from None
