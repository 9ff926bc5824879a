"""Aggregates whose accumulators are lists: collect, distinct, top values, quantiles."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.aggregates.aggregates import Aggregate, Failed, Parts
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import (
    Groups,
    Ints,
    flattened,
    float_order,
    from_float_order,
    group,
    lists,
    runs,
    sorted_rows,
)
from headrace.operators.columns.hashes import hash_column
from headrace.operators.columns.records import Records, as_floats


@dataclass(frozen=True)
class Collect(Aggregate):
    """All values, by (timestamp, value). Parts: times, values."""

    forms: ClassVar[tuple[Form, ...]] = ("ints", "values")

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Sorted by group, time and value."""
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


@dataclass(frozen=True)
class Distinct(Aggregate):
    """How many different values there are, exactly. Part: the values, sorted."""

    forms: ClassVar[tuple[Form, ...]] = ("values",)

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Sorted by group and value; the first of each run stays."""
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


@dataclass(frozen=True)
class DistinctApproximate(Aggregate):
    """About how many different values, by HyperLogLog with `2**bits` registers.

    The standard error is 1.04 / sqrt(2**bits), at all sizes alike: the estimate is Ertl's
    (arXiv:1702.01284), which has no range in which it is biased. Part: the registers in use, as
    register * 64 + rank.
    """

    bits: int = 14

    forms: ClassVar[tuple[Form, ...]] = ("ints",)

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Hash, register and rank of every value."""
        hashes = hash_column(values)
        register = (hashes >> np.uint64(64 - self.bits)).astype(np.int64)
        rest = (hashes << np.uint64(self.bits)) | np.uint64(1 << (self.bits - 1))
        # The position of the first one bit: the exponent of the nearest float below.
        rank = 64 - np.frexp((rest >> np.uint64(11)).astype(np.float64))[1] - 11 + 1
        return self._kept(register * 64 + rank.astype(np.int64), groups)

    def _kept(self, cells: Ints, groups: Groups) -> Parts:
        order = np.lexsort((cells, groups.of))
        of, cells = groups.of[order], cells[order]
        last = np.ones(len(cells), np.bool_)
        last[:-1] = (of[1:] != of[:-1]) | (cells[1:] // 64 != cells[:-1] // 64)
        return [lists(of[last], groups.count, pa.array(cells[last]))]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        cells, inner = flattened(parts[0], groups)
        return self._kept(cells.to_numpy(False).astype(np.int64), inner)

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        # A table of ranks per group: not of all groups at once.
        cuts = range(0, len(parts[0]), _GROUPS_MAX)
        found = [self._estimates(parts[0].slice(start, _GROUPS_MAX)) for start in cuts]
        return pa.array(np.concatenate([np.zeros(0, np.int64), *found]))

    def _estimates(self, registers: pa.Array) -> Ints:
        cells, inner = flattened(registers, Groups(np.arange(len(registers)), len(registers)))
        size, most = 2**self.bits, 64 - self.bits + 1
        ranks = np.minimum(cells.to_numpy(False).astype(np.int64) % 64, most)
        # How many registers of each group have each rank: the estimate needs nothing else.
        having = np.bincount(inner.of * (most + 1) + ranks, minlength=inner.count * (most + 1))
        having = having.reshape(inner.count, most + 1).astype(np.float64)
        having[:, 0] = size - having.sum(axis=1)
        found = size * tau(1 - having[:, most] / size)
        for rank in range(most - 1, 0, -1):
            found = 0.5 * (found + having[:, rank])
        with np.errstate(divide="ignore"):
            found = size * size / (found + size * sigma(having[:, 0] / size))
        # The factor of infinitely many registers, corrected for a few.
        found *= 1 / (2 * math.log(2)) / (1 + 1.079 / size)
        return np.rint(found).astype(np.int64)


_GROUPS_MAX = 10_000


def sigma(share: Any) -> Any:
    """Ertl's correction for registers that are empty; infinite where all are."""
    x, y, z = share.copy(), 1.0, share.copy()
    for _ in range(64):  # x is squared each time: what is below one vanishes much sooner
        x = x * x
        z = z + x * y
        y += y
    return np.where(share == 1.0, np.inf, z)


def tau(share: Any) -> Any:
    """Ertl's correction for registers that are full."""
    x, y, z = share.copy(), 1.0, 1 - share
    for _ in range(64):
        x = np.sqrt(x)
        y *= 0.5
        z = z - (1 - x) ** 2 * y
    return np.where((share == 0.0) | (share == 1.0), 0.0, z / 3)


@dataclass(frozen=True)
class TopValues(Aggregate):
    """The n largest values, largest first."""

    n: int = 1

    forms: ClassVar[tuple[Form, ...]] = ("values",)

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Sorted by group and value; the last n of each run, in reverse."""
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
        """The bucket of every value; NaN is left out."""
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
