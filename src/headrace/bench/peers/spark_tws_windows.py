"""Counts per window with `transformWithState`: user code per key, in both of its forms.

Cheapest honest set-up: a key's open windows are one value in its state, read and written once per
micro-batch, and a key has one timer, for the first of its windows that closes. Rows of a key leave
when the watermark has passed the end of their window: with the key's next records, or by the timer.
Only the key and the time of a record travel to Python. State is in RocksDB with changelog
checkpoints, which this interface needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from headrace.bench.frame.system import WINDOWS_TWS, WINDOWS_TWS_ROW
from headrace.bench.peers.spark_tws import ROCKSDB_SETTINGS
from headrace.bench.peers.spark_windows import WindowsPeer, timed

OPEN_TYPE = StructType([StructField(n, ArrayType(LongType())) for n in ("starts", "counts")])
OUTPUT = "key string, start bigint, count bigint"
Windows = dict[int, int]
"""Start of a window -> count."""


class _CountWindows(StatefulProcessor):
    """What both forms share: the open windows of a key, and the timer of the first to close."""

    def __init__(self, size_us: int) -> None:
        self._size_us = size_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self._handle = handle
        self._open = handle.getValueState("open", OPEN_TYPE)

    def close(self) -> None:
        """Nothing to release."""

    def _add(self, new: Windows, watermark_ms: int) -> Windows:
        """Adds counts of a micro-batch; the windows that had closed before it."""
        stored = self._open.get()
        kept: Windows = {} if stored is None else dict(zip(*stored))
        timer = _first(kept)
        closed = self._without_closed(kept, watermark_ms)
        for start, count in new.items():
            kept[start] = kept.get(start, 0) + count
        self._keep(kept)
        if _first(kept) != timer:
            if timer is not None:
                self._handle.deleteTimer(self._end_ms(timer))
            self._set_timer(kept)
        return closed

    def _expired(self, watermark_ms: int) -> Windows:
        """The windows that have closed when a timer fires; it goes on with the next window."""
        stored = self._open.get()
        kept: Windows = {} if stored is None else dict(zip(*stored))
        closed = self._without_closed(kept, watermark_ms)
        self._keep(kept)
        self._set_timer(kept)
        return closed

    def _without_closed(self, kept: Windows, watermark_ms: int) -> Windows:
        ended = [start for start in kept if self._end_ms(start) <= watermark_ms]
        return {start: kept.pop(start) for start in ended}

    def _keep(self, kept: Windows) -> None:
        if kept:
            self._open.update((list(kept), list(kept.values())))
        else:
            self._open.clear()

    def _set_timer(self, kept: Windows) -> None:
        first = _first(kept)
        if first is not None:
            self._handle.registerTimer(self._end_ms(first))

    def _end_ms(self, start: int) -> int:
        """When a window has closed: Spark's clock is in milliseconds, so not before its end."""
        return -(-(start + self._size_us) // 1_000)


def _first(windows: Iterable[int]) -> int | None:
    return min(windows, default=None)


class CountWindowRows(_CountWindows):
    """`transformWithState`: each record is a row."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Counts one key's records of this micro-batch by window."""
        size, new = self._size_us, Windows()
        for row in rows:
            start = row.ts - row.ts % size
            new[start] = new.get(start, 0) + 1
        return _rows(key[0], self._add(new, timerValues.getCurrentWatermarkInMs()))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """A window has closed, and no record of the key came with it."""
        return _rows(key[0], self._expired(timerValues.getCurrentWatermarkInMs()))


class CountWindowFrames(_CountWindows):
    """`transformWithStateInPandas`: the records of a key are data frames."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Counts one key's records of this micro-batch by window."""
        size, new = self._size_us, Windows()
        for frame in rows:
            times = frame["ts"].to_numpy()
            for start, count in zip(*np.unique(times - times % size, return_counts=True)):
                new[int(start)] = new.get(int(start), 0) + int(count)
        return _frames(key[0], self._add(new, timerValues.getCurrentWatermarkInMs()))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        """A window has closed, and no record of the key came with it."""
        return _frames(key[0], self._expired(timerValues.getCurrentWatermarkInMs()))


def _rows(key: str, closed: Windows) -> Iterator[Row]:
    for start, count in closed.items():
        yield Row(key=key, start=start, count=count)


def _frames(key: str, closed: Windows) -> Iterator[pd.DataFrame]:
    if closed:
        yield pd.DataFrame(
            {"key": [key] * len(closed), "start": list(closed), "count": list(closed.values())}
        )


def counts_as_rows(records: DataFrame, query: str, size_us: int) -> DataFrame:
    """Counts of closed windows, by the form that gets rows."""
    return _by_key(records).transformWithState(
        statefulProcessor=CountWindowRows(size_us),
        outputStructType=OUTPUT,
        outputMode="Append",
        timeMode="EventTime",
    )


def counts_as_frames(records: DataFrame, query: str, size_us: int) -> DataFrame:
    """Counts of closed windows, by the form that gets data frames."""
    return _by_key(records).transformWithStateInPandas(
        statefulProcessor=CountWindowFrames(size_us),
        outputStructType=OUTPUT,
        outputMode="Append",
        timeMode="EventTime",
    )


def _by_key(records: DataFrame) -> Any:
    # The column of the watermark stays in the JVM.
    return timed(records, "key", "ts").select("key", "ts").groupBy("key")


SPARK_TWS_WINDOWS = WindowsPeer(WINDOWS_TWS, counts_as_frames, ROCKSDB_SETTINGS)
SPARK_TWS_ROW_WINDOWS = WindowsPeer(WINDOWS_TWS_ROW, counts_as_rows, ROCKSDB_SETTINGS)
