"""Instants, durations and the ends of time.

An instant is an `int` of microseconds since 1970 UTC. A duration is text such
as `"250ms"`, `"1h30m"`, or a `timedelta`; a bare number is refused, because
its unit is unclear. All intervals are half-open: watermark W means that all
records with timestamp < W have arrived.
"""

from __future__ import annotations

import operator
import re
from datetime import UTC, datetime, timedelta

from headrace.errors import InvalidDuration

MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

BEGINNING = 0
"""The lowest watermark: no record has a timestamp below it."""

END = 2**63 - 1
"""The final watermark: no more records will arrive."""

LATEST = 253_402_300_800 * SECOND
"""The year 10000. A timestamp at or after it is treated as a wrong unit, not as a time."""

Instant = int | datetime
Duration = str | timedelta

_UNITS = {
    "us": 1, "ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY,
}  # fmt: skip
_WORDED = re.compile(r"(\d+(?:\.\d+)?)( *)([a-zµ]+)([ ,]*)")
_UNIT_OF_WORD = {
    word: unit
    for unit, words in {
        "us": "us µs microsecond microseconds", "ms": "ms msec millisecond milliseconds",
        "s": "s sec secs second seconds", "m": "m min mins minute minutes",
        "h": "h hr hrs hour hours", "d": "d day days",
    }.items()
    for word in words.split()
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")


def oldest_on_time(watermark: int) -> int:
    """The oldest time that is not late under a watermark. After the final one none is late (D2)."""
    return BEGINNING if watermark == END else watermark


def duration(value: Duration, *, what: str = "a duration") -> int:
    """Microseconds of a duration given as text or `timedelta`."""
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
    elif isinstance(value, str):
        text = value.strip()
        parts = _PART.findall(text)
        if not parts or "".join(n + u for n, u in parts) != text:
            raise InvalidDuration(
                f'{what} is written like "250ms", "10s", "1h30m" or "7d", not {value!r}'
                f"{_perhaps(text)}"
            )
        micros = round(sum(float(n) * _UNITS[u] for n, u in parts))
    else:
        raise InvalidDuration(
            f'{what} needs a unit: write "10s" or a timedelta, not the bare {value!r}'
        )
    if micros < 0:
        raise InvalidDuration(f"{what} cannot be negative: {value!r}")
    if micros > LATEST:
        raise InvalidDuration(f"{what} is longer than time itself (8,030 years): {value!r}")
    return micros


def _perhaps(text: str) -> str:
    """A hint for words and spaces: "10 minutes" is "10m"."""
    parts = _WORDED.findall(text.lower())
    if not parts or "".join(n + gap + word + end for n, gap, word, end in parts) != text.lower():
        return ""
    units = [_UNIT_OF_WORD.get(word) for _, _, word, _ in parts]
    if None in units:
        return ""
    return f' (did you mean "{"".join(f"{p[0]}{u}" for p, u in zip(parts, units, strict=True))}"?)'


def instant(value: Instant, *, what: str = "an instant") -> int:
    """Microseconds since 1970 UTC of an int or an aware datetime."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise TypeError(f"{what} needs a time zone: {value!r} is naive")
        return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(
            f"{what} is microseconds as int, or an aware datetime, not {type(value).__name__}"
        )
    micros = operator.index(value)  # accepts a numpy integer too
    if not -END <= micros <= END:
        raise ValueError(f"{what} is microseconds in 64 bits; {micros} is not")
    return micros


def show_instant(micros: int) -> str:
    """An instant as text."""
    if micros <= BEGINNING:
        return "the beginning"
    if micros >= LATEST:
        return "the end"
    return datetime.fromtimestamp(micros / SECOND, UTC).isoformat().replace("+00:00", "Z")
