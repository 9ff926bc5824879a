"""Memory does not grow with state, and the object cache keeps better objects than plain LRU."""

from __future__ import annotations

import random

import pytest

from headrace.bench.memory.eviction import EvictionWork, format_eviction, run_eviction
from headrace.bench.memory.measure import MemorySize, format_memory, run_memory
from headrace.bench.memory.policies import POLICIES, CacheEvent, hit_rate
from headrace.limits import Limits

ABOVE_MB = 100.0
SMALL = Limits(
    cached_bytes_max=4 << 20,
    cached_cells_max=5_000,
    window_cells=1024,
    merge_piece_bytes=1 << 20,
    merge_sample_bytes=128 << 10,
)
"""The driver, which merges segments, shares the process here."""

THRIFTY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
"""Allocators give memory back as soon as it is free."""


def epoch(keys: list[int], closed: bool = False) -> list[CacheEvent]:
    names = [b"%d" % key for key in keys]
    return [
        *(CacheEvent(name, False) for name in names),
        *(CacheEvent(name, True, closed) for name in names),
    ]


def windows(dice: random.Random) -> list[CacheEvent]:
    """Keys of a minute: touched a few times in it, once at its end, and never again."""
    trace: list[CacheEvent] = []
    for minute in range(20):
        keys = range(100 * minute, 100 * minute + 100)
        for _ in range(6):
            trace += epoch(dice.sample(keys, 40))
        trace += epoch(list(keys), closed=True)
    return trace


def frequent(dice: random.Random) -> list[CacheEvent]:
    """A few frequent keys among many rare ones."""
    trace: list[CacheEvent] = []
    for _ in range(150):
        rare = [1000 + dice.randrange(5000) for _ in range(60)]
        trace += epoch(list(dict.fromkeys([*dice.sample(range(100), 40), *rare])))
    return trace


@pytest.mark.parametrize("trace_of", [windows, frequent])
@pytest.mark.parametrize("most", [10, 50, 90])
def test_it_has_more_hits_than_lru_and_no_more_than_is_possible(trace_of, most: int) -> None:
    trace = trace_of(random.Random(7))
    rates = {policy: hit_rate(policy, trace, most) for policy in POLICIES}
    assert rates["lru"] < rates["headrace"] <= rates["optimal"] < 1.0
    assert rates["without-empty"] <= rates["headrace"] + 0.005


def test_the_traces_of_pipelines_are_recorded_and_replayed() -> None:
    document = run_eviction(EvictionWork(records=3_000, epoch_records=300))
    assert set(document["traces"]) == {"windows", "sessions", "zipf"}
    for trace in document["traces"].values():
        assert trace["events"] > 1_000 and trace["alive"] > 10
        for share, best in trace["hit_rate"]["optimal"].items():
            assert all(rates[share] <= best for rates in trace["hit_rate"].values())
    assert "optimal" in format_eviction(document)


@pytest.mark.timeout(900)
def test_500_mb_of_state_take_less_than_100_mb_of_memory(tmp_path, monkeypatch) -> None:
    """Timers and waiting records included, in a process that fills it and in two that come cold.

    `headrace bench memory` measures the same for more state. The settings are those that the guide
    on memory gives for small workers: else allocators keep more than the state needs.
    """
    for name, value in THRIFTY.items():
        monkeypatch.setenv(name, value)
    size = MemorySize(state_mb=500, payload=16_000, epoch_records=90)
    document = run_memory(size, work_dir=tmp_path, limits=SMALL)
    assert document["results_equal"], format_memory(document)
    for name, use in document["systems"].items():
        assert use["peak_mb"] - use["before_mb"] < ABOVE_MB, (name, format_memory(document))
    assert document["systems"]["eager"]["prefetched_hit_rate"] is not None
