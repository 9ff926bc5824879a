"""The records of one key, created when they are needed, and created again for every pass.

So a hook may change the values that it gets: a second pass, after a hook has failed, sees the
values as they arrived, and no copies are made in advance. Also, records that are created a few at
a time are still in the processor's cache when their hook runs.
"""

from __future__ import annotations

import copy
import pickle
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, repeat
from typing import Any

from headrace.model.record import Record

Values = Callable[[], Iterable[Any]]
"""Creates the values of some records, as new objects at every call."""


class InputPart:
    """The records of one key in one input."""

    __slots__ = ("_before", "_late", "_shown", "_values", "stream", "times")

    def __init__(
        self,
        stream: str,
        shown: Any,
        times: list[int],
        before: int,
        values: Values,
        late: list[bool] | None = None,
    ) -> None:
        """Records older than `before` are late, unless `late` says which were late on arrival."""
        self.stream, self.times = stream, times
        self._shown, self._before, self._values, self._late = shown, before, values, late

    def __iter__(self) -> Iterator[Record[Any]]:
        before = self._before
        late: Iterable[bool] = repeat(False)
        if self._late is not None:
            late = self._late
        elif min(self.times) < before:
            late = [time < before for time in self.times]
        values = self._values()
        return map(Record, values, self.times, repeat(self._shown), repeat(self.stream), late)


class KeyRecords:
    """The records of one key, input by input, each in arrival order."""

    __slots__ = ("_parts", "times")

    def __init__(self, parts: Sequence[InputPart]) -> None:
        self._parts = parts
        self.times: list[int] = (
            parts[0].times if len(parts) == 1 else [t for part in parts for t in part.times]
        )

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[Record[Any]]:
        if len(self._parts) == 1:
            return iter(self._parts[0])
        # Start all iterators now, so that a value that cannot be created is not blamed on the
        # hook that runs before it.
        return chain.from_iterable([iter(part) for part in self._parts])

    def stream_of(self, index: int) -> str:
        """The stream of the record at this position."""
        ends = list(accumulate(len(part.times) for part in self._parts))
        return self._parts[bisect_right(ends, index)].stream


class OrderedRecords(KeyRecords):
    """The records of one key in time order, already created."""

    __slots__ = ("_copies", "_records")

    def __init__(self, records: list[Record[Any]], *, again: bool) -> None:
        """`again`: whether there may be a second pass."""
        self._records = records
        self.times = [record.timestamp for record in records]
        self._copies = _copies_of([record.value for record in records]) if again else None

    def __iter__(self) -> Iterator[Record[Any]]:
        if self._copies is None:
            return iter(self._records)
        values = self._copies()
        return (
            Record(value, r.timestamp, r.key, r.stream, r.late)
            for value, r in zip(values, self._records, strict=True)
        )

    def stream_of(self, index: int) -> str:
        return self._records[index].stream


NO_RECORDS = KeyRecords(())


def _copies_of(values: list[Any]) -> Callable[[], list[Any]]:
    """A function that returns the values as they are now, even after hooks have changed them."""
    try:
        data = pickle.dumps(values)
    except Exception:  # classes shipped with the pipeline belong to no importable module
        kept = copy.deepcopy(values)
        return lambda: copy.deepcopy(kept)
    return lambda: list(pickle.loads(data))
