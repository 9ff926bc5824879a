"""Events of Nexmark under an open load, and the right rows of joins and sessions.

Event time runs ten times as fast as the load's: each tick of a tenth of a second is one second of
events. So windows of ten seconds close about once in a second, and so do sessions with such a gap,
whatever the load is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.bench.frame.runner import find_mismatches
from headrace.bench.nexmark import answers as nexmark
from headrace.workloads.nexmark.events.generator import START_US, Generator

TICK_US = 1_000_000
REMAINDERS = 16


@dataclass
class EventsQuery:
    """A join (q3, q8), or sessions (q11)."""

    name: str
    seed: int = 1
    _events: int = 0
    _ticks: int = 0
    _needed: list[pa.Table] = field(default_factory=list)
    """What decides the right rows."""

    @property
    def by_time(self) -> bool:
        return self.name != "q3"

    def table(self, records: int) -> pa.Table:
        first, begin = self._events, START_US + self._ticks * TICK_US
        batch = Generator(seed=self.seed).events(first, first + records)
        times = begin + np.arange(records, dtype=np.int64) * TICK_US // records
        # No answer depends on whether a session goes on after exactly its gap: events of ticks that
        # are a gap apart leave other remainders.
        times[1:] += 1 + self._ticks % (REMAINDERS - 2) - times[1:] % REMAINDERS
        times[-1] = begin + TICK_US - 1
        events = pa.Table.from_batches([batch])
        at = events.column_names.index("date_time")
        events = events.set_column(at, events.schema.field(at), pa.array(times))
        self._events, self._ticks = first + records, self._ticks + 1
        is_bid = pc.equal(events["kind"], "bid")
        wanted = is_bid if self.name == "q11" else pc.invert(is_bid)
        self._needed.append(events.select(nexmark.NEEDED[self.name]).filter(wanted))
        return events

    def reached(self) -> int:
        return START_US + self._ticks * TICK_US - 1

    def closes(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        ends: npt.NDArray[np.int64]
        if self.name == "q8":
            ends = rows["window_start"].to_numpy() + nexmark.WINDOW_US
        else:
            ends = rows["end_time"].to_numpy()
        # Spark's clock has whole milliseconds, and a timer of a session fires one later.
        return (ends // 1_000 + 1) * 1_000

    def mismatches(self, outputs: Iterable[pa.Table]) -> list[str]:
        until = self.reached() - nexmark.WINDOW_US
        found = [nexmark.rows_as_counts(self.name, rows, until) for rows in outputs if len(rows)]
        right = nexmark.right_rows(self.name, pa.concat_tables(self._needed))
        return find_mismatches(
            pa.concat_tables([nexmark.COUNTS_SCHEMA.empty_table(), *found]),
            nexmark.rows_as_counts(self.name, right, until),
        )
