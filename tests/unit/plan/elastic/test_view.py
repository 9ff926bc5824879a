"""Views of rings, and the choice of runs, against plain code that does the same slowly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.values.keys import HASH_SPACE
from headrace.plan.decisions.resizing import view_of
from headrace.plan.elastic.even import _best_run, spread
from headrace.plan.elastic.sketch import sketch_of
from headrace.plan.elastic.view import SPANS_MAX, Pieces, RingView, pieces_of, shortest_of
from headrace.plan.rings.ring import Ring

OWNERS = st.lists(st.integers(0, 5), min_size=1, max_size=40)


def ring_of(owners: list[int]) -> Ring:
    """Intervals of different lengths; each has a class of its own."""
    lows = [HASH_SPACE * i * i // len(owners) ** 2 for i in range(len(owners))]
    return Ring(lows, owners, range(len(owners)))


@given(OWNERS)
def test_neighbouring_intervals_of_one_slot_are_one_run_whatever_their_classes(
    owners: list[int],
) -> None:
    ring = ring_of(owners)
    view = view_of(ring, 3)
    assert view.slots == ring.slots
    assert not (view.owners[1:] == view.owners[:-1]).any()
    covered = {slot: view.spans(slot) for slot in view.slots}
    for low, last, slot in zip(ring.lows.tolist(), ring.lasts.tolist(), owners, strict=True):
        assert any(a <= low and last <= b for a, b in covered[slot])
    assert sum(b - a + 1 for spans in covered.values() for a, b in spans) == HASH_SPACE
    assert sum(map(view.count, view.slots)) == len(view)
    assert view.runs(99)[0].tolist() == []


@given(OWNERS)
def test_the_longest_run_of_each_slot(owners: list[int]) -> None:
    view = view_of(ring_of(owners), 1)
    wraps = len(view.slots) > 1 and owners[0] == owners[-1]
    for slot, index in view.longest.items():
        mine = [i for i in range(len(view)) if view.owners[i] == slot]
        if wraps and slot == owners[-1]:
            mine.remove(len(view) - 1)
        lengths = {i: view.interval(i)[1] - view.interval(i)[0] for i in mine}
        assert index == min(mine, key=lambda i: (-lengths[i], i))
    assert set(view.longest) == set(owners)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 70))
def test_the_shortest_are_found_and_of_equal_ones_the_first(lengths: list[int], n: int) -> None:
    expected = sorted(sorted(range(len(lengths)), key=lambda i: (lengths[i], i))[:n])
    assert shortest_of(np.array(lengths, np.uint64), n).tolist() == expected


def test_the_shortest_of_very_many_that_a_sample_does_not_show() -> None:
    lengths = np.full(100_000, 7, np.uint64)
    lengths[5::20_000] = 3
    assert shortest_of(lengths, 5).tolist() == [5, 20_005, 40_005, 60_005, 80_005]
    assert shortest_of(lengths, 7).tolist() == [0, 1, 5, 20_005, 40_005, 60_005, 80_005]
    falling = np.arange(100_000, 0, -1).astype(np.uint64)
    assert shortest_of(falling, 3000).tolist() == list(range(97_000, 100_000))


PIECES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 50), st.integers(0, 30)), min_size=1, max_size=12
)
"""(gap before it, length, load) of each piece."""


@given(PIECES, st.integers(0, 60))
def test_the_best_run_has_the_most_load_per_hash(
    given_pieces: list[tuple[int, int, int]], need: int
) -> None:
    lows, lasts, at = [], [], 0
    for gap, length, _ in given_pieces:
        lows.append(at + gap)
        lasts.append(at + gap + length - 1)
        at += gap + length
    loads = [load for _, _, load in given_pieces]
    pieces = Pieces(
        np.array(lows, np.uint64),
        np.array(lasts, np.uint64),
        np.array(loads, np.int64),
        np.zeros(len(lows), np.bool_),
    )
    first, end = _best_run(pieces, need)
    fits = [
        (sum(loads[a:b]), (lasts[b - 1] - lows[a] + 1) / max(sum(loads[a:b]), 1))
        for a in range(len(lows))
        for b in range(a + 1, len(lows) + 1)
        if all(lasts[i] + 1 == lows[i + 1] for i in range(a, b - 1)) and 0 < sum(loads[a:b]) <= need
    ]
    if not fits:
        assert first == end
        return
    load, cost = sum(loads[first:end]), (lasts[end - 1] - lows[first] + 1)
    assert all(lasts[i] + 1 == lows[i + 1] for i in range(first, end - 1))
    enough = [c for part, c in fits if 2 * part >= need]
    if enough:
        assert 2 * load >= need >= load
        assert cost / load == min(enough)
    else:
        assert load == max(part for part, _ in fits)
        assert loads[first] > 0
        assert loads[end - 1] > 0


def test_a_run_with_a_heavy_hash_is_looked_at_however_short_it_is() -> None:
    """A slot has thousands of runs, and its hot key is in the shortest one."""
    slots = 4
    lows = [HASH_SPACE * i // 4000 for i in range(4000)]
    lows[9] = lows[10] - 3
    ring = RingView.of(lows, [i % slots for i in range(4000)])
    hot = lows[9] + 1
    hashes = np.array([*(lows[1::4]), hot], np.uint64)
    sketch = sketch_of(hashes, np.array([10] * 1000 + [5000], np.int64))
    pieces = pieces_of(ring.runs(1), sketch, 15_000)
    assert SPANS_MAX < len(pieces) < 3 * SPANS_MAX
    assert int(pieces.loads[np.flatnonzero(pieces.lows == hot)[0]]) == 5000
    moves = spread(ring, {0: 6000, 1: 15_000, 2: 0, 3: 6000}, {1: sketch}, ring.slots, 256).moves
    assert [(move.low, move.last) for move in moves if move.low <= hot <= move.last] == [(hot, hot)]
