"""The source of Linear Road: input files, read as fast as possible, or second by second.

The load is open: a second of input arrives at its time whether or not earlier ones are answered.
Second s arrives as a whole, at `began + (s - paced_from) / speed`. What lies before `paced_from` is
there from the beginning, and the clock starts `LEAD_S` after all of that was planned. The instant
is kept in the checkpoint, so a restart finds what has arrived meanwhile.

All roads are one split, in the order of time, so that no road runs ahead of another; tasks read
parts of a range. A position is the number of a line, and planned ranges end with seconds. So the
watermark can say that a second is complete as soon as it was read, although its lines all have the
same time.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import SourceError
from headrace.model.source import Range, Reading, Source, Timing, Workspace, positions
from headrace.model.values.arrow import one_batch
from headrace.model.values.time import SECOND
from headrace.store.store import Store
from headrace.workloads.linear_road.columns import INPUT
from headrace.workloads.linear_road.input_files import read_index, read_seconds

LEAD_S = 5.0
"""From the planning of the last input that was there to the first that arrives."""
_BEGAN = "began"
SPLIT = "roads"


class RoadFiles(Source):
    """A directory of input files, as one split."""

    cut_from: int = 50_000
    """A range of fewer lines is not worth a second task."""

    def __init__(
        self,
        directory: Path,
        *,
        paced_from: int | None = None,
        speed: float = 1.0,
        waits: bool = False,
    ) -> None:
        """`paced_from`: the second from which input arrives at its time; None: all is there.

        `waits`: the clock does not start, so nothing arrives after what is there.
        """
        self.directory = directory
        self.timing = Timing()
        self.index = read_index(directory)
        self.paced_from = paced_from
        self.speed = speed
        self.waits = waits
        self.began: float | None = None
        """When the second `paced_from` arrived, or arrives: seconds since 1970."""
        self._store: Store | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get no store: they only read."""
        return {**vars(self), "_store": None}

    @cached_property
    def _ends(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The position after each second."""
        return np.cumsum(np.array(self.index.lines, np.int64))

    def prepare(self, workspace: Workspace) -> None:
        self._store = workspace.store
        self._store.make_directory("")
        try:
            self.began = float(self._store.read(_BEGAN))
        except FileNotFoundError:
            self.began = None

    def splits(self) -> Sequence[str]:
        return [SPLIT]

    def plan(self, split: str, start: int, records: int) -> Range | None:
        ends = self._ends
        first = self._second(start)
        there = min(self._there(first, time.time()), len(ends))
        # At least one second; then as many as fit.
        fitting = int(np.searchsorted(ends, start + max(records, 1), "right"))
        until = min(max(fitting, first + 1), there)
        end = int(ends[until - 1]) if until > first else start
        last = until >= len(ends)
        if end == start and not last:
            return None
        return Range(start, end, end - start, last, self.index.digest)

    def reaches(self, split: str) -> int | None:
        ends = self._ends
        there = min(self._arrived(time.time()), len(ends))
        return int(ends[there - 1]) if there else 0

    def read(self, split: str, range: Range) -> Reading:
        if range.fingerprint != self.index.digest:
            raise SourceError(
                f"{self.directory} has other input than the plan was made with: put the old files "
                "back, or start a new checkpoint"
            )
        count, skipped = range.end - range.start, 0
        batches: list[pa.RecordBatch] = []
        if count:
            first, last = self._second(range.start), self._second(range.end - 1)
            batches = list(read_seconds(self.directory, first, last + 1))
            skipped = range.start - int(self._ends[first]) + self.index.lines[first]
            if sum(batch.num_rows for batch in batches) != sum(self.index.lines[first : last + 1]):
                raise SourceError(f"{self.directory}: the files do not fit their index")
        batch = one_batch(pa.Table.from_batches(batches, INPUT).slice(skipped, count))
        stamps = batch["time"].to_numpy().astype(np.int64) * SECOND
        return Reading(positions(range.start, len(stamps)), columns=batch, timestamps=stamps)

    def low_watermark(self, split: str, position: int) -> int | None:
        return self._second(position) * SECOND

    def parallel(self, split: str, range: Range, parts: int) -> Sequence[Range]:
        if parts < 2 or range.end - range.start < self.cut_from:
            return (range,)
        size = range.end - range.start
        bounds = [range.start + size * part // parts for part in builtins.range(parts + 1)]
        return tuple(
            Range(a, b, b - a, range.last and b == range.end, range.fingerprint)
            for a, b in pairwise(bounds)
        )

    def columns(self) -> Sequence[str] | None:
        return INPUT.names

    def describe(self) -> str:
        return f"linear-road({self.index.about}, {self.index.digest})"

    def arrival(self, second: int) -> float | None:
        """When a second arrived; None if it was there from the beginning."""
        if self.paced_from is None or self.began is None or second < self.paced_from:
            return None
        return self.began + (second - self.paced_from) / self.speed

    def _second(self, position: int) -> int:
        """The second in which the line at a position lies."""
        return int(np.searchsorted(self._ends, position, "right"))

    def _there(self, first: int, now: float) -> int:
        """How many seconds have arrived. Starts the clock when `paced_from` is reached."""
        begins = self.paced_from is not None and self.began is None and not self.waits
        if begins and first >= (self.paced_from or 0):
            self._begin(now + LEAD_S)
        return self._arrived(now)

    def _arrived(self, now: float) -> int:
        if self.paced_from is None:
            return self.index.seconds
        if self.began is None or now < self.began:
            return self.paced_from
        return self.paced_from + int((now - self.began) * self.speed) + 1

    def _begin(self, at: float) -> None:
        if self._store is None:
            raise SourceError("the source was not prepared")
        self._store.put_if_absent(_BEGAN, repr(at).encode())
        self.began = float(self._store.read(_BEGAN))
