"""What is asked, the input for it, and the right answer.

A query object makes the input of one system, file by file, and adds up what must come out. Event
time follows the pace: the records of one tick lie within one tick of event time, so a window closes
about when a user would expect it to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.bench.frame.system import BYTEWAX, PYFLINK
from headrace.bench.latency.events import EventsQuery
from headrace.bench.nexmark import answers as nexmark
from headrace.bench.workload import FIRST_TIMESTAMP_US, INPUT_SCHEMA, TOP, key_names
from headrace.errors import HeadraceError

KEYED_COUNT, WINDOWED_COUNT, TOP_K = "keyed-count", "windowed-count", "top-k"
BY_TIME = (WINDOWED_COUNT, TOP_K)
QUERIES = (KEYED_COUNT, *BY_TIME, *nexmark.QUERIES)
TICKS_PER_WINDOW = 2
NATIVE, TWS, TWS_ROW = "spark-native", "spark-tws", "spark-tws-row"
_SPARK = (NATIVE, TWS, TWS_ROW)
PEERS_OF = {
    **dict.fromkeys(QUERIES, _SPARK),
    KEYED_COUNT: (*_SPARK, BYTEWAX),
    TOP_K: (NATIVE,),
}
"""Query -> the peers that can be put under an open load."""
LEFT_OUT = {
    BYTEWAX: (
        "an open load is there for the keyed count only: its event clock follows the machine's, so "
        "windows close when the input ends, and how many rows a file gives is known for counts only"
    ),
    PYFLINK: (
        "no open load: its program reads a fixed set of files to their end, and drops its rows, so "
        "they have no time at which they become visible"
    ),
}
"""Peer -> why it cannot be put under an open load, or under that of other queries."""


class LatencyQuery(Protocol):
    """The input of one system, and what must come out of it."""

    name: str

    @property
    def by_time(self) -> bool:
        """Whether rows come out when event time closes them, or with their record's epoch."""
        ...

    def table(self, records: int) -> pa.Table:
        """The records of the next tick."""
        ...

    def reached(self) -> int:
        """The largest event time so far, in microseconds."""
        ...

    def closes(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """When each of these rows of the output closes, in microseconds of event time."""
        ...

    def mismatches(self, outputs: Iterable[pa.Table]) -> list[str]:
        """How the output, epoch by epoch, differs from the right answer; empty if it does not."""
        ...


@dataclass
class CountQuery:
    """Counts per key so far, or in tumbling windows, or the largest of each window."""

    name: str
    keys: int
    tick_us: int
    seed: int = 1
    adds_values: bool = False
    """Whether a record counts as often as its value says, and not once."""
    hot: float = 0.0
    """The share of the records that one key gets."""
    _ticks: int = 0
    _totals: list[npt.NDArray[np.int64]] = field(default_factory=list)
    """Per window (or in all): the count of every key."""

    @property
    def by_time(self) -> bool:
        return self.name in BY_TIME

    @property
    def window_us(self) -> int:
        """The size of windows."""
        return TICKS_PER_WINDOW * self.tick_us

    @property
    def first_us(self) -> int:
        """The first event time; a window begins with it."""
        return FIRST_TIMESTAMP_US // self.window_us * self.window_us

    def table(self, records: int) -> pa.Table:
        random = np.random.default_rng([self.seed, self._ticks])
        ids = random.integers(0, self.keys, records, dtype=np.int64)
        if self.hot:
            ids[random.random(records) < self.hot] = 0
        values = random.integers(1, 1_000, records, dtype=np.int64)
        begin = self.first_us + self._ticks * self.tick_us
        times = begin + np.arange(records, dtype=np.int64) * self.tick_us // records
        times[-1] = begin + self.tick_us - 1
        window = self._ticks // TICKS_PER_WINDOW if self.by_time else 0
        while len(self._totals) <= window:
            self._totals.append(np.zeros(self.keys, np.int64))
        if self.adds_values:
            np.add.at(self._totals[window], ids, values)
        else:
            self._totals[window] += np.bincount(ids, minlength=self.keys)
        self._ticks += 1
        return pa.table([key_names(ids), times, values], schema=INPUT_SCHEMA)

    def reached(self) -> int:
        return self.first_us + self._ticks * self.tick_us - 1

    def closes(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        starts: npt.NDArray[np.int64] = rows["window_start"].to_numpy()
        return starts + self.window_us

    def mismatches(self, outputs: Iterable[pa.Table]) -> list[str]:
        found: dict[tuple[str, int], int] = {}
        doubled = 0
        for rows in outputs:
            starts = rows["window_start"].to_pylist() if self.by_time else [0] * len(rows)
            for key, start, count in zip(
                rows["key"].to_pylist(), starts, rows["count"].to_pylist()
            ):
                doubled += self.by_time and (key, start) in found
                found[key, start] = count
        wrong = [f"{doubled} rows came out more than once"] if doubled else []
        expected = self._expected()
        closed = {start for _, start in expected}
        wrong += [
            f"{key} at {start}: {count}, expected nothing"
            for (key, start), count in found.items()
            if start in closed and (key, start) not in expected
        ]
        wrong += [
            f"{key} at {start}: {found.get((key, start))}, expected {count}"
            for (key, start), count in expected.items()
            if found.get((key, start)) != count
        ]
        return wrong[:5]

    def _expected(self) -> dict[tuple[str, int], int]:
        """The right counts; of windows, those that two later ones have followed."""
        windows = self._totals[:-2] if self.by_time else self._totals
        expected: dict[tuple[str, int], int] = {}
        for number, totals in enumerate(windows):
            start = self.first_us + number * self.window_us if self.by_time else 0
            seen = np.flatnonzero(totals)
            if self.name == TOP_K:
                seen = seen[np.lexsort((seen, -totals[seen]))][:TOP]
            names = key_names(seen).to_pylist()
            expected |= {(k, start): int(n) for k, n in zip(names, totals[seen])}
        return expected


def make_query(
    name: str,
    keys: int,
    tick_s: float,
    seed: int,
    *,
    adds_values: bool = False,
    hot: float = 0.0,
) -> LatencyQuery:
    """A new query object, for one system."""
    if name not in QUERIES:
        raise HeadraceError(f"latency: no query {name!r}; choose from {', '.join(QUERIES)}")
    if adds_values and name != KEYED_COUNT:
        raise HeadraceError(f"latency: values are added up in {KEYED_COUNT} only, not in {name}")
    if name in nexmark.QUERIES:
        return EventsQuery(name, seed)
    return CountQuery(name, keys, round(tick_s * 1e6), seed, adds_values, hot)
