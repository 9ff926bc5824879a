"""`sources.memory`: a list of values that travels with the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

import numpy as np
import xxhash

from headrace.errors import InvalidPipeline, InvalidRecord, SourceError
from headrace.model.source import (
    Change,
    Range,
    Reading,
    Seen,
    Source,
    Timing,
    digest_of_sum,
    positions,
)
from headrace.model.values.codec import packed
from headrace.model.values.names import known_options
from headrace.model.values.time import Instant, instant
from headrace.sources.options import TIMING_OPTIONS, TimingOptions

SPLIT = "memory"


@known_options("sources.memory", TIMING_OPTIONS)
def memory(
    values: Iterable[Any],
    *,
    timestamps: Iterable[Instant] | None = None,
    **timing: Unpack[TimingOptions],
) -> Source:
    """The values of a list, in its order, as one split that ends.

    `timestamps` gives each value its time; otherwise `timestamp=` finds it in the value.
    """
    if isinstance(values, str | bytes):
        raise InvalidPipeline("sources.memory takes a list of values, not one text")
    return MemorySource(list(values), timestamps, Timing(**timing))


class MemorySource(Source):
    """A list, with positions counted from 0."""

    def __init__(
        self, values: list[Any], timestamps: Iterable[Instant] | None, timing: Timing
    ) -> None:
        self.values = values
        self.timing = timing
        self.timestamps: list[int] | None = None
        self._columns: list[str] | None = None
        if timestamps is not None:
            if timing.timestamp is not None:
                raise InvalidPipeline("sources.memory takes timestamp= or timestamps=, not both")
            self.timestamps = [instant(given, what="a timestamp") for given in timestamps]
            if len(self.timestamps) != len(values):
                raise InvalidPipeline(
                    f"sources.memory got {len(values)} values and {len(self.timestamps)} timestamps"
                )

    def splits(self) -> Sequence[str]:
        return (SPLIT,)

    def columns(self) -> Sequence[str] | None:
        """The names that occur in any value, where all values are dicts."""
        if self._columns is None and all(type(value) is dict for value in self.values):
            self._columns = list(dict.fromkeys(name for value in self.values for name in value))
        return self._columns or None

    def plan(self, split: str, start: int, records: int) -> Range | None:
        end = max(start, min(len(self.values), start + max(1, records)))
        mark = self._fingerprint(start, end)
        return Range(start, end, end - start, end >= len(self.values), mark)

    def reaches(self, split: str) -> int | None:
        return len(self.values)

    def read(self, split: str, range: Range) -> Reading:
        if self._fingerprint(range.start, range.end) != range.fingerprint:
            raise SourceError(
                "the list given to sources.memory has changed since the plan was made: "
                "give it the old list, or start a new checkpoint"
            )
        seen = self._seen(range.start, range.end, range.last)
        return Reading(
            positions(range.start, range.end - range.start),
            values=self.values[range.start : range.end],
            timestamps=None
            if self.timestamps is None
            else np.array(self.timestamps[range.start : range.end], np.int64),
            seen={"": seen},
        )

    def parts(self) -> Iterable[tuple[str, str]]:
        return ((SPLIT, ""),)

    def compare(self, split: str, name: str, seen: Seen, *, closely: bool) -> Seen | Change | None:
        if not closely:
            return seen  # the list is pickled with the pipeline, so it cannot change during a run
        count = len(self.values)
        if seen.whole and count > seen.size:
            return _change(f"has grown from {seen.size:,} to {count:,} values")
        if count < seen.read:
            return _change(f"has shrunk from {seen.size:,} to {count:,} values")
        now = self._seen(0, seen.read, seen.whole)
        if not seen.since and seen.digest and now.digest != seen.digest:
            return _change("has other values")
        return seen

    def accept(self, split: str, name: str, seen: Seen) -> tuple[int, Seen]:
        count = len(self.values)
        read = count if seen.whole else min(seen.read, count)
        return read, self._seen(0, read, seen.whole or read == count)

    def describe(self) -> str:
        return "memory"

    def _seen(self, start: int, end: int, whole: bool) -> Seen:
        """What the ledger records of a range: the sum of the digests of (position, value)."""
        total = 0
        for index in range(start, end):
            value = _bytes(self.values[index])
            if self.timestamps is not None:
                value += str(self.timestamps[index]).encode()
            total += xxhash.xxh3_128_intdigest(value, seed=index)
        return Seen(
            len(self.values), digest=digest_of_sum(total), since=start, read=end, whole=whole
        )

    def _fingerprint(self, start: int, end: int) -> str:
        digest = xxhash.xxh3_128()
        for value in self.values[start:end]:
            digest.update(_bytes(value))
        if self.timestamps is not None:
            digest.update(np.array(self.timestamps[start:end], np.int64).tobytes())
        return f"{end - start}-{digest.hexdigest()}"


def _bytes(value: Any) -> bytes:
    try:
        return packed(value)
    except InvalidRecord:
        # The engine reports what is wrong with the value, record by record.
        return type(value).__qualname__.encode()


def _change(how: str) -> Change:
    return Change("the list given to sources.memory", how, "give it the old list")
