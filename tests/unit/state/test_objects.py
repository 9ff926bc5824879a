"""The cache of decoded objects: what it keeps, and what goes first."""

from __future__ import annotations

import random

import pytest

from headrace.state.objects import OBJECT_BYTES, ObjectCache


class Weighed:
    """An object of a key, as the worker has it."""

    def __init__(self, weight: int = OBJECT_BYTES, *, empty: bool = False) -> None:
        self.weight, self.empty = weight, empty

    def weigh(self) -> tuple[int, bool]:
        return self.weight, self.empty


def test_it_is_bounded_and_a_scan_pushes_nothing_warm_out() -> None:
    cache = ObjectCache(10 * OBJECT_BYTES)
    for i in range(6):
        cache.give(b"warm %d" % i, i, again=True)
    for i in range(1000):
        cache.give(b"cold %d" % i, i, again=False)
        assert len(cache) <= 10
    assert all(cache.take(b"warm %d" % i) == (i, True) for i in range(6))


def test_windows_that_have_closed_go_first() -> None:
    cache = ObjectCache(4 * OBJECT_BYTES)
    cache.give(b"cold", Weighed(), again=False)
    for i in range(3):
        cache.give(b"closed %d" % i, Weighed(empty=True), again=True)
    cache.give(b"new", Weighed(), again=False)
    assert cache.keys() == [b"closed 1", b"closed 2", b"cold", b"new"]


def test_a_key_that_is_asked_for_after_its_eviction_counts_as_used_again() -> None:
    cache = ObjectCache(2 * OBJECT_BYTES)
    for key in (b"a", b"b", b"c"):
        cache.give(key, Weighed(), again=False)
    assert cache.take(b"a") == (None, False)
    cache.give(b"a", Weighed(), again=False)
    for i in range(20):
        cache.give(b"scan %d" % i, Weighed(), again=False)
    assert cache.take(b"a")[1]


def test_a_large_object_takes_the_room_of_many() -> None:
    cache = ObjectCache(10 * OBJECT_BYTES)
    for i in range(10):
        cache.give(b"small %d" % i, Weighed(), again=False)
    cache.give(b"large", Weighed(5 * OBJECT_BYTES), again=False)
    assert cache.keys() == [*(b"small %d" % i for i in range(5, 10)), b"large"]
    cache.give(b"larger than half", Weighed(6 * OBJECT_BYTES), again=True)
    assert len(cache) == 6, "it would have pushed all others out"


def test_a_dropped_object_is_gone_from_every_stage() -> None:
    cache = ObjectCache()
    cache.give(b"a", 1, again=True)
    cache.give(b"b", 2, again=False)
    cache.give(b"c", Weighed(empty=True), again=False)
    for key in (b"a", b"b", b"c", b"d"):
        cache.drop(key)
    assert len(cache) == 0 and cache.take(b"a") == (None, False)


def test_hits_and_misses_are_counted_and_prefetched_objects_by_themselves() -> None:
    cache = ObjectCache()
    cache.prefetch(b"a", 1)
    cache.prefetch(b"b", 2)
    assert cache.take(b"a") == (1, False), "nobody had touched it before"
    cache.give(b"a", 1, again=False)
    assert cache.take(b"a") == (1, True)
    cache.take(b"c")
    assert cache.use.counts() == (2, 1, 2, 1)


@pytest.mark.parametrize("seed", range(20))
def test_its_bytes_are_those_of_what_it_has(seed: int) -> None:
    dice = random.Random(seed)
    cache = ObjectCache(20_000)
    known: dict[bytes, Weighed] = {}
    for _ in range(500):
        key = b"%d" % dice.randrange(30)
        match dice.randrange(5):
            case 0 | 1:
                known[key] = Weighed(dice.randrange(1, 5_000), empty=dice.random() < 0.2)
                cache.give(key, known[key], again=dice.random() < 0.5)
            case 2:
                found, _ = cache.take(key)
                assert found is None or found is known[key]
            case 3:
                cache.drop(key)
            case 4:
                cache.prefetch(key, known.setdefault(key, Weighed(700)))
        held = dict(cache.items())
        assert sorted(held) == sorted(cache.keys())
        assert cache.weight == sum(each.weight for each in held.values()) <= 20_000
        assert cache._unused <= set(held)
        for stage in (cache._empty, cache._once, cache._again):
            assert stage.bytes == sum(weight for _, weight in stage.objects.values())
            assert len(stage.evicted) <= 30 and not stage.evicted.keys() & stage.objects.keys()
