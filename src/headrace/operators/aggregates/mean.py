"""The exact mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from headrace.operators.aggregates.aggregate import Parts
from headrace.operators.aggregates.sum import Sum, facts_of, unit_of
from headrace.operators.columns import exact_sum


@dataclass(frozen=True)
class Mean(Sum):
    """The exact mean, rounded once."""

    name: ClassVar[str] = "agg.mean"

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        found = [
            None
            if not count
            else strange
            if strange is not None
            else exact_sum.ratio(total, count * unit_of(kind))
            for count, total, strange, kind in facts_of(parts)
        ]
        return pa.array(found, pa.float64())
