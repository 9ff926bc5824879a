"""State, timers and micro-batches of `transformWithState` in memory, for its processors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import Row


class FakeValue:
    """The value state of every key; a method speaks of the key that has its turn."""

    def __init__(self, turns: FakeTransform) -> None:
        self._turns = turns
        self.values: dict[Any, tuple[Any, ...]] = {}

    def get(self) -> tuple[Any, ...] | None:
        return self.values.get(self._turns.key)

    def update(self, value: tuple[Any, ...]) -> None:
        self.values[self._turns.key] = value

    def clear(self) -> None:
        self.values.pop(self._turns.key, None)


class FakeList:
    """The list state of every key."""

    def __init__(self, turns: FakeTransform) -> None:
        self._turns = turns
        self.values: dict[Any, list[tuple[Any, ...]]] = {}

    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.values.get(self._turns.key, []))

    def appendList(self, more: list[tuple[Any, ...]]) -> None:
        self.values.setdefault(self._turns.key, []).extend(more)

    def clear(self) -> None:
        self.values.pop(self._turns.key, None)


class FakeTransform:
    """Runs a processor: rows of a micro-batch first, then the timers that its watermark fires."""

    def __init__(self, processor: Any, *, frames: bool) -> None:
        self.key: Any = None
        self.timers: set[tuple[int, Any]] = set()
        self.watermark_ms = 0
        self._processor, self._frames = processor, frames
        self.states: dict[str, FakeValue | FakeList] = {}
        processor.init(self)

    # What a processor asks of its handle.

    def getValueState(self, name: str, schema: Any) -> Any:
        self.states[name] = FakeValue(self)
        return self.states[name]

    def getListState(self, name: str, schema: Any) -> Any:
        self.states[name] = FakeList(self)
        return self.states[name]

    def registerTimer(self, at_ms: int) -> None:
        self.timers.add((at_ms, self.key))

    def deleteTimer(self, at_ms: int) -> None:
        self.timers.remove((at_ms, self.key))

    # What it asks of its clock.

    def getCurrentWatermarkInMs(self) -> int:
        return self.watermark_ms

    # What a test asks.

    def batch(self, records: Mapping[Any, list[dict[str, Any]]], watermark_ms: int) -> list[Any]:
        """A micro-batch: what came out."""
        self.watermark_ms = watermark_ms
        found: list[Any] = []
        for key, rows in records.items():
            self.key = key
            given: Iterator[Any]
            if self._frames:
                half = len(rows) // 2
                given = iter([pd.DataFrame(part) for part in (rows[:half], rows[half:]) if part])
            else:
                given = iter([Row(**row) for row in rows])
            found += self._told(self._processor.handleInputRows(key, given, self))
        for timer in sorted(self.timers):
            if timer[0] <= watermark_ms:
                self.timers.remove(timer)
                self.key = timer[1]
                found += self._told(self._processor.handleExpiredTimer(timer[1], self, None))
        return found

    def _told(self, rows: Iterable[Any]) -> list[dict[str, Any]]:
        if not self._frames:
            return [row.asDict() for row in rows]
        return [row for frame in rows for row in frame.to_dict("records")]
