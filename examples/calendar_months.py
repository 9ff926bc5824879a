"""A window of your own: calendar months of a time zone, and what each customer used in them.

    python examples/calendar_months.py

Months differ in length, and so do days where clocks are put forward and back, so no fixed size
cuts them. A window class says for any times in which window they lie; everything else (state,
late records, when rows are emitted, crashes) is as with `tumbling`. `emit="changes"` shows the
running month with every epoch; drop it to get one row when a month is over.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from headrace import SECOND, Pipeline, Window, agg, sinks, sources

EPOCH = datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))


@dataclass(frozen=True)
class Months(Window):
    """Calendar months as the clocks of a time zone show them."""

    zone: str

    def assign(self, times):
        bounds = np.array(self._starts(int(times.min()), int(times.max())))
        month = np.searchsorted(bounds, times, side="right") - 1
        return np.arange(len(times)), bounds[month], bounds[month + 1]

    def _starts(self, first, last):
        """The starts of the months from that of `first` to the one behind that of `last`."""
        zone = ZoneInfo(self.zone)
        day = (EPOCH + timedelta(microseconds=first)).astimezone(zone)
        year, month, found = day.year, day.month, []
        while not found or found[-1] <= last:
            start = datetime(year, month, 1, tzinfo=zone)
            found.append(int(start.timestamp()) * SECOND)
            year, month = year + month // 12, month % 12 + 1
        return found


READINGS = [
    {"customer": "mill", "kwh": 7, "at": "2026-02-28T22:59:00Z"},  # the last minute of February
    {"customer": "mill", "kwh": 2, "at": "2026-02-28T23:00:00Z"},  # March has begun in Berlin
    {"customer": "forge", "kwh": 4, "at": "2026-03-15T12:00:00Z"},
    {"customer": "mill", "kwh": 1, "at": "2026-03-31T21:59:00Z"},  # summer time since the 29th
    {"customer": "mill", "kwh": 5, "at": "2026-03-31T22:00:00Z"},  # April
]

p = Pipeline("calendar-months")
(
    p.read("readings", sources.memory(READINGS, timestamp="at"))
    .key_by("customer")
    .window(Months("Europe/Berlin"), grace="1d", emit="changes")
    .aggregate(kwh=agg.sum("kwh"), readings=agg.count())
    .named("bills")
    .write(sinks.jsonl("out/bills"))
)

if __name__ == "__main__":
    print(p.run(checkpoint="out/bills_state"))
