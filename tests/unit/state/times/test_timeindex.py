"""The time index against brute force."""

import random

import pytest

from headrace.state.times.timeindex import TimeIndex

KEYS = [b"%d" % i for i in range(8)]


def random_changes(dice: random.Random, most: int) -> dict:
    found = {}
    for _ in range(dice.randrange(most)):
        cell = (dice.choice(KEYS), "event", b"%d" % dice.randrange(3))
        if dice.random() < 0.4:
            found[cell] = None
        else:
            at = dice.randrange(50)
            found[cell] = (at, at - dice.randrange(10))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_it_answers_as_a_plain_dict_would(seed: int) -> None:
    dice = random.Random(seed)
    truth: dict = {}
    index = TimeIndex()
    for step in range(80):
        changes = random_changes(dice, 8)
        index.apply(changes)
        for cell, timed in changes.items():
            if timed is None:
                truth.pop(cell, None)
            else:
                truth[cell] = timed
        if step % 20 == 19:
            index = TimeIndex.of(truth)
        assert len(index) == len(truth)
        limit = dice.randrange(60)
        assert index.due(limit) == sorted((t, c) for c, (t, _) in truth.items() if t <= limit)
        for key in KEYS:
            assert set(index.of_key(key)) == {cell for cell in truth if cell[0] == key}
        mine = random_changes(dice, 4)
        left = [timed for cell, timed in truth.items() if cell not in mine]
        assert index.earliest_time(mine) == min((t for t, _ in left), default=None)
        assert index.earliest_hold(mine) == min((h for _, h in left), default=None)
        assert {c: index.get(c) for c in truth} == truth


def test_a_timer_replaced_ten_thousand_times_keeps_the_index_small() -> None:
    index = TimeIndex()
    cell = (b"k", "event", b"t")
    for at in range(10_000):
        index.apply({cell: (at, at)})
    assert index.due(10_000) == [(9999, cell)]
    assert len(index._by_time) < 200
