"""Times without a zone, read in one: what clocks on the wall of some place showed.

Where clocks are put back, a time comes twice: it is the first of both. Where they are put forward,
a time does not come at all: it is read as if clocks had not been changed yet, and so lies as far
behind the change as it says. Python (fold=0), Java and Spark decide alike.
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
    """The zone of an IANA name; InvalidPipeline where there is none."""
    try:
        return ZoneInfo(name)
    except Exception:  # each way to get a name wrong has its own error
        known = available_timezones()
        hint = did_you_mean(name, known) if isinstance(name, str) else ""
        if not known:
            hint = "; this Python has no zones at all: pip install tzdata"
        raise InvalidPipeline(
            f'zone= is an IANA name such as "Europe/Berlin" or "UTC", not {name!r:.80}{hint}'
        ) from None


def in_zone(moment: datetime, zone: ZoneInfo) -> datetime:
    """A naive datetime, in UTC; one that has a zone keeps it."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone).astimezone(UTC)


def columns_in_zone(micros: Any, zone: ZoneInfo) -> Any:
    """The same for numpy's microseconds since 1970: zones are asked once for each second."""
    seconds, places = np.unique(micros // SECOND, return_inverse=True)
    offsets = np.array([_offset_us(second, zone) for second in seconds.tolist()], np.int64)
    return micros - offsets[places] if len(offsets) else micros


def _offset_us(second: int, zone: ZoneInfo) -> int:
    moment = _EPOCH + timedelta(seconds=second)
    offset = moment.replace(tzinfo=zone).utcoffset() or timedelta(0)
    return round(offset / timedelta(microseconds=1))
