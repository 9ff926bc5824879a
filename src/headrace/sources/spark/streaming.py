"""A streaming Spark DataFrame as a source; `micro_batches` says how it is spooled.

It is one split that never ends, because this gives the right watermark: the largest time of all
rows so far, less the lateness, whichever micro-batch brought them. With `available_now=True` the
split ends when the query ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.errors import InvalidPipeline, SourceError
from headrace.model.source import Range, Timing, Workspace
from headrace.model.values.time import MILLISECOND, Duration, duration
from headrace.sources.files.parquet_rows import ParquetFormat
from headrace.sources.files.sequence import SequenceSource
from headrace.sources.spark.micro_batches import QueryRun


class StructuredSource(SequenceSource):
    """A streaming query, spooled micro-batch by micro-batch."""

    split = "stream"

    def __init__(
        self,
        frame: Any,
        timing: Timing,
        *,
        available_now: bool = False,
        every: Duration | None = None,
        ahead: int = 4,
    ) -> None:
        if ".connect." in type(frame).__module__:
            raise InvalidPipeline(
                "a streaming DataFrame cannot be read through Spark Connect, because foreachBatch "
                "would run in the server: run the pipeline with a classic Spark session"
            )
        if ahead < 1:
            raise InvalidPipeline(f"sources.dataframe: ahead= is at least 1, not {ahead}")
        super().__init__(ParquetFormat(), timing)
        self.bounded = available_now
        self._frame = frame
        self._trigger: dict[str, Any] = {}
        if available_now:
            self._trigger = {"availableNow": True}
        elif every is not None:
            millis = duration(every, what="every=") // MILLISECOND
            self._trigger = {"processingTime": f"{millis} milliseconds"}
        self._ahead = ahead
        self._run: QueryRun | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_frame": None, "_run": None}

    def prepare(self, workspace: Workspace) -> None:
        self.look(workspace)
        self.extents = []
        self._run = QueryRun(workspace.store, self._ahead, ends=self.bounded)
        self._run.start(self._frame, self._trigger)

    def close(self) -> None:
        if self._run is not None:
            self._run.stop()

    def splits(self) -> Sequence[str]:
        self._running().check()
        return (self.split,)

    def plan(self, split: str, start: int, records: int) -> Range | None:
        self._running().check()
        return super().plan(split, start, records)

    def refresh(self) -> bool:
        run = self._running()
        # The order matters: the last micro-batch arrives before the query ends.
        ended = run.ended and self.bounded
        self.extents = run.extents()
        return ended

    def caught_up(self) -> bool:
        return self._running().caught_up()

    def settle(self, split: str, position: int) -> None:
        self._running().settle(position)

    def release(self, split: str, position: int) -> None:
        self._running().release(position)

    def look(self, workspace: Workspace) -> None:
        path = workspace.store.local_path()
        self.root, self.store = path or "", workspace.store if path is None else None

    def describe(self) -> str:
        return "dataframe(streaming)"

    def _running(self) -> QueryRun:
        if self._run is None:
            raise SourceError("the streaming source was used before it was prepared")
        return self._run
