"""What arrives at a slot in an epoch: parcels of all inputs, in order, by key.

Input order is (order of inputs, label, position), sorted here, as Spark's
shuffle read order is random (protocol B6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from headrace.causal.lineage import identity_part
from headrace.model.codec import decode_value
from headrace.model.record import Record
from headrace.model.rows import Rows, python_list, zipped
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
        order = np.argsort(parcel.codes, kind="stable")
        self.arrival = arrival
        self.rows: Rows = parcel.rows.take(order) if len(order) else parcel.rows
        ends = np.cumsum(np.bincount(parcel.codes, minlength=len(parcel.keys))).tolist()
        starts = [0, *ends[:-1]]
        self.spans: dict[bytes, tuple[int, int]] = {
            key: (start, end)
            for key, start, end in zip(parcel.keys, starts, ends, strict=True)
            if end > start
        }
        self.times: list[int] = self.rows.timestamps.tolist()
        self.origins: list[bytes] | None = (
            self.rows.origins.to_pylist() if self.rows.origins is not None else None
        )
        self._packed: list[bytes] | None = None
        self._columns: list[list[Any]] = []
        if self.rows.packed is not None:
            self._packed = self.rows.packed.to_pylist()
        elif self.rows.columns is not None:
            self._columns = [python_list(column) for column in self.rows.columns.columns]
            self._names = self.rows.columns.schema.names

    def values(self, start: int, end: int) -> list[Any]:
        """Values of a span. Made when their key's turn comes, so that they stay in the cache."""
        schema = self.rows.schema
        if self._packed is not None:
            decode = decode_value if schema is None else schema.decode
            return [decode(cell) for cell in self._packed[start:end]]
        if not self._columns:
            return [{} for _ in range(end - start)]
        lists = [column[start:end] for column in self._columns]
        if schema is not None and schema.of_class:
            return schema.make(self._names, lists)
        return zipped(self._names, lists)

    def value(self, position: int) -> Any:
        """One value."""
        return self.values(position, position + 1)[0]

    def raw(self, position: int) -> Any:
        """One value, still encoded where it is: for records that are put away again."""
        if self._packed is not None:
            return msgspec.Raw(self._packed[position])
        return self.value(position)

    def identities(self, key: bytes) -> list[bytes]:
        """The identities that a key's records carry behind their origins."""
        if self.origins is None or key not in self.spans:
            return []
        start, end = self.spans[key]
        return [identity_part(cell) for cell in self.origins[start:end]]

    def records(self, key: bytes, shown: Any, before: int) -> list[Record[Any]]:
        """A key's records in arrival order."""
        span = self.spans.get(key)
        if span is None:
            return []
        start, end = span
        stream, times = self.arrival.stream, self.times[start:end]
        values = self.values(start, end)
        if self.arrival.feedback or min(times) >= before:
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
