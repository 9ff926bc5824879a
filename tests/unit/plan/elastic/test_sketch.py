"""Sketches of a slot's records over its hashes, and the pieces that follow from them."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.values.keys import HASH_SPACE
from headrace.plan.elastic.sketch import BINS_MAX, HEAVY_MAX, Sketch, sketch_of
from headrace.plan.elastic.view import pieces_of

RECORDS = st.lists(
    st.tuples(st.integers(0, HASH_SPACE - 1), st.integers(0, 1000)), min_size=0, max_size=200
)


def made(records: list[tuple[int, int]]) -> Sketch:
    return sketch_of(
        np.array([h for h, _ in records], np.uint64), np.array([n for _, n in records], np.int64)
    )


@given(RECORDS)
def test_a_sketch_counts_every_record_once(records: list[tuple[int, int]]) -> None:
    sketch = made(records)
    assert sketch.total == sum(n for _, n in records)
    assert len(sketch.records) <= BINS_MAX
    assert len(sketch.heavy) <= HEAVY_MAX
    lows = [low for low, _ in sketch.bins]
    assert lows == sorted(set(lows))


@given(RECORDS)
def test_the_order_of_records_does_not_change_the_sketch(records: list[tuple[int, int]]) -> None:
    assert made(records) == made(list(reversed(records)))


@given(RECORDS, st.integers(1, 10**9))
def test_pieces_tile_the_spans_and_share_the_load(
    records: list[tuple[int, int]], load: int
) -> None:
    half = HASH_SPACE // 2
    spans = [(0, half // 2 - 1), (half, HASH_SPACE - 1)]
    mine = [(h, n) for h, n in records if any(low <= h <= last for low, last in spans)]
    sketch = made(mine)
    runs = np.array([s[0] for s in spans], np.uint64), np.array([s[1] for s in spans], np.uint64)
    pieces = pieces_of(runs, sketch, load)
    bounds = list(zip(pieces.lows.tolist(), pieces.lasts.tolist(), strict=True))
    for low, last in spans:
        inside = [p for p in bounds if low <= p[0] and p[1] <= last]
        assert inside[0][0] == low
        assert inside[-1][1] == last
        assert all(a[1] + 1 == b[0] for a, b in pairwise(inside))
    assert set(pieces.lows[pieces.heavy].tolist()) == {h for h, _ in sketch.heavy}
    assert np.array_equal(pieces.lows[pieces.heavy], pieces.lasts[pieces.heavy])
    if sketch.total:
        assert load - len(pieces) <= int(pieces.loads.sum()) <= load + 1


def test_a_hot_key_is_listed_and_in_no_bin() -> None:
    sketch = made([(10, 1), (20, 1), (30, 5000), *((h, 3) for h in range(100, 200))])
    assert sketch.heavy[0] == (30, 5000)
    assert sum(sketch.records) == sketch.total - sum(n for _, n in sketch.heavy)
    assert 5000 not in sketch.records


def test_bins_are_finest_where_the_load_is() -> None:
    dense = [(h, 10) for h in range(1000, 2000)]
    sparse = [(h * 10**15, 10) for h in range(1, 101)]
    lows = [low for low, _ in made([*dense, *sparse]).bins]
    assert sum(low < 2000 for low in lows) >= 50
