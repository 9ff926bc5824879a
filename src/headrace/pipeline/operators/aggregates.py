"""Aggregates over groups of rows, in Arrow and numpy: counts, sums, extremes, first and last.

An aggregate is a small monoid in columns. `start` makes one accumulator per group of
records, `merge` one per group of accumulators, `finish` the results. An accumulator is a
few cells (`parts`), so it travels as columns and is stored as MessagePack. None of it
may depend on the order of rows: that is what makes results independent of the cut.

Nulls are left out, as in SQL; a group in which nothing is left gives null (a count: 0).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPipeline
from headrace.pipeline.operators import exact
from headrace.pipeline.operators.grouping import (
    Groups,
    Ints,
    one_array,
    plain,
    runs,
    sorted_rows,
    spread,
)

Parts = list[pa.Array]

FLOAT, DECIMAL = 1, 2
"""Kinds of sums."""


@dataclass(frozen=True)
class Aggregate:
    """What to compute from a column, or from the records themselves where there is none."""

    column: str | None

    parts: ClassVar[int] = 1
    """How many cells an accumulator has."""

    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return () if self.column is None else (self.column,)

    def meaning(self) -> tuple[Any, ...]:
        """What its accumulators are made of; functions cannot be compared and are left out."""
        given = [getattr(self, field.name) for field in fields(self)]
        plain_ones = [v for v in given if isinstance(v, str | int | float | tuple | None)]
        return (type(self).__name__, *plain_ones)

    nested: ClassVar[bool] = False
    """Whether it also takes lists and structs."""

    numeric: ClassVar[bool] = False
    """Whether it takes nothing but numbers."""

    decimals: ClassVar[bool] = False
    """Whether it takes decimals as they are; others take them as floats."""

    def start(self, table: pa.Table, times: Ints, groups: Groups) -> Parts:
        """One accumulator per group of records."""
        values = column_of(table, self.column or "", nested=self.nested, decimals=self.decimals)
        if not values.null_count:
            return self.start_values(values, times, groups)
        rows = np.flatnonzero(values.is_valid().to_numpy(False))
        return self.start_values(values.take(pa.array(rows)), times[rows], groups.take(rows))

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """The same over values without nulls."""
        raise InvalidPipeline(f"{type(self).__name__} cannot start")

    def merge(self, parts: Parts, groups: Groups) -> Parts:
        """One accumulator per group of accumulators."""
        raise InvalidPipeline(f"{type(self).__name__} cannot merge")

    def finish(self, parts: Parts) -> pa.Array:
        """The results."""
        return parts[0]


def column_of(
    table: pa.Table, name: str, *, nested: bool = False, decimals: bool = False
) -> pa.Array:
    """A column in plain types. Where no record of a table has it, as in sparse JSON, it is null:
    whether one of them has it depends on the cut, so it must not matter."""
    if name not in table.schema.names:
        return pa.nulls(table.num_rows)
    column = table.column(name)
    if decimals and pa.types.is_decimal(column.type):
        return one_array(column)
    values = plain(column)
    if pa.types.is_map(values.type) or (pa.types.is_nested(values.type) and not nested):
        also = "" if nested else ", and only count, distinct, first, last, collect and fold lists"
        raise TypeError(
            f"column {name!r} holds {values.type}; aggregates take numbers, text, bytes, booleans "
            f"and times{also}: take a part of it with map or select before"
        )
    return values


def any_column(table: pa.Table, name: str) -> Any:
    """A column of whatever type, for counting."""
    return table.column(name) if name in table.schema.names else pa.nulls(table.num_rows)


@dataclass(frozen=True)
class Count(Aggregate):
    """How many records, or how many have a value in the column."""

    def start(self, table: pa.Table, times: Ints, groups: Groups) -> Parts:
        of = groups.of
        if self.column is not None:
            values = any_column(table, self.column)
            of = of[np.asarray(values.is_valid())] if values.null_count else of
        return [pa.array(np.bincount(of, minlength=groups.count))]

    def merge(self, parts: Parts, groups: Groups) -> Parts:
        return [pa.array(groups.sums(parts[0].to_numpy()))]


@dataclass(frozen=True)
class Sum(Aggregate):
    """The exact sum, rounded once at the end. Parts: count, number, power, not finite, kind.

    The kind is 0 of integers, 1 of floats, 2 + n of decimals with n digits behind the point.
    """

    parts: ClassVar[int] = 5
    squared: ClassVar[bool] = False
    numeric: ClassVar[bool] = True
    decimals: ClassVar[bool] = True

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Numbers only."""
        kind, values = 0, numbers(values, self.column)
        counts = pa.array(np.bincount(groups.of, minlength=groups.count))
        if pa.types.is_decimal(values.type):
            kind, values = DECIMAL + values.type.scale, exact.unscaled(values)
        if not isinstance(values, pa.Array) or not pa.types.is_floating(values.type):
            given = values.to_numpy() if isinstance(values, pa.Array) else values
            totals = exact.totals_of_ints(given, groups)
            squares = exact.squares_of_ints(given, groups) if self.squared else None
            return self._parts(counts, totals, squares, _nothing(groups.count), kind)
        given = values.to_numpy()
        finite = np.isfinite(given)
        strange = np.zeros(groups.count)
        if not finite.all():
            with np.errstate(invalid="ignore"):
                np.add.at(strange, groups.of[~finite], given[~finite])
            given, groups = given[finite], groups.take(np.flatnonzero(finite))
        totals = exact.totals_of_floats(given, groups)
        squares = exact.squares_of_floats(given, groups) if self.squared else None
        marked = pa.array(strange, mask=strange == 0)
        return self._parts(counts, totals, squares, marked, FLOAT)

    @staticmethod
    def _parts(
        counts: pa.Array,
        totals: list[exact.Total],
        squares: list[exact.Total] | None,
        strange: pa.Array,
        kind: int | Ints,
    ) -> Parts:
        kinds = pa.array(np.broadcast_to(np.asarray(kind, np.int64), (len(counts),)))
        more = [] if squares is None else exact.stored(squares)
        return [counts, *exact.stored(totals), strange, kinds, *more]

    def merge(self, parts: Parts, groups: Groups) -> Parts:
        counts = pa.array(groups.sums(parts[0].to_numpy()))
        kinds, tens = self._kinds(parts[0].to_numpy(), parts[4].to_numpy(), groups)
        totals = exact.merged(parts[1], parts[2], groups, tens)
        strange = np.zeros(groups.count)
        given = pc.fill_null(parts[3].cast(pa.float64()), 0.0)  # null alone has no type yet
        with np.errstate(invalid="ignore"):  # inf - inf is nan, as it should be
            np.add.at(strange, groups.of, given.to_numpy(False))
        twice = None if tens is None else 2 * tens
        squares = exact.merged(parts[5], parts[6], groups, twice) if self.squared else None
        marked = pa.array(strange, mask=strange == 0)
        return self._parts(counts, totals, squares, marked, kinds)

    def _kinds(self, counts: Any, given: Any, groups: Groups) -> tuple[Ints, Ints | None]:
        """The kind of each group, and by how many digits each row is to be moved to it."""
        given = np.where(counts > 0, given, 0)
        kinds = np.zeros(groups.count, np.int64)
        np.maximum.at(kinds, groups.of, given)
        if (kinds < DECIMAL).all():
            return kinds, None
        wanted = kinds[groups.of]
        if ((wanted >= DECIMAL) & (given == FLOAT)).any():
            raise TypeError(
                f"column {self.column!r} holds decimals and floats: make them alike with map before"
            )
        return kinds, np.maximum(wanted - np.maximum(given, DECIMAL), 0)

    def finish(self, parts: Parts) -> pa.Array:
        found: list[Any] = []
        for count, total, strange, kind in _facts(parts):
            if not count:
                found.append(None)
            elif strange is not None:
                found.append(strange)
            else:
                found.append(exact.ratio(total, _unit(kind)) if kind else total[0] << total[1])
        return _array(found, self.column)


@dataclass(frozen=True)
class Mean(Sum):
    """The exact mean, rounded once."""

    def finish(self, parts: Parts) -> pa.Array:
        found = [
            None
            if not count
            else strange
            if strange is not None
            else exact.ratio(total, count * _unit(kind))
            for count, total, strange, kind in _facts(parts)
        ]
        return pa.array(found, pa.float64())


@dataclass(frozen=True)
class Variance(Sum):
    """The variance from exact sums of values and squares, so nothing cancels."""

    population: bool = False
    root: bool = False

    parts: ClassVar[int] = 7
    squared: ClassVar[bool] = True

    def finish(self, parts: Parts) -> pa.Array:
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
            above = exact.add((count * square[0], square[1]), (-total[0] * total[0], 2 * total[1]))
            below = count * (count if self.population else count - 1) * _unit(kind) ** 2
            value = exact.ratio(above, below)
            found.append(math.sqrt(value) if self.root else value)
        return pa.array(found, pa.float64())


@dataclass(frozen=True)
class Extreme(Aggregate):
    """The smallest or the largest value; NaN is larger than any number."""

    largest: bool = False

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """Numbers in numpy, everything else by sorting."""
        present = np.flatnonzero(np.bincount(groups.of, minlength=groups.count))
        if pa.types.is_null(values.type) or not len(values):
            return [pa.nulls(groups.count, values.type)]
        if pa.types.is_int64(values.type) or pa.types.is_float64(values.type):
            given = values.to_numpy()
            found = np.zeros(groups.count, given.dtype)
            found[groups.of] = given
            with np.errstate(invalid="ignore"):  # NaN is a value like others here
                (np.maximum if self.largest else np.fmin).at(found, groups.of, given)
            mask = np.ones(groups.count, np.bool_)
            mask[present] = False
            # from_pandas=False: NaN is a value, not a null.
            return [pa.array(found, mask=mask, from_pandas=False)]
        order = sorted_rows(groups, values)
        starts = runs(groups.of[order])
        at = np.append(starts[1:], len(order)) - 1 if self.largest else starts
        return [spread(groups.count, present, values.take(pa.array(order[at])))]

    def merge(self, parts: Parts, groups: Groups) -> Parts:
        return _merge_values(self, parts[0], groups)


def _merge_values(aggregate: Aggregate, values: pa.Array, groups: Groups) -> Parts:
    values = plain(values)
    rows = np.flatnonzero(values.is_valid().to_numpy(False))
    no_times = np.zeros(len(rows), np.int64)
    return aggregate.start_values(values.take(pa.array(rows)), no_times, groups.take(rows))


@dataclass(frozen=True)
class Edge(Aggregate):
    """The value of the first or last record by (timestamp, value). Parts: time, value."""

    last: bool = False

    parts: ClassVar[int] = 2
    nested: ClassVar[bool] = True

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

    def merge(self, parts: Parts, groups: Groups) -> Parts:
        values = plain(parts[1])
        rows = np.flatnonzero(values.is_valid().to_numpy(False))
        times = parts[0].take(pa.array(rows)).to_numpy(False).astype(np.int64)
        return self.start_values(values.take(pa.array(rows)), times, groups.take(rows))

    def finish(self, parts: Parts) -> pa.Array:
        return parts[1]


def numbers(values: pa.Array, column: str | None) -> pa.Array:
    """A column of numbers; refuses others."""
    kind = values.type
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return values.cast(pa.int64())
    if pa.types.is_int64(kind) or pa.types.is_float64(kind):
        return values
    if pa.types.is_uint64(kind) or pa.types.is_decimal(kind):
        return values
    raise TypeError(
        f"column {column!r} holds {kind}, not numbers: convert it with map or select before, or "
        "give the stream a schema"
    )


def _nothing(count: int) -> pa.Array:
    return pa.nulls(count, pa.float64())


def _unit(kind: int) -> int:
    """What one is in sums of this kind."""
    return int(10 ** max(0, kind - DECIMAL))


def _facts(parts: Parts) -> Sequence[tuple[int, exact.Total, float | None, int]]:
    lists = [part.to_pylist() for part in parts[:5]]
    return [
        (count, (int.from_bytes(data, "big", signed=True), power), strange, kind)
        for count, data, power, strange, kind in zip(*lists, strict=True)
    ]


def _array(found: list[Any], column: str | None) -> pa.Array:
    if all(value is None or isinstance(value, int) for value in found):
        try:
            return pa.array(found, pa.int64())
        except OverflowError:
            pass  # more than 64 bits: as a float, as near as it gets
    return pa.array([None if v is None else float(v) for v in found], pa.float64())
