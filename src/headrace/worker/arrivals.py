"""What arrives at a slot in an epoch: parcels of all inputs, in order, by key.

Input order is (order of inputs, label, position), sorted here, as Spark's
shuffle read order is random (protocol B6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace.model.rows import Rows
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
        self.values: list[Any] = self.rows.values()
        self.times: list[int] = self.rows.timestamps.tolist()
        self.origins: list[bytes] | None = (
            self.rows.origins.to_pylist() if self.rows.origins is not None else None
        )


def keys_of(groups: list[Grouped]) -> Iterator[bytes]:
    """Every key that has records, in order of first appearance."""
    seen: dict[bytes, None] = {}
    for group in groups:
        for key in group.spans:
            if key not in seen:
                seen[key] = None
                yield key
