"""The largest values, as a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import Groups, Ints, flattened, lists, runs, sorted_rows


@dataclass(frozen=True)
class TopValues(Aggregate):
    """The n largest values, largest first."""

    n: int = 1

    forms: ClassVar[tuple[Form, ...]] = ("values",)

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Sorts by group and value, and keeps the last n of each group in reverse order."""
        order = sorted_rows(groups, values)[::-1]
        of = groups.of[order]
        starts = runs(of)
        lengths = np.diff(np.append(starts, len(of)))
        kept = (np.arange(len(of)) - np.repeat(starts, lengths)) < self.n
        order, of = order[kept], of[kept]
        by_group = np.argsort(of, kind="stable")
        return [lists(of[by_group], groups.count, values.take(pa.array(order[by_group])))]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        values, inner = flattened(parts[0], groups)
        return self.start_values(values, np.zeros(len(values), np.int64), inner)
