"""Windowed counts with `transformWithState`: what its processors do with state and timers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.unit.bench.fake_spark_state import FakeTransform

from headrace.bench.peers.spark_tws_windows import CountWindowFrames, CountWindowRows

SIZE_US = 2_500


def fake(form: str) -> FakeTransform:
    if form == "frames":
        return FakeTransform(CountWindowFrames(SIZE_US), frames=True)
    return FakeTransform(CountWindowRows(SIZE_US), frames=False)


def at(*times: int) -> list[dict[str, int]]:
    return [{"ts": time} for time in times]


@pytest.mark.parametrize("form", ["rows", "frames"])
def test_every_window_comes_out_once_with_its_count(form: str):
    transform, random = fake(form), np.random.default_rng(3)
    wanted: Counter[tuple[str, int]] = Counter()
    found = []
    reached = 0
    for batch in range(12):
        records: dict[tuple[str], list[dict[str, int]]] = {}
        for time in range(batch * 10_000, batch * 10_000 + 10_000, 100):
            # Most keys come now and then, so that timers must close their windows.
            key = f"k{random.integers(0, 40)}" if time % 300 else "hot"
            records.setdefault((key,), []).extend(at(time))
            wanted[key, time // SIZE_US * SIZE_US] += 1
        found += transform.batch(records, reached // 1_000)
        reached = batch * 10_000 + 9_900
    found += transform.batch({}, 10**9)
    assert not transform.timers
    assert not transform.states["open"].values
    rows = {(row["key"], row["start"]): row["count"] for row in found}
    assert len(rows) == len(found)
    assert rows == wanted


@pytest.mark.parametrize("form", ["rows", "frames"])
def test_a_row_leaves_when_its_window_has_closed_and_not_before(form: str):
    transform = fake(form)
    assert transform.batch({("a",): at(0, 2_499, 2_500)}, 0) == []
    assert transform.batch({}, 2) == []
    # The first window ends at 2.5 ms; Spark's clock has whole milliseconds.
    assert transform.batch({}, 3) == [{"key": "a", "start": 0, "count": 2}]
    assert transform.batch({("a",): at(5_000)}, 5) == [{"key": "a", "start": 2_500, "count": 1}]
    assert transform.timers == {(8, ("a",))}
