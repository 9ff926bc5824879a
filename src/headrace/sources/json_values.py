"""JSON from outside, for every source that reads it: a value, or the reason why it is none.

The reason is the same wherever the value lies and however deep the caller is: a rejected record
must have the same dead letter in every attempt.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from headrace.model.values.codec import NESTED_MAX
from headrace.model.values.shown import is_nested
from headrace.sources.files.lines import not_utf8

decode = msgspec.json.Decoder().decode
MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# The decoder treats half a surrogate pair at the end of a text as truncated input.
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class NotJson(ValueError):
    """The reason why bytes are no JSON value of a record."""


def one_value(raw: bytes, instead: str) -> Any:
    """The value of some bytes; NotJson if they have none. `instead`: how else to read them."""
    try:
        value = decode(raw)
    except RecursionError:
        raise NotJson(_too_deep(instead)) from None
    except MALFORMED as error:
        raise NotJson(_reason(error, raw)) from None
    # Checked here, so that the reason is the same whether or not the decoder failed: the
    # depth at which it fails depends on the depth of its caller.
    if brackets(raw) > NESTED_MAX and is_nested(value, NESTED_MAX):
        raise NotJson(_too_deep(instead))
    return value


def brackets(raw: bytes) -> int:
    """How deep a value can be nested at most."""
    return raw.count(b"{") + raw.count(b"[")


def _too_deep(instead: str) -> str:
    return f"nested more than {NESTED_MAX} deep, which is too deep for a record: {instead}"


def _reason(error: Exception, raw: bytes) -> str:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as found:
        return not_utf8(found, raw)
    half = _HALF.search(_PAIR.sub(b"", raw))
    if half is not None:
        return f"not JSON: {half[0].decode()} is half of a surrogate pair, which is no character"
    return f"not JSON: {error}"
