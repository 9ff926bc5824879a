"""The source with which a check replaces each source of a pipeline: its first records, no more.

It asks the real source for ranges and reads them, as a run would; of `sources.then` both sources at
once. It never says that anything is
committed (`settle`, `release`, `finished`): nothing outside may be deleted or moved by a check.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import chain, zip_longest

from headrace.errors import InvalidPipeline
from headrace.model.source import Range, Reading, Source, Workspace, positions
from headrace.sources.joined import parts_of

SPLITS_MAX = 8
"""How many splits of a source are read; their records are shared out evenly."""


class SampledSource(Source):
    """The first records of another source; then it waits until it is told to end."""

    bounded = True

    def __init__(self, source: Source, records: int) -> None:
        self.inner = source
        self.timing = source.timing
        self.rereads = source.rereads
        self.known = 0
        """How many splits the source has."""
        self._records = records
        self._splits: tuple[str, ...] | None = None
        self._records_of: dict[str, dict[int, int]] = {}
        """Split -> start -> records of the range from there: about, and exactly once it is read."""
        self._ended = False

    def prepare(self, workspace: Workspace) -> None:
        self.inner.prepare(workspace)

    def close(self) -> None:
        self.inner.close()

    def end(self) -> None:
        """From now on, all splits end where they are."""
        self._ended = True

    @property
    def sampled(self) -> tuple[str, ...]:
        """The splits that are read."""
        return self._splits or ()

    def splits(self) -> Sequence[str]:
        if self._splits is None or not self._splits:
            parts = parts_of(self.inner).items()
            named = [[f"{prefix}{split}" for split in part.splits()] for prefix, part in parts]
            # In turn, so that some splits of every part are read.
            found = [split for split in chain(*zip_longest(*named)) if split is not None]
            self.known = len(found)
            self._splits = tuple(found[: max(1, min(SPLITS_MAX, self._records))])
            if self.known > len(self._splits):
                # Splits that are not read must not hold the watermark.
                self.timing = copy.copy(self.timing)
                self.timing.expected = ()
        return self._splits

    def records_of_parts(self) -> tuple[tuple[str, int], ...]:
        """Each source that this one consists of, and how many records were read of it."""
        read = self._records_of
        return tuple(
            (
                part.describe(),
                sum(sum(read[split].values()) for split in read if split.startswith(prefix)),
            )
            for prefix, part in parts_of(self.inner).items()
        )

    def first(self, split: str) -> int:
        return self.inner.first(split)

    def plan(self, split: str, start: int, records: int) -> Range | None:
        planned = self._records_of.setdefault(split, {})
        read = sum(number for at, number in planned.items() if at < start)
        left = -(-self._records // max(1, len(self.sampled))) - read
        if left > 0 and not self._ended:
            found = self.inner.plan(split, start, min(left, records))
            if found is not None:
                planned[start] = found.records
            return found
        return Range(start, start, 0, last=True) if self._ended else None

    def read(self, split: str, range: Range) -> Reading:
        if range.start == range.end:
            return Reading(positions(range.start, 0), values=[])
        found = self.inner.read(split, range)
        number = len(found.positions) + len(found.rejected)
        self._records_of.setdefault(split, {})[range.start] = number
        return found

    def low_watermark(self, split: str, position: int) -> int | None:
        return self.inner.low_watermark(split, position)

    def columns(self) -> Sequence[str] | None:
        return self.inner.columns()

    def describe(self) -> str:
        return self.inner.describe()


def sampled(stream: str, source: Source, records: int) -> SampledSource:
    """The first records of a source; InvalidPipeline for one that only a running Spark can read."""
    from headrace.sources.spark.streaming import StructuredSource

    if isinstance(source, StructuredSource):
        raise InvalidPipeline(
            f"the source of {stream!r} is a streaming Spark frame, which only a run can read: test "
            "this pipeline with headrace.testing.Harness, or check it over a file or a list"
        )
    return SampledSource(source, records)
