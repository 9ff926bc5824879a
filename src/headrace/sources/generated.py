"""`sources.generate`: records made by a seeded function, at a rate if wanted.

Record number n is the same in every task, in every range and with any number of splits: split
s of S holds the numbers s, s + S, s + 2S, ... Only the driver reads the clock, and only to decide
how many records are due. The time of the first start is stored in the checkpoint, so that a
restart continues with the records that are due by then.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
import xxhash

from headrace.errors import InvalidPipeline, SourceError, UserCodeError
from headrace.model.functions import checked_function
from headrace.model.source import Change, Range, Reading, Seen, Source, Timing, Workspace, positions
from headrace.model.values.names import known_options
from headrace.model.values.time import SECOND, Instant, instant
from headrace.sources.options import TIMING_OPTIONS, TimingOptions
from headrace.store.store import Store

_BEGAN = "began"


@known_options("sources.generate", TIMING_OPTIONS)
def generate(
    function: Callable[[int, random.Random], Any],
    *,
    count: int | None = None,
    rate: float | None = None,
    paced: bool = False,
    splits: int = 1,
    seed: int = 0,
    start: Instant | None = None,
    **timing: Unpack[TimingOptions],
) -> Source:
    """Records `function(n, random)` for n = 0, 1, 2, ...; `random` depends on seed and n alone.

    - `count`: the total number of records; without it the source never ends.
    - `rate`: records per second of event time: record n is stamped `start + n / rate`, unless
      `timestamp=` finds its time in the value. With neither, time is the time of ingestion.
    - `paced=True`: `rate` is kept in real time too; otherwise records come as fast as they can
      be made.
    - `splits`: the number of splits over which the numbers are distributed.
    - `start`: by default 1970, or, when paced, the moment of the first start.
    """
    checked_function(function, "sources.generate", "n", "random")
    if count is not None and count < 0:
        raise InvalidPipeline(f"sources.generate: count= cannot be negative: {count}")
    if splits < 1:
        raise InvalidPipeline(f"sources.generate: splits= is at least 1, not {splits}")
    if rate is not None and not 0 < rate < float("inf"):
        raise InvalidPipeline(f"sources.generate: rate= is records per second, not {rate}")
    if paced and rate is None:
        raise InvalidPipeline("sources.generate: paced=True needs rate=")
    began = None if start is None else instant(start, what="start=")
    return GeneratedSource(function, count, rate, paced, splits, seed, began, Timing(**timing))


class GeneratedSource(Source):
    """Numbers distributed over splits; a position counts the records of one split."""

    cut_from: int = 10_000
    """A range of fewer records is not worth a second task."""

    def __init__(
        self,
        function: Callable[[int, random.Random], Any],
        count: int | None,
        rate: float | None,
        paced: bool,
        splits: int,
        seed: int,
        start_us: int | None,
        timing: Timing,
    ) -> None:
        self.function = function
        self.count = count
        self.rate = rate
        self.paced = paced
        self.split_count = splits
        self.seed = seed
        self.timing = timing
        self.bounded = count is not None
        self._start_us = start_us
        self._began_us = 0

    def prepare(self, workspace: Workspace) -> None:
        if self.paced:
            self._began_us = _first_start(workspace.store)

    def splits(self) -> Sequence[str]:
        width = len(str(self.split_count - 1))
        return tuple(f"{number:0{width}d}" for number in range(self.split_count))

    def plan(self, split: str, start: int, records: int) -> Range | None:
        limit = None if self.count is None else self._share(split, self.count)
        end, known = start + max(1, records), self.reaches(split)
        if known is not None:
            end = max(start, min(end, known))
        last = limit is not None and end >= limit
        if end == start and not last:
            return None
        return Range(start, end, end - start, last, self._fingerprint())

    def reaches(self, split: str) -> int | None:
        end = self.count
        if self.paced and self.rate is not None:
            elapsed_s = max(0.0, time.time() - self._began_us / SECOND)
            made = int(elapsed_s * self.rate) + 1
            end = made if end is None else min(made, end)
        return None if end is None else self._share(split, end)

    def read(self, split: str, range: Range) -> Reading:
        if range.fingerprint != self._fingerprint():
            raise SourceError(
                "sources.generate has other arguments than the plan was made with: "
                "give it the old ones, or start a new checkpoint"
            )
        places = positions(range.start, range.end - range.start)
        numbers = places * self.split_count + int(split)
        values = self._values(numbers.tolist())
        stamps = None
        if self._stamps_itself and self.rate is not None:
            stamps = self._first_us + np.floor(numbers * (SECOND / self.rate)).astype(np.int64)
        seen = Seen(
            range.end,
            ends=self._fingerprint(),
            since=range.start,
            read=range.end,
            whole=range.last,
        )
        return Reading(places, values=values, timestamps=stamps, seen={"": seen})

    def parts(self) -> Iterable[tuple[str, str]]:
        return ((split, "") for split in self.splits())

    def compare(self, split: str, name: str, seen: Seen, *, closely: bool) -> Seen | Change | None:
        if seen.ends != self._fingerprint():
            how = f"has changed from {seen.ends} to {self._fingerprint()}"
            return Change("sources.generate", how, "give it the old arguments")
        share = None if self.count is None else self._share(split, self.count)
        if seen.whole and share != seen.size:
            now = "one without end" if share is None else f"{share:,} records"
            how = f"has changed from {seen.size:,} records to {now} (split {split})"
            return Change("sources.generate", how, "give it the old count=")
        return seen

    def accept(self, split: str, name: str, seen: Seen) -> tuple[int, Seen]:
        share = None if self.count is None else self._share(split, self.count)
        read = seen.read if share is None else share if seen.whole else min(share, seen.read)
        whole = share is not None and read >= share
        return read, Seen(read, ends=self._fingerprint(), read=read, whole=whole)

    def low_watermark(self, split: str, position: int) -> int | None:
        if self._stamps_itself and self.rate is not None:
            number = position * self.split_count + int(split)
            return self._first_us + int(np.floor(number * (SECOND / self.rate)))
        return super().low_watermark(split, position)

    def parallel(self, split: str, range: Range, parts: int) -> Sequence[Range]:
        if parts < 2 or range.end - range.start < self.cut_from:
            return (range,)
        bounds = even_bounds(range.start, range.end, parts)
        return tuple(
            Range(a, b, b - a, range.last and b == range.end, range.fingerprint)
            for a, b in pairwise(bounds)
        )

    def describe(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return f"generate({name}, {self._fingerprint()})"

    @property
    def _stamps_itself(self) -> bool:
        return self.timing.timestamp is None and self.rate is not None

    @property
    def _first_us(self) -> int:
        return self._began_us if self._start_us is None else self._start_us

    def _share(self, split: str, total: int) -> int:
        """How many of the first `total` numbers belong to a split."""
        return max(0, -((int(split) - total) // self.split_count))

    def _fingerprint(self) -> str:
        return f"seed={self.seed} splits={self.split_count} rate={self.rate} start={self._start_us}"

    def _values(self, numbers: list[int]) -> list[Any]:
        dice = random.Random()
        values = []
        for number in numbers:
            dice.seed(xxhash.xxh3_64_intdigest(f"{self.seed} {number}".encode()))
            try:
                values.append(self.function(number, dice))
            except Exception as error:
                raise UserCodeError(
                    f"{self.describe()}: record {number}: {type(error).__name__}: {error}"
                ) from error
        return values


def even_bounds(start: int, end: int, parts: int) -> list[int]:
    """The ends of `parts` ranges of like size, with the start first."""
    return [start + (end - start) * part // parts for part in range(parts + 1)]


def _first_start(store: Store) -> int:
    """When the source was first started on this checkpoint, in microseconds."""
    store.make_directory("")
    try:
        written = store.read(_BEGAN)
    except FileNotFoundError:
        store.put_if_absent(_BEGAN, str(round(time.time() * SECOND)).encode())
        written = store.read(_BEGAN)
    try:
        return int(written)
    except ValueError:
        raise SourceError(
            f"{store.where(_BEGAN)} does not hold a time; delete it to begin again"
        ) from None
