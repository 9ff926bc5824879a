"""The source of generated events: columns from the start, any range by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from headrace.errors import HeadraceError, SourceError
from headrace.model.source import Change, Range, Reading, Seen, Source, Timing, positions
from headrace.workloads.nexmark.events.columns import EVENT_COLUMNS
from headrace.workloads.nexmark.events.generator import Generator

SPLIT = "events"


class GeneratedEvents(Source):
    """The first `count` events of a generator. A position is the number of an event."""

    cut_from: int = 10_000
    """A range of fewer events is not worth a second task."""

    def __init__(self, generator: Generator, count: int) -> None:
        if count < 0:
            raise HeadraceError(f"nexmark: the number of events cannot be negative: {count}")
        self.generator, self.count = generator, count
        self.timing = Timing(timestamp="date_time")
        self.bounded = True

    def splits(self) -> Sequence[str]:
        return (SPLIT,)

    def plan(self, split: str, start: int, records: int) -> Range | None:
        end = min(self.count, start + max(1, records))
        return Range(start, end, end - start, end == self.count, str(self.generator))

    def reaches(self, split: str) -> int | None:
        return self.count

    def read(self, split: str, range: Range) -> Reading:
        if range.fingerprint != str(self.generator):
            raise SourceError(
                f"nexmark: the plan was made for events of {range.fingerprint}, not of "
                f"{self.generator}: give the old seed and rate, or start a new checkpoint"
            )
        events = self.generator.events(range.start, range.end)
        seen = Seen(
            self.count, ends=range.fingerprint, since=range.start, read=range.end, whole=range.last
        )
        return Reading(positions(range.start, len(events)), columns=events, seen={"": seen})

    def parts(self) -> Iterable[tuple[str, str]]:
        return ((SPLIT, ""),)

    def compare(self, split: str, name: str, seen: Seen, *, closely: bool) -> Seen | Change | None:
        if seen.ends != str(self.generator):
            how = f"have changed from {seen.ends} to {self.generator}"
            return Change("the events of nexmark", how, "give the old seed and rate")
        if seen.whole and seen.size != self.count:
            how = f"have changed from {seen.size:,} to {self.count:,}"
            return Change("the events of nexmark", how, "give the old number of events")
        return seen

    def low_watermark(self, split: str, position: int) -> int | None:
        return int(self.generator.time_of(position))

    def columns(self) -> Sequence[str]:
        return tuple(EVENT_COLUMNS.names)

    def parallel(self, split: str, range: Range, parts: int) -> Sequence[Range]:
        count = range.end - range.start
        if parts < 2 or count < self.cut_from:
            return (range,)
        bounds = [range.start + count * part // parts for part in [*_numbers(parts), parts]]
        return tuple(
            Range(a, b, b - a, range.last and b == range.end, range.fingerprint)
            for a, b in pairwise(bounds)
        )

    def describe(self) -> str:
        return f"nexmark({self.count:,} events of {self.generator})"


def _numbers(count: int) -> Iterable[int]:
    return range(count)
