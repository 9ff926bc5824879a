"""The approximate number of different values, in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import Groups, Ints, flattened, lists
from headrace.operators.columns.hashes import hash_column


@dataclass(frozen=True)
class DistinctApproximate(Aggregate):
    """The approximate number of different values, by HyperLogLog with `2**bits` registers.

    The standard error is 1.04 / sqrt(2**bits) at all sizes. The estimator is Ertl's
    (arXiv:1702.01284), which is unbiased in every range. Part: the registers in use, as
    register * 64 + rank.
    """

    bits: int = 14

    forms: ClassVar[tuple[Form, ...]] = ("ints",)

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Computes hash, register and rank of every value."""
        hashes = hash_column(values)
        register = (hashes >> np.uint64(64 - self.bits)).astype(np.int64)
        rest = (hashes << np.uint64(self.bits)) | np.uint64(1 << (self.bits - 1))
        # The position of the first one bit is the exponent of the next lower float.
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
        # The table of ranks has a row per group: handle few groups at a time, to bound memory.
        cuts = range(0, len(parts[0]), _GROUPS_MAX)
        found = [self._estimates(parts[0].slice(start, _GROUPS_MAX)) for start in cuts]
        return pa.array(np.concatenate([np.zeros(0, np.int64), *found]))

    def _estimates(self, registers: pa.Array) -> Ints:
        cells, inner = flattened(registers, Groups(np.arange(len(registers)), len(registers)))
        size, most = 2**self.bits, 64 - self.bits + 1
        ranks = np.minimum(cells.to_numpy(False).astype(np.int64) % 64, most)
        # The estimate needs only the number of registers of each rank, per group.
        having = np.bincount(inner.of * (most + 1) + ranks, minlength=inner.count * (most + 1))
        having = having.reshape(inner.count, most + 1).astype(np.float64)
        having[:, 0] = size - having.sum(axis=1)
        found = size * tau(1 - having[:, most] / size)
        for rank in range(most - 1, 0, -1):
            found = 0.5 * (found + having[:, rank])
        with np.errstate(divide="ignore"):
            found = size * size / (found + size * sigma(having[:, 0] / size))
        # The factor for infinitely many registers, corrected for a small number.
        found *= 1 / (2 * math.log(2)) / (1 + 1.079 / size)
        return np.rint(found).astype(np.int64)


_GROUPS_MAX = 10_000


def sigma(share: Any) -> Any:
    """Ertl's correction for empty registers; infinite if all are empty."""
    x, y, z = share.copy(), 1.0, share.copy()
    for _ in range(64):  # x < 1 is squared each time, so it becomes zero long before
        x = x * x
        z = z + x * y
        y += y
    return np.where(share == 1.0, np.inf, z)


def tau(share: Any) -> Any:
    """Ertl's correction for full registers."""
    x, y, z = share.copy(), 1.0, 1 - share
    for _ in range(64):
        x = np.sqrt(x)
        y *= 0.5
        z = z - (1 - x) ** 2 * y
    return np.where((share == 0.0) | (share == 1.0), 0.0, z / 3)
