"""`headrace.agg`: the aggregates by name.

    clicks.key_by("user").window(tumbling("1h")).aggregate(
        clicks=agg.count(), pages=agg.distinct("page"), landing=agg.first("page"))

They take columns by name and ignore nulls, as SQL does. A column that a record does not have is
null. Times in results are microseconds, decimals are floats (a sum of decimals is exact, and
rounded once). Results depend neither on how the input is cut into epochs nor on other keys: sums
are exact and rounded once; `first`, `last` and `collect` use the order (timestamp, value), so if
two records have one timestamp, the smaller value counts as earlier.

Values of several kinds have one order: truth values < numbers < text < bytes < lists < dicts.
Numbers are ordered by their exact value (see `headrace.model.values.kinds`). If an aggregate of
numbers gets another value, such as text, it refuses that record: see `errors=`.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.model.functions import checked_function as _checked
from headrace.model.values.codec import encode_value as _encode_zero
from headrace.operators.aggregates.aggregate import Aggregate
from headrace.operators.aggregates.collect import Collect
from headrace.operators.aggregates.count import Count
from headrace.operators.aggregates.distinct import Distinct
from headrace.operators.aggregates.distinct_approximate import DistinctApproximate
from headrace.operators.aggregates.edge import Edge
from headrace.operators.aggregates.extreme import Extreme
from headrace.operators.aggregates.fold import Fold
from headrace.operators.aggregates.mean import Mean
from headrace.operators.aggregates.quantiles import Quantiles
from headrace.operators.aggregates.sum import Sum
from headrace.operators.aggregates.top_values import TopValues
from headrace.operators.aggregates.variance import Variance

__all__ = [
    "Aggregate",
    "collect",
    "count",
    "distinct",
    "first",
    "fold",
    "last",
    "max",
    "mean",
    "min",
    "quantiles",
    "stddev",
    "sum",
    "top",
    "variance",
]


def count(column: str | None = None) -> Aggregate:
    """The number of records; with a column, the number of records that have a value in it."""
    return Count(None if column is None else _named(column, "count"))


def sum(column: str) -> Aggregate:
    """The exact sum. Integers of any size stay integers; floats are rounded once, at the end.

    True counts as 1. One float or decimal among integers makes the sum of that key a float. A sum
    that is too large for a float is infinite.
    """
    return Sum(_named(column, "sum"))


def min(column: str) -> Aggregate:
    """The smallest value, of any kind, by the order over kinds."""
    return Extreme(_named(column, "min"))


def max(column: str) -> Aggregate:
    """The largest value, of any kind. NaN is larger than any number, text larger than NaN."""
    return Extreme(_named(column, "max"), largest=True)


def mean(column: str) -> Aggregate:
    """The mean of numbers, rounded once."""
    return Mean(_named(column, "mean"))


def variance(column: str, *, population: bool = False) -> Aggregate:
    """The variance of a sample (null below two values), or of a whole population."""
    return Variance(_named(column, "variance"), population=population)


def stddev(column: str, *, population: bool = False) -> Aggregate:
    """The square root of the variance, even if the variance is too large for a float."""
    return Variance(_named(column, "stddev"), population=population, root=True)


def distinct(column: str, *, error: float | None = None) -> Aggregate:
    """The number of different values: exact, or with a standard error such as 0.01.

    `1`, `1.0`, `True` and `"1"` are four values, -0.0 and 0.0 two; equal dicts are one.
    An exact count keeps every value. An approximate count (HyperLogLog) keeps at most
    `(1.04 / error) ** 2` numbers, rounded up to a power of two, and at least 128.
    """
    _named(column, "distinct")
    if error is None:
        return Distinct(column)
    if not _is_number(error) or not 0.002 <= error <= 0.3:
        raise InvalidPipeline(f"agg.distinct: error= is from 0.002 to 0.3, not {error!r}")
    # With fewer than 128 registers the error would be larger than the formula says.
    return DistinctApproximate(column, bits=builtins.max(7, math.ceil(2 * math.log2(1.04 / error))))


def first(column: str) -> Aggregate:
    """The value of the earliest record that has a value in the column."""
    return Edge(_named(column, "first"))


def last(column: str) -> Aggregate:
    """The value of the latest record that has a value in the column."""
    return Edge(_named(column, "last"), last=True)


def top(n: int, column: str) -> Aggregate:
    """The n largest values, largest first, as a list."""
    if type(n) is not int or n < 1:
        raise InvalidPipeline(f"agg.top: n is a number from 1 on, not {n!r}")
    return TopValues(_named(column, "top"), n=n)


def collect(column: str) -> Aggregate:
    """All values, of any kinds, as a list in the order (timestamp, value)."""
    return Collect(_named(column, "collect"))


def quantiles(column: str, *shares: float, error: float = 0.01) -> Aggregate:
    """Quantiles such as 0.5 and 0.99, as a list, each within the relative error (DDSketch)."""
    if not shares or not all(_is_number(share) and 0 <= share <= 1 for share in shares):
        raise InvalidPipeline('agg.quantiles: give shares from 0 to 1: quantiles("ms", 0.5, 0.99)')
    if not _is_number(error) or not 0.0001 <= error < 0.5:
        raise InvalidPipeline(f"agg.quantiles: error= is from 0.0001 to 0.5, not {error!r}")
    return Quantiles(_named(column, "quantiles"), shares=tuple(shares), error=error)


def fold(
    zero: Any,
    add: Callable[[Any, Any], Any],
    merge: Callable[[Any, Any], Any],
    result: Callable[[Any], Any] | None = None,
    *,
    column: str | None = None,
) -> Aggregate:
    """An aggregate of your own: `add(state, value)` per record, `merge(state, state)`.

    Both must be associative and must not depend on order. The value is the record's value, or its
    cell in `column`. A state must be encodable: numbers, text, lists, dicts; a tuple, set,
    dataclass or Struct only if `zero` is one. `fold` runs Python code for every record. If `add`
    raises, its record goes where `errors=` says. If `merge` or `result` raises, its key and window
    go there.
    """
    try:
        _encode_zero(zero)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidPipeline(f"agg.fold: zero {zero!r:.80} cannot be encoded: {error}") from None
    _checked(add, "agg.fold: add", "state", "value")
    _checked(merge, "agg.fold: merge", "state", "state")
    if result is not None:
        _checked(result, "agg.fold: result", "state")
    return Fold(column, zero=zero, add=add, join=merge, result=result)


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _named(column: Any, what: str) -> str:
    if not isinstance(column, str) or not column:
        raise InvalidPipeline(f'agg.{what} takes a column\'s name: agg.{what}("price")')
    return column
