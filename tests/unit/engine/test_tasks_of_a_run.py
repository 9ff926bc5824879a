"""How many tasks a level has: as many as run at once, until a commit says otherwise (J10)."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.engine.support import counting, follower_of, run

from headrace.engine.driver.takeover import tasks_for
from headrace.engine.history.recovery import recover
from headrace.log.epochlog import EpochLog
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
    complete = driver._complete

    def with_tasks(plan):
        commit, riders = complete(plan)
        tasks = 7 if plan.epoch == 2 else 0
        return msgspec.structs.replace(commit, tasks=tasks), riders

    driver._complete = with_tasks
    run(driver, 4)
    plans = {order.plan.epoch: order.plan.tasks for order in driver.substrate.tasks}
    assert plans == {1: 2, 2: 2, 3: 7, 4: 7}
    # The log says so, to whoever takes over.
    assert recover(EpochLog(store), 17).ledger.tasks == 7
    again = follower_of(counting(VALUES), store, slots=5).take_over()
    run(again)
    assert again.substrate.tasks[0].plan.tasks == 7
    assert again.ledger.counters.records == len(VALUES)
