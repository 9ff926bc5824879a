"""The value of the first or the last record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import Groups, Ints, runs, sorted_rows, spread


@dataclass(frozen=True)
class Edge(Aggregate):
    """The value of the first or last record by (timestamp, value). Parts: time, value."""

    last: bool = False

    forms: ClassVar[tuple[Form, ...]] = ("int", "value")

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Finds the first or last time of each group, then decides among its records by value."""
        edge = np.zeros(groups.count, np.int64)
        edge[groups.of] = times
        (np.maximum if self.last else np.minimum).at(edge, groups.of, times)
        rows = np.flatnonzero(times == edge[groups.of])
        present = np.flatnonzero(np.bincount(groups.of, minlength=groups.count))
        if pa.types.is_null(values.type) or not len(rows):
            return [pa.nulls(groups.count, pa.int64()), pa.nulls(groups.count)]
        candidates, among = values.take(pa.array(rows)), groups.take(rows)
        if len(rows) > len(present):
            order = sorted_rows(among, candidates)
            starts = runs(among.of[order])
            at = np.append(starts[1:], len(order)) - 1 if self.last else starts
            candidates = candidates.take(pa.array(order[at]))
        else:
            candidates = candidates.take(pa.array(np.argsort(among.of)))
        stamps = pa.array(edge[present])
        return [
            spread(groups.count, present, stamps),
            spread(groups.count, present, candidates),
        ]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        rows = np.flatnonzero(parts[1].is_valid().to_numpy(False))
        times = parts[0].take(pa.array(rows)).to_numpy(False).astype(np.int64)
        return self.start_values(parts[1].take(pa.array(rows)), times, groups.take(rows))

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        return parts[1]
