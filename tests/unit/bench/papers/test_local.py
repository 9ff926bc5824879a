"""The engine with threads in the place of Spark, and records that arrive by a schedule."""

from __future__ import annotations

from random import Random

import pytest

from headrace.bench.papers.local.arrivals import ArrivalSchedule, Phase
from headrace.bench.papers.local.serving import SERVE, balanced, is_counted, serving
from headrace.plan.rings.wanted import Wanted


def test_a_schedule_says_when_each_record_is_due() -> None:
    schedule = ArrivalSchedule([Phase(2, 100), Phase(1, 100, 300)])
    assert schedule.count == 400
    assert schedule.seconds == pytest.approx(3.0)
    assert schedule.due(0) == 0
    assert schedule.due(1.0) == 100
    assert schedule.due(99) == 400
    assert schedule.times(99, 100)[0] == pytest.approx(1.0, abs=0.01)
    late = schedule.times(350, 400)
    assert 2.5 < late[0] < late[-1] <= 3.0


def test_slots_sleep_side_by_side_and_each_record_counts_once() -> None:
    run, arrivals = serving([Phase(0.2, 400)], balanced(4), cost_us=2_000, threads=4, slots=4)
    ran = run.read(arrivals.schedule.count)
    assert is_counted(run, arrivals)
    latency = ran.latencies_ms(arrivals)
    run.close()
    assert len(latency) == arrivals.schedule.count
    assert latency.min() > 0


def test_a_lost_worker_and_a_new_ring_lose_nothing() -> None:
    run, arrivals = serving([Phase(0.1, 2_000)], balanced(2), cost_us=0, threads=3, slots=2)
    run.until(lambda: bool(run.ran.epochs))
    run.substrate.lose([0, 1])
    run.driver.stop()
    run.driver.ledger.wanted[SERVE] = Wanted(slots=3)
    run.read(arrivals.schedule.count)
    assert is_counted(run, arrivals)
    assert run.ran.epochs[-1].slots == {SERVE: 3}
    run.close()


def test_a_job_that_a_slot_holds_up_is_given_up_and_its_records_wait() -> None:
    keys = balanced(2)
    hot = keys(0, Random(0))
    phases = [Phase(0.3, 20), Phase(0.001, 1_500_000)]
    first = int(0.3 * 20)

    def key(n: int, dice: Random) -> int:
        return hot if n >= first else keys(1, dice)

    run, arrivals = serving(
        phases, key, cost_us=1_000, threads=2, slots=2, straggler_s=0.2, epoch_target_s=0.2,
        epoch_records=10_000,
    )  # fmt: skip
    ran = run.read(arrivals.schedule.count)
    assert is_counted(run, arrivals)
    run.close()
    [(_, told), *_] = ran.told("overload")
    assert "holds up epoch" in told
    limit = int(told.split("processes ")[1].split(" ")[0].replace(",", ""))
    assert limit < 600, "a hot key's progress is known while it runs"
    assert max(seen.carried for seen in ran.epochs) > 0
