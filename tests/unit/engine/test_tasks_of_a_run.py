"""How many tasks a level has: as many as run at once, until a commit says otherwise (J10)."""

from __future__ import annotations

import pytest
from tests.unit.engine.support import counting, follower_of, run

from headrace.engine.driver.takeover import tasks_for
from headrace.engine.history.recovery import recover
from headrace.log.epochlog import EpochLog
from headrace.plan.elastic.decision import Decided
from headrace.plan.elastic.fold import fold_report
from headrace.store.memory import MemoryStore

VALUES = list(range(24))


@pytest.mark.parametrize(
    ("cores", "grows", "slots", "tasks"),
    [(2, False, 8, 2), (8, False, 2, 8), (2, True, 8, 8), (8, True, 2, 8), (3, True, None, 3)],
)
def test_tasks_follow_cores_and_slots_only_where_spark_adds_executors(
    cores: int, grows: bool, slots: int | None, tasks: int
) -> None:
    follower = follower_of(counting(VALUES), slots=slots)
    follower.substrate.parallelism, follower.substrate.grows = cores, grows
    assert tasks_for(follower.setup) == tasks
    driver = follower.take_over()
    run(driver, 2)
    assert driver.substrate.tasks[-1].plan.tasks == tasks


def test_a_commit_changes_the_number_of_tasks_from_the_next_plan_on() -> None:
    store = MemoryStore()
    driver = follower_of(counting(VALUES), store, slots=5).take_over()

    def scaled(plan, ledger):
        decided = Decided(tasks=7) if plan.epoch == 2 else None
        fold_report(ledger, None, decided)
        return None, decided

    driver._elastic.committed = scaled
    run(driver, 4)
    plans = {order.plan.epoch: order.plan.tasks for order in driver.substrate.tasks}
    assert plans == {1: 2, 2: 2, 3: 7, 4: 7}
    # The log says so, to whoever takes over.
    assert recover(EpochLog(store), 17).ledger.tasks == 7
    again = follower_of(counting(VALUES), store, slots=5).take_over()
    run(again)
    assert again.substrate.tasks[0].plan.tasks == 7
    assert again.ledger.counters.records == len(VALUES)
