"""Quantiles, each within a relative error."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import Groups, Ints, flattened, group, lists
from headrace.operators.columns.records import Records, as_floats

_ZERO = 0
_OFFSET = 1 << 24
_INFINITE = 1 << 30
_LOG_MAX = math.log(sys.float_info.max)


@dataclass(frozen=True)
class Quantiles(Aggregate):
    """Quantiles by DDSketch: each within the relative error of a value of that rank.

    Parts: buckets, counts. Bucket i holds (gamma**(i-1), gamma**i].
    """

    shares: tuple[float, ...] = (0.5,)
    error: float = 0.01

    forms: ClassVar[tuple[Form, ...]] = ("ints", "ints")
    numeric: ClassVar[bool] = True

    def _gamma(self) -> float:
        return (1 + self.error) / (1 - self.error)

    def start(self, records: Records, groups: Groups) -> Parts:
        """Computes the bucket of every value; NaN is ignored."""
        given, rows = as_floats(records.numbers(self.column or "", "agg.quantiles"))
        given, rows = given[~np.isnan(given)], rows[~np.isnan(given)]
        groups = groups.take(rows)
        size = np.abs(given)
        usual = (size > 0) & np.isfinite(size)
        size = np.where(usual, size, 1.0)
        power = np.ceil(np.log(size) / math.log(self._gamma())).astype(np.int64) + _OFFSET
        power = np.where(usual, power, np.where(given == 0, _ZERO, _INFINITE))
        buckets = np.where(given > 0, power, -power)
        return self._kept(buckets, np.ones(len(buckets), np.int64), groups)

    def _kept(self, buckets: Ints, counts: Ints, groups: Groups) -> Parts:
        cells = group([groups.of, buckets])
        one, sums = cells.one_row(), cells.sums(counts)
        of = groups.of[one]
        return [
            lists(of, groups.count, pa.array(buckets[one])),
            lists(of, groups.count, pa.array(sums)),
        ]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        buckets, inner = flattened(parts[0], groups)
        counts, _ = flattened(parts[1], groups)
        return self._kept(
            buckets.to_numpy(False).astype(np.int64), counts.to_numpy(False).astype(np.int64), inner
        )

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        found: list[list[float] | None] = []
        for buckets, counts in zip(parts[0].to_pylist(), parts[1].to_pylist(), strict=True):
            if not buckets:
                found.append(None)
                continue
            ends = np.cumsum(counts)
            ranks = np.floor(np.array(self.shares) * (ends[-1] - 1))
            found.append([self._value(buckets[i]) for i in np.searchsorted(ends, ranks, "right")])
        return pa.array(found, pa.list_(pa.float64()))

    def _value(self, bucket: int) -> float:
        if bucket == _ZERO:
            return 0.0
        gamma = self._gamma()
        power = (abs(bucket) - _OFFSET) * math.log(gamma) + math.log(2 / (gamma + 1))
        size = math.inf if abs(bucket) == _INFINITE else math.exp(min(power, _LOG_MAX))
        return size if bucket > 0 else -size
