"""The variance and its square root, from exact sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from headrace.operators.aggregates.aggregate import Parts
from headrace.operators.aggregates.sum import Sum, facts_of, unit_of
from headrace.operators.columns import exact_sum
from headrace.operators.columns.cells import Form


@dataclass(frozen=True)
class Variance(Sum):
    """The variance from exact sums of values and squares, so no digits cancel."""

    population: bool = False
    root: bool = False

    forms: ClassVar[tuple[Form, ...]] = (*Sum.forms, "bytes", "int")
    squared: ClassVar[bool] = True
    name: ClassVar[str] = "agg.variance"

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        found: list[float | None] = []
        squares = zip(parts[5].to_pylist(), parts[6].to_pylist(), strict=True)
        facts = zip(facts_of(parts), squares, strict=True)
        for (count, total, strange, kind), (data, power) in facts:
            if count < (1 if self.population else 2):
                found.append(None)
                continue
            if strange is not None:
                found.append(math.nan)
                continue
            square = (int.from_bytes(data, "big", signed=True), power)
            # (n * sum of squares - square of the sum) / (n * (n - 1 or n))
            above = exact_sum.add(
                (count * square[0], square[1]), (-total[0] * total[0], 2 * total[1])
            )
            below = count * (count if self.population else count - 1) * unit_of(kind) ** 2
            found.append((exact_sum.root if self.root else exact_sum.ratio)(above, below))
        return pa.array(found, pa.float64())
