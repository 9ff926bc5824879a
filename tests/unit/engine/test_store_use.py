"""Requests of workers are added up once, however their reports come."""

from __future__ import annotations

import random

import pytest

from headrace.engine.spark.worker_use import PROCESSES_MAX, WorkerUse
from headrace.observe.text import show_use
from headrace.plan.progress import StoreUse
from headrace.store.counts import CALLS, PATH, RequestCounts


def use(puts: int, gets: int = 0, near: int = 0, far: int = 0) -> StoreUse:
    return StoreUse({PATH: RequestCounts(puts=puts), CALLS: RequestCounts(gets=gets)}, near, far)


@pytest.mark.parametrize("seed", range(5))
def test_reports_may_be_lost_repeated_and_out_of_order(seed: int) -> None:
    dice = random.Random(seed)
    found, sums = WorkerUse(), {name: [0, 0, 0, 0] for name in "abc"}
    late: list[tuple[str, StoreUse]] = []
    for _ in range(200):
        name = dice.choice("abc")
        sums[name] = [count + dice.randrange(3) for count in sums[name]]
        late.append((name, use(*sums[name])))
        if dice.random() < 0.5:
            found.note(*late.pop(dice.randrange(len(late))))
        if dice.random() < 0.2:
            late.pop(dice.randrange(len(late))) if len(late) > 1 else None
    for name, counts in sums.items():
        found.note(name, use(*counts))
    puts, gets, near, far = (sum(counts) for counts in zip(*sums.values(), strict=True))
    assert found.total.requests[PATH] == RequestCounts(puts=puts)
    assert found.total.requests[CALLS] == RequestCounts(gets=gets)
    assert (found.total.near_reads, found.total.far_reads) == (near, far)
    assert found.total.asked == puts + gets


def test_processes_that_have_ended_are_forgotten_but_not_what_they_asked() -> None:
    found = WorkerUse()
    for process in range(3 * PROCESSES_MAX):
        found.note(str(process), use(2))
    assert found.total.requests[PATH].puts == 6 * PROCESSES_MAX
    assert len(found._last) == PROCESSES_MAX


def test_the_hit_rate_is_that_of_reads_of_immutable_files() -> None:
    assert StoreUse().hit_rate == 1.0
    assert use(0, near=3, far=1).hit_rate == 0.75
    assert (
        show_use(use(1200, 30, 3, 1)) == "1,200 puts, 30 gets, 75% of 4 reads from the local disk"
    )
    assert show_use(StoreUse()) == ""
