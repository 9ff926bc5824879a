"""What arrives at a slot in an epoch: parcels of all inputs, in order, by key.

Input order is (order of inputs, label, position), sorted here, as Spark's
shuffle read order is random (protocol B6).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.model.codec import decode_value
from headrace.model.record import Record
from headrace.model.rows import Rows, python_list, zipped
from headrace.model.time import oldest_on_time
from headrace.plan.parcel import Parcel


class Arrival:
    """The records of one input."""

    __slots__ = ("feedback", "index", "parcel", "stream")

    def __init__(self, index: int, stream: str, parcel: Parcel, feedback: bool = False) -> None:
        self.index = index
        self.stream = stream
        self.parcel = parcel
        self.feedback = feedback


class Grouped:
    """The records of one input, sorted by key, each key's in their order."""

    def __init__(self, arrival: Arrival) -> None:
        parcel = arrival.parcel
        # Numpy sorts numbers of 16 bits by radix: ten times as fast.
        few = len(parcel.keys) < 2**15
        self._order = np.argsort(
            parcel.codes.astype(np.int16) if few else parcel.codes, kind="stable"
        )
        self._unsorted: Rows = parcel.rows
        self.arrival = arrival
        ends = np.cumsum(np.bincount(parcel.codes, minlength=len(parcel.keys))).tolist()
        starts = [0, *ends[:-1]]
        self.spans: dict[bytes, tuple[int, int]] = {
            key: (start, end)
            for key, start, end in zip(parcel.keys, starts, ends, strict=True)
            if end > start
        }
        self.times: list[int] = parcel.rows.timestamps[self._order].tolist()
        self._packed: list[bytes] | None = None
        self._columns: dict[str, list[Any] | None] | None = None

    @cached_property
    def origins(self) -> list[bytes] | None:
        """The records' origins, where they carry them: seldom asked for."""
        cells = self._unsorted.origins
        return None if cells is None else cells.take(pa.array(self._order)).to_pylist()

    def _look(self) -> None:
        """Takes the values out of Arrow, at the first look at one of them."""
        rows = self._unsorted
        if rows.packed is not None:
            self._packed = rows.packed.take(pa.array(self._order)).to_pylist()
            self._columns = {}
            return
        key_column = self.arrival.parcel.key_column
        self._columns = {}
        stored: Any = rows.stored if rows.encoded == key_column else rows.columns
        chosen = pa.array(self._order)
        for name, column in zip(stored.schema.names, stored.columns, strict=True):
            # A span's key is one value for all its rows.
            own = name == rows.encoded
            self._columns[name] = None if own else python_list(column.take(chosen))

    def values(self, start: int, end: int, shown: Any) -> list[Any]:
        """Values of a span of the key `shown`. Made when its turn comes, so that they stay in the
        processor's cache.
        """
        if self._columns is None:
            self._look()
        schema = self._unsorted.schema
        if self._packed is not None:
            decode = decode_value if schema is None else schema.decode
            return [decode(cell) for cell in self._packed[start:end]]
        if not self._columns:
            return [{} for _ in range(end - start)]
        lists = [
            [shown] * (end - start) if column is None else column[start:end]
            for column in self._columns.values()
        ]
        names = list(self._columns)
        if schema is not None and schema.of_class:
            return schema.make(names, lists)
        return zipped(names, lists)

    def value(self, position: int, shown: Any) -> Any:
        """One value."""
        return self.values(position, position + 1, shown)[0]

    def raw(self, position: int, shown: Any) -> Any:
        """One value, still encoded where it is: for records that are put away again."""
        if self._columns is None:
            self._look()
        if self._packed is not None:
            return msgspec.Raw(self._packed[position])
        return self.value(position, shown)

    def identities(self, key: bytes) -> list[bytes]:
        """The cells at whose ends a key's records carry their identities."""
        if key not in self.spans or self.origins is None:
            return []
        start, end = self.spans[key]
        return self.origins[start:end]

    def records(self, key: bytes, shown: Any, before: int) -> list[Record[Any]]:
        """A key's records in arrival order."""
        span = self.spans.get(key)
        if span is None:
            return []
        start, end = span
        stream, times = self.arrival.stream, self.times[start:end]
        values = self.values(start, end, shown)
        if self.arrival.feedback or min(times) >= (before := oldest_on_time(before)):
            return [Record(v, t, shown, stream, False) for v, t in zip(values, times, strict=True)]
        return [Record(v, t, shown, stream, t < before) for v, t in zip(values, times, strict=True)]


def keys_of(groups: list[Grouped]) -> Iterator[bytes]:
    """Every key that has records, in order of first appearance."""
    seen: dict[bytes, None] = {}
    for group in groups:
        for key in group.spans:
            if key not in seen:
                seen[key] = None
                yield key
