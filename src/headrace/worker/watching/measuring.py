"""Measures a slot while it runs: a note for the balancer, never part of its output (K2).

The clocks are those of the store's `System`. Nothing that a task makes may depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.plan.elastic.load import SlotNote
from headrace.worker.runtime import Runtime


@contextmanager
def measuring(runtime: Runtime, epoch: int, label: str, bytes_in: int = 0) -> Iterator[None]:
    """Notes how long the work inside takes, and what the cache had to open for it."""
    system, cache = runtime.store.system, runtime.cache
    wall_s, cpu_s = system.uptime_s(), system.cpu_s()
    hits, opened, fetched = cache.hits, cache.opened, cache.fetched
    before = cache.objects.counts()
    records_s = runtime.records_s
    yield
    runtime.note(
        SlotNote(
            epoch,
            label,
            max(0, round((system.uptime_s() - wall_s) * 1e6)),
            max(0, round((system.cpu_s() - cpu_s) * 1e6)),
            cache.hits - hits,
            cache.opened - opened,
            cache.fetched - fetched,
            records_us=max(0, round((runtime.records_s - records_s) * 1e6)),
            objects=tuple(
                now - was for now, was in zip(cache.objects.counts(), before, strict=True)
            ),
            bytes_in=bytes_in,
        )
    )


@contextmanager
def measuring_records(runtime: Runtime) -> Iterator[None]:
    """The work inside is for records and timers: with more slots, each would have less of it."""
    system = runtime.store.system
    began_s = system.uptime_s()
    try:
        yield
    finally:
        runtime.records_s += max(0.0, system.uptime_s() - began_s)
