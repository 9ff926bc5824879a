"""Aggregates over awkward columns, and the sketches' errors."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace import Pipeline, UserCodeError, agg, sources, whole
from headrace.model.values.arrow import one_batch
from headrace.model.values.rows import Rows
from headrace.operators.aggregates.aggregate import Aggregate
from headrace.operators.columns.groups import Groups
from headrace.operators.columns.records import Records
from headrace.testing import CRASH, Harness


def over(epochs: list[list[dict[str, Any]]], **aggregates: Aggregate) -> dict[str, Any]:
    """The aggregates of all records, sent in these epochs."""
    p = Pipeline("aggregates")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.key_by().window(whole()).aggregate(**aggregates)
    with Harness(p) as h:
        for records in epochs:
            h.send("in", *records, CRASH)
        h.end()
        (found,) = h.read("in.aggregate")
    return found


def values(*given: Any) -> list[dict[str, Any]]:
    return [{"t": i, "v": value} for i, value in enumerate(given)]


def records(column: Any) -> Records:
    """A column `v` of records that came in a table."""
    table = pa.table({"v": column})
    zeros = np.zeros(table.num_rows, np.int64)
    return Records(Rows(zeros, columns=one_batch(table)), zeros)


def unexpected(group: int, error: Exception) -> None:
    raise error


EVERYTHING = {
    "n": agg.count("v"), "s": agg.sum("v"), "lo": agg.min("v"), "hi": agg.max("v"),
    "m": agg.mean("v"), "f": agg.first("v"), "l": agg.last("v"), "c": agg.collect("v"),
    "d": agg.distinct("v"), "a": agg.distinct("v", error=0.05), "top": agg.top(2, "v"),
    "var": agg.variance("v", population=True), "sd": agg.stddev("v"),
    "q": agg.quantiles("v", 0.5),
}  # fmt: skip


def test_integers_that_become_floats_between_epochs():
    found = over([values(1, 2), values(2.5, 2)], **EVERYTHING)
    assert (found["n"], found["s"], found["lo"], found["hi"]) == (4, 7.5, 1, 2.5)
    assert (found["d"], found["a"]) == (3, 3)
    assert found["top"] == [2.5, 2]


def test_a_column_that_some_epochs_do_not_have_is_null_there():
    assert over([[{"t": 1}], values(3), [{"t": 2}]], **EVERYTHING) == over(
        [[{"t": 1}, *values(3), {"t": 2}]], **EVERYTHING
    )


def test_nothing_but_nulls():
    found = over([values(None), [{"t": 1}]], **EVERYTHING)
    assert found["n"] == found["d"] == found["a"] == 0
    assert found["c"] == found["top"] == []
    nothing = ("s", "lo", "hi", "m", "f", "l", "var", "sd", "q")
    assert [found[name] for name in nothing] == [None] * len(nothing)


def test_sums_are_exact_where_floats_alone_would_not_be():
    found = over([values(1e16, 1.0), values(-1e16, 1e-3)], s=agg.sum("v"), m=agg.mean("v"))
    assert found == {"s": 1.001, "m": 1.001 / 4}
    big = over([values(2**62, 2**62), values(2**62, -(2**62))], s=agg.sum("v"))
    assert repr(big) == repr({"s": 2**63})  # one more than 64 bits hold
    assert over([values(2**62), values(2**62 - 1)], s=agg.sum("v")) == {"s": 2**63 - 1}


def test_variance_does_not_cancel():
    found = over([values(1e9 + 4, 1e9 + 7), values(1e9 + 13, 1e9 + 16)], v=agg.variance("v"))
    assert found == {"v": 30.0}


def test_infinities_and_nan():
    found = over([values(1.0, math.inf), values(2.0)], s=agg.sum("v"), hi=agg.max("v"))
    assert found == {"s": math.inf, "hi": math.inf}
    found = over([values(math.inf), values(-math.inf)], s=agg.sum("v"), v=agg.variance("v"))
    assert math.isnan(found["s"]) and math.isnan(found["v"])


def test_booleans_bytes_and_text():
    found = over([values(True, False), values(True)], s=agg.sum("v"), hi=agg.max("v"))
    assert found == {"s": 2, "hi": True}
    found = over([values("b", "ä"), values("a")], lo=agg.min("v"), c=agg.collect("v"))
    assert found == {"lo": "a", "c": ["a", "b", "ä"]}


def test_values_that_cannot_be_aggregated_are_named():
    with pytest.raises(
        UserCodeError, match=r"'v' holds a list \(\[1\]\), and agg.mean takes numbers"
    ):
        over([values([1], [2])], lo=agg.mean("v"))
    with pytest.raises(UserCodeError, match="'v' holds text"):
        over([values("x")], s=agg.sum("v"))
    assert over([values([1], None)], n=agg.count("v")) == {"n": 1}


def test_times_come_out_as_microseconds():
    at = datetime(2026, 1, 1, tzinfo=UTC)
    aggregate = agg.max("v")
    given = records(pa.array([at, None], pa.timestamp("ms", "UTC")))
    parts = aggregate.start(given, Groups(np.zeros(2, np.int64), 1))
    assert aggregate.finish(parts).to_pylist() == [int(at.timestamp()) * 1_000_000]


@pytest.mark.parametrize("make", [str, int, lambda n: n / 7], ids=["text", "int", "float"])
@pytest.mark.parametrize("count", [10, 3_000, 60_000])
def test_the_approximate_count_keeps_its_error(make, count):
    aggregate = agg.distinct("v", error=0.02)
    groups = Groups(np.arange(2 * count) % 3, 3)
    parts = aggregate.start(records([make(n) for n in range(count)] * 2), groups)
    merged = aggregate.merge(parts, Groups(np.zeros(3, np.int64), 1), unexpected)
    (found,) = aggregate.finish(merged).to_pylist()
    assert abs(found - count) <= 4 * 0.02 * count


def test_quantiles_keep_their_relative_error():
    dice = random.Random(3)
    given = [dice.lognormvariate(0, 4) * dice.choice([1, 1, -1]) for _ in range(5_000)]
    shares = (0.01, 0.25, 0.5, 0.9, 0.999)
    aggregate = agg.quantiles("v", *shares, error=0.005)
    groups = Groups(np.arange(5_000) % 5, 5)
    parts = aggregate.start(records(given), groups)
    merged = aggregate.merge(parts, Groups(np.zeros(5, np.int64), 1), unexpected)
    (found,) = aggregate.finish(merged).to_pylist()
    ordered = sorted(given)
    for share, value in zip(shares, found, strict=True):
        true = ordered[math.floor(share * 4_999)]
        assert math.isclose(value, true, rel_tol=0.00501)


@pytest.mark.parametrize("largest", [agg.min("x"), agg.max("x")])
def test_the_extreme_of_texts_that_are_all_null_is_null_in_a_merge_too(largest: Aggregate) -> None:
    nulls = pa.nulls(2, pa.string())
    (merged,) = largest.merge([nulls], Groups(np.array([0, 0]), 1), unexpected)
    assert merged.to_pylist() == [None]
