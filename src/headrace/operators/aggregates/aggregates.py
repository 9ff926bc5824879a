"""Aggregates over groups of rows, in Arrow and numpy: counts, sums, extremes, first and last.

An aggregate is a small monoid in columns. `start` makes one accumulator per group of
records, `merge` one per group of accumulators, `finish` the results. An accumulator is a
few parts, each of a form, so it travels as columns and is stored as MessagePack. None of it
may depend on the order of rows, nor on the rows of other groups: that is what makes results
independent of the cut and of the neighbours. Values are compared by the order over kinds.

Nulls are left out, as in SQL; a group in which nothing is left gives null (a count: 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPipeline
from headrace.operators.columns import exact_sum
from headrace.operators.columns.cells import Form, all_joined
from headrace.operators.columns.groups import (
    Groups,
    Ints,
    float_order,
    from_float_order,
    runs,
    sorted_rows,
    spread,
)
from headrace.operators.columns.records import DECIMAL, FLOAT, Records

Parts = list[pa.Array]

Failed = Callable[[int, Exception], None]
"""Called with a group whose accumulators cannot be merged, and why."""


class Unfinished:
    """Stands for a result that could not be made, and says why; None if that was told before."""

    __slots__ = ("error",)

    def __init__(self, error: Exception | None) -> None:
        self.error = error


@dataclass(frozen=True)
class Aggregate:
    """What to compute from a column, or from the records themselves where there is none."""

    column: str | None

    forms: ClassVar[tuple[Form, ...]] = ("value",)
    """The parts of an accumulator."""

    numeric: ClassVar[bool] = False
    """Whether it takes nothing but numbers."""

    @property
    def parts(self) -> int:
        """How many parts an accumulator has."""
        return len(self.forms)

    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return () if self.column is None else (self.column,)

    def meaning(self) -> tuple[Any, ...]:
        """What its accumulators are made of; functions cannot be compared and are left out."""
        given = [getattr(self, field.name) for field in fields(self)]
        plain_ones = [v for v in given if isinstance(v, str | int | float | tuple | None)]
        return (type(self).__name__, *plain_ones)

    def start(self, records: Records, groups: Groups) -> Parts:
        """One accumulator per group of records; `Refused` names those that it cannot take."""
        values = records.column(self.column or "")
        if not values.null_count:
            return self.start_values(values, records.times, groups)
        rows = np.flatnonzero(values.is_valid().to_numpy(False))
        return self.start_values(
            values.take(pa.array(rows)), records.times[rows], groups.take(rows)
        )

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """The same over values without nulls."""
        raise InvalidPipeline(f"{type(self).__name__} cannot start")

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        """One accumulator per group of accumulators."""
        raise InvalidPipeline(f"{type(self).__name__} cannot merge")

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        """The results; `Unfinished` where there is none."""
        return parts[0]


@dataclass(frozen=True)
class Count(Aggregate):
    """How many records, or how many have a value in the column."""

    forms: ClassVar[tuple[Form, ...]] = ("int",)

    def start(self, records: Records, groups: Groups) -> Parts:
        of = groups.of
        if self.column is not None:
            of = of[records.present(self.column)]
        return [pa.array(np.bincount(of, minlength=groups.count))]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        return [pa.array(groups.sums(parts[0].to_numpy()))]


@dataclass(frozen=True)
class Sum(Aggregate):
    """The exact sum, rounded once at the end. Parts: count, number, power, not finite, kind.

    The kind is 0 of integers, 1 of floats, 2 + n of decimals with n digits behind the point. A
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
        """Numbers of one kind."""
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
        with np.errstate(invalid="ignore"):  # inf - inf is nan, as it should be
            np.add.at(strange, groups.of, given.to_numpy(False))
        twice = None if tens is None else 2 * tens
        squares = exact_sum.merged(parts[5], parts[6], groups, twice) if self.squared else None
        marked = pa.array(strange, mask=strange == 0)
        return self._parts(counts, totals, squares, marked, kinds)

    @staticmethod
    def _kinds(counts: Any, given: Any, groups: Groups) -> tuple[Ints, Ints | None]:
        """The kind of each group, and by how many digits each row is to be moved to it."""
        given = np.where(counts > 0, given, 0)
        kinds = np.zeros(groups.count, np.int64)
        np.maximum.at(kinds, groups.of, given)
        if (kinds < DECIMAL).all():
            return kinds, None
        # Floats are moved too: beside decimals they are added exactly, as everything is.
        return kinds, np.maximum(kinds[groups.of] - np.maximum(given, DECIMAL), 0)

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        found: list[Any] = []
        for count, total, strange, kind in _facts(parts):
            if not count:
                found.append(None)
            elif strange is not None:
                found.append(strange)
            else:
                found.append(exact_sum.ratio(total, _unit(kind)) if kind else total[0] << total[1])
        return found


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
            else exact_sum.ratio(total, count * _unit(kind))
            for count, total, strange, kind in _facts(parts)
        ]
        return pa.array(found, pa.float64())


@dataclass(frozen=True)
class Variance(Sum):
    """The variance from exact sums of values and squares, so nothing cancels."""

    population: bool = False
    root: bool = False

    forms: ClassVar[tuple[Form, ...]] = (*Sum.forms, "bytes", "int")
    squared: ClassVar[bool] = True
    name: ClassVar[str] = "agg.variance"

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        found: list[float | None] = []
        squares = zip(parts[5].to_pylist(), parts[6].to_pylist(), strict=True)
        facts = zip(_facts(parts), squares, strict=True)
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
            below = count * (count if self.population else count - 1) * _unit(kind) ** 2
            found.append((exact_sum.root if self.root else exact_sum.ratio)(above, below))
        return pa.array(found, pa.float64())


@dataclass(frozen=True)
class Extreme(Aggregate):
    """The smallest or the largest value."""

    largest: bool = False

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Numbers in numpy, everything else by sorting."""
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


@dataclass(frozen=True)
class Edge(Aggregate):
    """The value of the first or last record by (timestamp, value). Parts: time, value."""

    last: bool = False

    forms: ClassVar[tuple[Form, ...]] = ("int", "value")

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """First who has the outermost time, then among those by value."""
        edge = np.zeros(groups.count, np.int64)
        edge[groups.of] = times
        (np.maximum if self.last else np.minimum).at(edge, groups.of, times)
        rows = np.flatnonzero(times == edge[groups.of])
        present = np.flatnonzero(np.bincount(groups.of, minlength=groups.count))
        if pa.types.is_null(values.type) or not len(rows):
            return [pa.nulls(groups.count, pa.int64()), pa.nulls(groups.count)]
        candidates, among = values.take(pa.array(rows)), groups.take(rows)
        if len(rows) > len(present):
            order = sorted_rows(among, candidates)
            starts = runs(among.of[order])
            at = np.append(starts[1:], len(order)) - 1 if self.last else starts
            candidates = candidates.take(pa.array(order[at]))
        else:
            candidates = candidates.take(pa.array(np.argsort(among.of)))
        stamps = pa.array(edge[present])
        return [
            spread(groups.count, present, stamps),
            spread(groups.count, present, candidates),
        ]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        rows = np.flatnonzero(parts[1].is_valid().to_numpy(False))
        times = parts[0].take(pa.array(rows)).to_numpy(False).astype(np.int64)
        return self.start_values(parts[1].take(pa.array(rows)), times, groups.take(rows))

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        return parts[1]


def _nothing(count: int) -> pa.Array:
    return pa.nulls(count, pa.float64())


def _unit(kind: int) -> int:
    """What one is in sums of this kind."""
    return int(10 ** max(0, kind - DECIMAL))


def _facts(parts: Parts) -> Sequence[tuple[int, exact_sum.Total, float | None, int]]:
    lists = [part.to_pylist() for part in parts[:5]]
    return [
        (count, (int.from_bytes(data, "big", signed=True), power), strange, kind)
        for count, data, power, strange, kind in zip(*lists, strict=True)
    ]
