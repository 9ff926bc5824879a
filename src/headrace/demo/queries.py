"""Makes a search log of a few days from a seed, so that the right findings are known.

The log contains planted events: a daily cycle, different in each region; spikes; an outage, in
which a query disappears; a delayed flurry, whose records have ordinary timestamps but arrive
together, hours later; and a few records that are later than any allowed lateness.

Invariants:
- The same seed makes the same log.
- Every record except the late ones arrives less than `LATENESS` after its timestamp, and each file
  is in order of arrival, so none of them can ever be late.
- The late ones come last and are from the first day, so they are late however the log is cut into
  epochs, unless one epoch reads it all.
- A query is in one file only, so its records have one order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.demo.model import BUCKET, BUCKETS_PER_DAY
from headrace.model.values.time import DAY, HOUR, MINUTE, SECOND

FIRST_DAY = 1_772_409_600 * SECOND  # Monday, 2 March 2026
DAYS = 4
HOURS = DAYS * BUCKETS_PER_DAY
LATENESS = "3h"
FRONT_ENDS = 4
LATE_RECORDS = 25
SPIKES = 6

# Region -> hours ahead of UTC. People search most in the afternoon and least before dawn.
REGIONS = {"americas": -6, "europe": 1, "africa": 2, "asia": 8, "oceania": 11}
HOME_SHARE = 0.6

# From the most to the least asked.
QUERIES = (
    "weather", "news", "maps", "translate", "football scores", "train times", "recipes",
    "calculator", "horoscope", "cinema", "cat videos", "exchange rate", "crossword", "lottery",
    "pancakes", "marathon", "eclipse", "chess opening", "headphones", "sourdough", "used bicycles",
    "song lyrics", "flight status", "tax return", "houseplants", "electric cars", "jazz radio",
    "sudoku", "hiking boots", "world cup", "guitar chords", "museum hours", "volcano",
    "coffee grinder", "knitting pattern", "telescope", "bird calls", "tide table", "origami",
    "violin strings", "water mill", "paper boats", "beekeeping", "sundial", "fountain pen",
    "stamp prices", "rain barrel", "watch repair",
)  # fmt: skip
MOST_PER_HOUR, FEWEST_PER_HOUR = 110.0, 14.0

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Planted:
    """Something that was put into the log: a "spike", an "outage" or a "flurry"."""

    kind: str
    query: str
    start: int
    end: int


@dataclass(frozen=True)
class SearchLog:
    """The log, record by record in order of arrival, and what was planted in it.

    The last `late` records are late.
    """

    timestamps: Ints
    arrivals: Ints
    queries: Ints
    regions: Ints
    planted: tuple[Planted, ...]
    late: int

    def __len__(self) -> int:
        return len(self.timestamps)

    def records(self, *, late: bool = True) -> Iterator[dict[str, Any]]:
        """The records as a reader of the files meets them, late ones included or not."""
        names = list(REGIONS)
        count = len(self) if late else len(self) - self.late
        columns = (self.timestamps[:count], self.queries[:count], self.regions[:count])
        for timestamp, query, region in zip(*(column.tolist() for column in columns)):
            yield {"ts": timestamp, "query": QUERIES[query], "region": names[region]}

    def by_arrival(self) -> Iterator[dict[str, Any]]:
        """What a processor without event time would see: the arrival time as the timestamp."""
        end = FIRST_DAY + DAYS * DAY
        for arrival, query in zip(self.arrivals.tolist(), self.queries.tolist()):
            if arrival < end:
                yield {"ts": arrival, "query": QUERIES[query]}


def make_log(seed: int = 1) -> SearchLog:
    """The search log of a seed."""
    random = np.random.default_rng(seed)
    rates = _rates(random)
    planted = _plant(random, rates)
    timestamps, queries, regions = _searches(random, rates)
    for event in planted:
        query = QUERIES.index(event.query)
        if event.kind == "outage":
            inside = (queries == query) & (timestamps >= event.start) & (timestamps < event.end)
            timestamps, queries, regions = (c[~inside] for c in (timestamps, queries, regions))
        elif event.kind == "spike":
            more = _spike(random, rates, query, event)
            timestamps = np.concatenate([timestamps, more[0]])
            queries = np.concatenate([queries, np.full(len(more[0]), query)])
            regions = np.concatenate([regions, more[1]])
    arrivals = _arrivals(random, timestamps, queries, planted)
    late = _late(random, timestamps, int(arrivals.max()))
    chosen = late[0]
    timestamps = np.concatenate([timestamps, timestamps[chosen]])
    queries = np.concatenate([queries, queries[chosen]])
    regions = np.concatenate([regions, regions[chosen]])
    arrivals = np.concatenate([arrivals, late[1]])
    order = np.argsort(arrivals, kind="stable")
    return SearchLog(
        timestamps[order], arrivals[order], queries[order], regions[order], planted, LATE_RECORDS
    )


def write_log(log: SearchLog, directory: Path) -> list[Path]:
    """Writes the log as JSON lines, one file per front end, each in order of arrival."""
    directory.mkdir(parents=True, exist_ok=True)
    lines: list[list[str]] = [[] for _ in range(FRONT_ENDS)]
    for record, query in zip(log.records(), log.queries.tolist()):
        lines[_front_end(query)].append(
            f'{{"ts":{record["ts"]},"query":"{record["query"]}","region":"{record["region"]}"}}\n'
        )
    paths = []
    for number, content in enumerate(lines, start=1):
        path = directory / f"front-end-{number}.jsonl"
        path.write_text("".join(content), encoding="utf-8")
        paths.append(path)
    return paths


def _front_end(query: int) -> int:
    """Each front end gets its share of busy and of quiet queries, so the files are alike."""
    lap, place = divmod(query, FRONT_ENDS)
    return place if lap % 2 == 0 else FRONT_ENDS - 1 - place


def _rates(random: np.random.Generator) -> Floats:
    """Expected searches by [query, region, hour]."""
    base = np.geomspace(MOST_PER_HOUR, FEWEST_PER_HOUR, len(QUERIES))
    away = (1 - HOME_SHARE) / (len(REGIONS) - 1)
    share = np.full((len(QUERIES), len(REGIONS)), away)
    share[np.arange(len(QUERIES)), random.integers(0, len(REGIONS), len(QUERIES))] = HOME_SHARE
    local = np.arange(HOURS) + np.array(list(REGIONS.values()))[:, None]
    cycle = 1 + 0.75 * np.sin(2 * np.pi * (local - 9) / BUCKETS_PER_DAY)
    rates: Floats = base[:, None, None] * share[:, :, None] * cycle[None, :, :]
    return rates


def _plant(random: np.random.Generator, rates: Floats) -> tuple[Planted, ...]:
    """Chooses the events, each for a different query, and none on the first day (for learning)."""
    per_hour = rates.sum(axis=1)
    free = list(range(len(QUERIES)))
    planted = []
    wanted = [("outage", 4, 30.0), ("flurry", 2, 30.0), *[("spike", 2, 20.0)] * SPIKES]
    for kind, hours, busy in wanted:
        # With very few searches, no count could prove an event.
        starts = [
            (query, hour)
            for query in free
            for hour in range(BUCKETS_PER_DAY + 2, HOURS - 8)
            if per_hour[query, hour : hour + hours + 1].min() >= busy
        ]
        query, hour = starts[random.integers(len(starts))]
        free.remove(query)
        start = FIRST_DAY + hour * HOUR + int(random.integers(60)) * MINUTE
        length = 90 * MINUTE if kind == "spike" else hours * HOUR
        planted.append(Planted(kind, QUERIES[query], start, start + length))
    return tuple(sorted(planted, key=lambda event: event.start))


def _searches(random: np.random.Generator, rates: Floats) -> tuple[Ints, Ints, Ints]:
    """Ordinary searches: (timestamps, queries, regions)."""
    counts = random.poisson(rates)
    queries, regions, hours = (
        np.repeat(index.ravel(), counts.ravel()) for index in np.indices(counts.shape)
    )
    timestamps = FIRST_DAY + hours * BUCKET + random.integers(0, BUCKET, len(hours))
    return timestamps, queries, regions


def _spike(
    random: np.random.Generator, rates: Floats, query: int, event: Planted
) -> tuple[Ints, Ints]:
    """The additional searches of a spike: (timestamps, regions), five to eight times the usual."""
    by_region = rates[query, :, (event.start - FIRST_DAY) // HOUR]
    length = event.end - event.start
    counts = random.poisson(by_region * (length / HOUR) * random.uniform(5, 8))
    regions = np.repeat(np.arange(len(REGIONS)), counts)
    return event.start + random.integers(0, length, len(regions)), regions


def _arrivals(
    random: np.random.Generator, timestamps: Ints, queries: Ints, planted: tuple[Planted, ...]
) -> Ints:
    """When each record reaches its file: usually seconds later, for a flurry at its end."""
    delays = np.minimum(random.exponential(20 * SECOND, len(timestamps)), 10 * MINUTE)
    arrivals = timestamps + delays.astype(np.int64)
    for event in planted:
        if event.kind == "flurry":
            held = queries == QUERIES.index(event.query)
            held &= (timestamps >= event.start) & (timestamps < event.end)
            arrivals[held] = event.end + random.integers(0, 10 * MINUTE, int(held.sum()))
    return arrivals


def _late(random: np.random.Generator, timestamps: Ints, last_arrival: int) -> tuple[Ints, Ints]:
    """(records of the first day to repeat, when they arrive: after everything else)."""
    first_day = np.flatnonzero(timestamps < FIRST_DAY + DAY)
    chosen = random.choice(first_day, LATE_RECORDS, replace=False)
    return chosen, last_arrival + 1 + np.arange(LATE_RECORDS) * SECOND
