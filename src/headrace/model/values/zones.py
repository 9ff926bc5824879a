"""Interprets times without a zone as local times of a given zone.

When clocks go back, some times occur twice: the first of the two is taken. When clocks go forward,
some times do not occur: they are read with the offset before the change. Python (fold=0), Java and
Spark decide in the same way.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np

from headrace.errors import InvalidPipeline
from headrace.model.values.names import did_you_mean
from headrace.model.values.time import SECOND

_EPOCH = datetime(1970, 1, 1)


def zone_named(name: Any) -> ZoneInfo:
    """The zone of an IANA name; raises InvalidPipeline if there is none."""
    try:
        return ZoneInfo(name)
    except Exception:  # each kind of wrong name raises a different error
        known = available_timezones()
        hint = did_you_mean(name, known) if isinstance(name, str) else ""
        if not known:
            hint = "; this Python has no zones at all: pip install tzdata"
        raise InvalidPipeline(
            f'zone= is an IANA name such as "Europe/Berlin" or "UTC", not {name!r:.80}{hint}'
        ) from None


def in_zone(moment: datetime, zone: ZoneInfo) -> datetime:
    """A naive datetime of the zone, as UTC. A datetime that has a zone is not changed."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone).astimezone(UTC)


def columns_in_zone(micros: Any, zone: ZoneInfo) -> Any:
    """Naive numpy microseconds of the zone, as UTC. The zone is looked up once per second value."""
    seconds, places = np.unique(micros // SECOND, return_inverse=True)
    offsets = np.array([_offset_us(second, zone) for second in seconds.tolist()], np.int64)
    return micros - offsets[places] if len(offsets) else micros


def _offset_us(second: int, zone: ZoneInfo) -> int:
    moment = _EPOCH + timedelta(seconds=second)
    offset = moment.replace(tzinfo=zone).utcoffset() or timedelta(0)
    return round(offset / timedelta(microseconds=1))
