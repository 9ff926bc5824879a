"""All values, as a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import Groups, Ints, flattened, lists, sorted_rows


@dataclass(frozen=True)
class Collect(Aggregate):
    """All values, in the order (timestamp, value). Parts: times, values."""

    forms: ClassVar[tuple[Form, ...]] = ("ints", "values")

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Sorts by group, time and value."""
        order = sorted_rows(groups, times, values)
        of = groups.of[order]
        return [
            lists(of, groups.count, pa.array(times[order])),
            lists(of, groups.count, values.take(pa.array(order))),
        ]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        times, inner = flattened(parts[0], groups)
        values, _ = flattened(parts[1], groups)
        return self.start_values(values, times.to_numpy(False).astype(np.int64), inner)

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        return parts[1]
