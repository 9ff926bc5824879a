"""The exact sum. Mean and variance use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts
from headrace.operators.columns import exact_sum
from headrace.operators.columns.cells import Form, all_joined
from headrace.operators.columns.groups import Groups, Ints
from headrace.operators.columns.records import DECIMAL, FLOAT, Records


@dataclass(frozen=True)
class Sum(Aggregate):
    """The exact sum, rounded once at the end. Parts: count, number, power, not finite, kind.

    The kind is 0 for integers, 1 for floats, 2 + n for decimals with n digits after the point. A
    sum of integers is an integer of any size; one float or decimal among them makes it a float.
    """

    forms: ClassVar[tuple[Form, ...]] = ("int", "bytes", "int", "float", "int")
    squared: ClassVar[bool] = False
    numeric: ClassVar[bool] = True
    name: ClassVar[str] = "agg.sum"

    def start(self, records: Records, groups: Groups) -> Parts:
        pieces = records.numbers(self.column or "", self.name)
        if not pieces:
            pieces = [(np.zeros(0, np.int64), 0, np.zeros(0, np.int64))]
        made = [self._piece(given, kind, groups.take(rows)) for given, kind, rows in pieces]
        if len(made) == 1:
            return made[0]
        parts = [all_joined(columns) for columns in zip(*made, strict=True)]
        return self.merge(parts, Groups(np.tile(np.arange(groups.count), len(made)), groups.count))

    def _piece(self, given: Any, kind: int, groups: Groups) -> Parts:
        """The accumulators of numbers of one kind."""
        counts = pa.array(np.bincount(groups.of, minlength=groups.count))
        if kind != FLOAT:
            totals = exact_sum.totals_of_ints(given, groups)
            squares = exact_sum.squares_of_ints(given, groups) if self.squared else None
            return self._parts(counts, totals, squares, _nothing(groups.count), kind)
        finite = np.isfinite(given)
        strange = np.zeros(groups.count)
        if not finite.all():
            with np.errstate(invalid="ignore"):
                np.add.at(strange, groups.of[~finite], given[~finite])
            given, groups = given[finite], groups.take(np.flatnonzero(finite))
        totals = exact_sum.totals_of_floats(given, groups)
        squares = exact_sum.squares_of_floats(given, groups) if self.squared else None
        marked = pa.array(strange, mask=strange == 0)
        return self._parts(counts, totals, squares, marked, FLOAT)

    @staticmethod
    def _parts(
        counts: pa.Array,
        totals: list[exact_sum.Total],
        squares: list[exact_sum.Total] | None,
        strange: pa.Array,
        kind: int | Ints,
    ) -> Parts:
        # A group without values has no kind yet.
        kinds = pa.array(np.where(counts.to_numpy() > 0, np.asarray(kind, np.int64), 0))
        more = [] if squares is None else exact_sum.stored(squares)
        return [counts, *exact_sum.stored(totals), strange, kinds, *more]

    def merge(self, parts: Parts, groups: Groups, failed: Failed | None = None) -> Parts:
        counts = pa.array(groups.sums(parts[0].to_numpy()))
        kinds, tens = self._kinds(parts[0].to_numpy(), parts[4].to_numpy(), groups)
        totals = exact_sum.merged(parts[1], parts[2], groups, tens)
        strange = np.zeros(groups.count)
        given = pc.fill_null(parts[3], 0.0)
        with np.errstate(invalid="ignore"):  # inf - inf is nan, as intended
            np.add.at(strange, groups.of, given.to_numpy(False))
        twice = None if tens is None else 2 * tens
        squares = exact_sum.merged(parts[5], parts[6], groups, twice) if self.squared else None
        marked = pa.array(strange, mask=strange == 0)
        return self._parts(counts, totals, squares, marked, kinds)

    @staticmethod
    def _kinds(counts: Any, given: Any, groups: Groups) -> tuple[Ints, Ints | None]:
        """The kind of each group, and by how many decimal digits each row is shifted for it."""
        given = np.where(counts > 0, given, 0)
        kinds = np.zeros(groups.count, np.int64)
        np.maximum.at(kinds, groups.of, given)
        if (kinds < DECIMAL).all():
            return kinds, None
        # Floats are shifted too, so that floats and decimals are added exactly.
        return kinds, np.maximum(kinds[groups.of] - np.maximum(given, DECIMAL), 0)

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        found: list[Any] = []
        for count, total, strange, kind in facts_of(parts):
            if not count:
                found.append(None)
            elif strange is not None:
                found.append(strange)
            else:
                found.append(
                    exact_sum.ratio(total, unit_of(kind)) if kind else total[0] << total[1]
                )
        return found


def _nothing(count: int) -> pa.Array:
    return pa.nulls(count, pa.float64())


def unit_of(kind: int) -> int:
    """The value of 1 in sums of this kind."""
    return int(10 ** max(0, kind - DECIMAL))


def facts_of(parts: Parts) -> Sequence[tuple[int, exact_sum.Total, float | None, int]]:
    """For each accumulator: count, total, sum of values that are not finite, kind."""
    lists = [part.to_pylist() for part in parts[:5]]
    return [
        (count, (int.from_bytes(data, "big", signed=True), power), strange, kind)
        for count, data, power, strange, kind in zip(*lists, strict=True)
    ]
