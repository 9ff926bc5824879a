"""The smallest or the largest value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts
from headrace.operators.columns.groups import (
    Groups,
    Ints,
    float_order,
    from_float_order,
    runs,
    sorted_rows,
    spread,
)


@dataclass(frozen=True)
class Extreme(Aggregate):
    """The smallest or the largest value."""

    largest: bool = False

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Compares numbers in numpy, and all other values by sorting."""
        present = np.flatnonzero(np.bincount(groups.of, minlength=groups.count))
        if pa.types.is_null(values.type) or not len(values):
            return [pa.nulls(groups.count, values.type)]
        floats = pa.types.is_float64(values.type)
        if floats or pa.types.is_int64(values.type):
            given = float_order(values.to_numpy()) if floats else values.to_numpy()
            found = np.zeros(groups.count, np.int64)
            found[groups.of] = given
            (np.maximum if self.largest else np.minimum).at(found, groups.of, given)
            mask = np.ones(groups.count, np.bool_)
            mask[present] = False
            shown = from_float_order(found) if floats else found
            # from_pandas=False: NaN is a value, not a null.
            return [pa.array(shown, mask=mask, from_pandas=False)]
        order = sorted_rows(groups, values)
        starts = runs(groups.of[order])
        at = np.append(starts[1:], len(order)) - 1 if self.largest else starts
        return [spread(groups.count, present, values.take(pa.array(order[at])))]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        rows = np.flatnonzero(parts[0].is_valid().to_numpy(False))
        times = np.zeros(len(rows), np.int64)
        return self.start_values(parts[0].take(pa.array(rows)), times, groups.take(rows))
