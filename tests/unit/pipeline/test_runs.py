"""Overlapping windows are merged by blocks: the same as row by row, at a fraction of the work."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace import Pipeline, agg, hopping, sliding, sources
from headrace.operators.aggregates.count import Count
from headrace.operators.windows import merge_ranges, partials
from headrace.operators.windows.partials import Partials
from headrace.testing import Harness


@pytest.mark.parametrize("seed", range(5))
def test_runs_of_rows_add_up(seed: int) -> None:
    dice = random.Random(seed)
    size = dice.choice([1, 2, 7, 64, 100])
    values = np.array([dice.randint(0, 99) for _ in range(size)])
    zeros = np.zeros(size, np.int64)
    rows = Partials(zeros, zeros, zeros, values, zeros, np.arange(size), [pa.array(values)])
    first = np.array([dice.randrange(size) for _ in range(40)])
    lengths = np.array([dice.randint(1, size - at) for at in first.tolist()])
    found = merge_ranges.merge_runs([Count(None)], rows, first, lengths, {})
    pairs = list(zip(first.tolist(), lengths.tolist(), strict=True))
    assert found.count.tolist() == [int(values[at : at + n].sum()) for at, n in pairs]
    assert found.parts[0].to_pylist() == found.count.tolist()
    assert found.newest.tolist() == [at + n - 1 for at, n in pairs]


def test_rows_up_to_counts_by_key_and_time() -> None:
    keys, times = np.array([0, 0, 2, 2]), np.array([5, 9, -3, 9])
    found = merge_ranges.rows_up_to(
        keys, times, np.array([2, 0, 1, 0, 2]), np.array([9, 5, 0, 4, -4])
    )
    assert found.tolist() == [4, 1, 2, 0, 2]


@pytest.mark.parametrize("window", [sliding("1h"), hopping("1h", every="1s")], ids=lambda w: w.name)
def test_a_hot_key_does_not_cost_the_square_of_its_records(
    window: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = 0
    merge = partials.merge

    def counted(aggregates: Any, rows: Partials, groups: Any, failed: Any) -> Partials:
        nonlocal work
        work += len(rows)
        return merge(aggregates, rows, groups, failed)

    monkeypatch.setattr(partials, "merge", counted)
    p = Pipeline("hot")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.key_by("k").window(window).aggregate(n=agg.count(), total=agg.sum("v"))
    size = 1000
    with Harness(p, twice=False) as h:
        h.send("in", *({"k": "hot", "t": i * 1_000_000, "v": i} for i in range(size)))
        h.end()
        rows = h.read("in.aggregate")
    for row in rows:
        low = max(0, -(-row["window_start"] // 1_000_000))
        inside = range(low, min(size, -(-row["window_end"] // 1_000_000)))
        assert (row["n"], row["total"]) == (len(inside), sum(inside))
    assert work < 2 * (size + len(rows)) * math.log2(size)
