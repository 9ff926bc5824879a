"""The exact number of different values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import (
    Groups,
    Ints,
    flattened,
    float_order,
    from_float_order,
    group,
    lists,
    sorted_rows,
)


@dataclass(frozen=True)
class Distinct(Aggregate):
    """The exact number of different values. Part: the values, sorted."""

    forms: ClassVar[tuple[Form, ...]] = ("values",)

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Sorts by group and value, and keeps the first of equal values."""
        if not len(values):
            return [lists(groups.of, groups.count, values)]
        if pa.types.is_float64(values.type):
            values = pa.array(from_float_order(codes := float_order(values.to_numpy())))
        else:
            codes = values.dictionary_encode().indices.to_numpy(False).astype(np.int64)
        cells = group([groups.of, codes])
        one = cells.one_row()
        kept, of = values.take(pa.array(one)), groups.of[one]
        order = sorted_rows(Groups(of, groups.count), kept)
        return [lists(of[order], groups.count, kept.take(pa.array(order)))]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        values, inner = flattened(parts[0], groups)
        return self.start_values(values, np.zeros(len(values), np.int64), inner)

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        return pc.list_value_length(parts[0]).cast(pa.int64())
