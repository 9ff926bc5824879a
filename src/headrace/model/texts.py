"""Decimals, dates and times of the texts as which they travel in a record; exactly, or not at all.

Python alone would cut off digits of a second beyond six, and take `1_000` for a number.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?|NaN|-?Infinity")
_TOO_FINE = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")
"""A fraction of a second that microseconds cannot hold."""


class Unfit(ValueError):
    """Why a value does not fit its column or field."""


def decimal_of(text: str) -> Decimal:
    """The number that a text writes, with all its digits."""
    if _NUMBER.fullmatch(text) is None:
        raise Unfit("it is text, but no number")
    return Decimal(text)


def date_of(text: str) -> date:
    """A day, `2024-05-01`. A text with a time of day is none."""
    return _parsed(date, text, "date such as 2024-05-01")


def moment_of(text: str) -> datetime:
    """A time as ISO 8601 writes it, with its zone if it says one."""
    return _parsed(datetime, text, "time such as 2024-05-01T12:30:00Z")


def time_of(text: str) -> time:
    """A time of day."""
    return _parsed(time, text, "time of day such as 12:30:00")


def duration_of(text: str) -> timedelta:
    """A duration as ISO 8601 writes it, in days, hours, minutes and seconds: `P1DT2H`."""
    if _TOO_FINE.search(text) is None:
        try:
            return msgspec.convert(text, timedelta)
        except msgspec.ValidationError:
            pass
    raise Unfit("it is text, but no duration such as P1DT2H30M, to microseconds")


def _parsed(kind: Any, text: str, form: str) -> Any:
    if _TOO_FINE.search(text) is not None:
        raise Unfit("it would be rounded: it has more than six digits of a second")
    try:
        return kind.fromisoformat(text)
    except ValueError:
        raise Unfit(f"it is text, but no {form}") from None
