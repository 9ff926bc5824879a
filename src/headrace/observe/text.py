"""Numbers as text for people: bytes, spans of time, instants, rates.

Pure functions, shared by every view.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from headrace.model.values.time import (
    BEGINNING,
    DAY,
    HOUR,
    LATEST,
    MILLISECOND,
    MINUTE,
    SECOND,
    show_instant,
)
from headrace.plan.progress import StoreUse
from headrace.store.counts import RequestCounts

_SPANS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"))


def show_bytes(size: int) -> str:
    """A number of bytes with its unit: `1536` is 1.5 kB."""
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1_000:
            break
        amount, unit = amount / 1_000, larger
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"


def show_span(micros: int) -> str:
    """A span of time by its two largest units: `1h30m`, `45s`, `200ms`."""
    if micros < SECOND:
        return f"{max(micros, 0) // MILLISECOND}ms"
    for place, (size, unit) in enumerate(_SPANS):
        if micros >= size:
            text = f"{micros // size}{unit}"
            if place + 1 < len(_SPANS):
                smaller, name = _SPANS[place + 1]
                rest = micros % size // smaller
                text += f"{rest}{name}" if rest else ""
            return text
    return ""


def show_time(micros: int) -> str:
    """An instant, to the second."""
    if BEGINNING < micros < LATEST:
        micros -= micros % SECOND
    return show_instant(micros)


def show_lag(watermark: int, newest: int) -> str:
    """How far the watermark is behind the newest record, if both are known."""
    if not BEGINNING < watermark < LATEST or newest <= BEGINNING:
        return ""
    return f"{show_span(max(newest - watermark, 0))} behind"


def show_rate(records: int, seconds: float) -> str:
    """Records per second."""
    return f"{records / seconds:,.0f}/s" if seconds > 0 else "-"


def show_use(use: StoreUse) -> str:
    """Requests to a store by kind, and how many reads found a copy on the executor's disk."""
    total = sum(use.requests.values(), RequestCounts())
    kinds = ("puts", "gets", "lists", "deletes")
    parts = [f"{count:,} {kind}" for kind in kinds if (count := getattr(total, kind))]
    if use.reads:
        parts.append(f"{use.hit_rate:.0%} of {use.reads:,} reads from the local disk")
    return ", ".join(parts)


def json_text(value: Any) -> str:
    """A value as JSON on one line; what JSON has no form for is shown as text."""
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except UnicodeEncodeError:  # half of a surrogate pair, as in the name of a file
        plain = json.dumps(msgspec.to_builtins(value, enc_hook=str), ensure_ascii=False)
        return re.sub("[\ud800-\udfff]", lambda half: f"\\\\u{ord(half[0]):04x}", plain)
