"""The driver notices slots that hold up a job by its own clock, and reads what slow tasks say."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.engine.support import Local, counting, follower_of
from tests.unit.systems import Stopwatch

from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.limits import Limits
from headrace.log import paths
from headrace.plan.counters import Counters
from headrace.plan.decisions.next_step import Run
from headrace.plan.decisions.stragglers import WorkMark
from headrace.plan.epoch import Plan, WorkOrder
from headrace.store.disk import DiskStore
from headrace.worker.overload.marks import Marks, write_mark

BUDGET_S = 3.0


class Slow(Local):
    """A substrate on which some jobs take long, until their driver gives them up."""

    def __init__(self, topology: Any, store: Any) -> None:
        super().__init__(topology, store)
        self.seconds: dict[int, float] = {}
        """Epoch -> how long its first job takes."""
        self.look: Any = None
        self.given_up = 0

    def give_up_when(self, look: Any) -> None:
        self.look = look

    def run(self, task: WorkOrder) -> Any:
        store = self.runtime.store
        store.system.now_s += 0.25  # jobs are quick: a limit that is too low grows
        seconds = self.seconds.pop(task.plan.epoch, 0.0)
        if seconds:
            mark = WorkMark("Count/1", seconds / 2, 40, 10, task.plan.wall)
            write_mark(store, task.plan.epoch, mark)
            for _ in range(int(seconds)):
                store.system.now_s += 1.0
                if self.look():
                    self.given_up += 1
                    raise RuntimeError("the job was cancelled")
        return super().run(task)


def started(path: Path, values: int = 200) -> tuple[Driver, Slow, list[str]]:
    system = Stopwatch()
    system.limits = Limits(limit_period_epochs=1)
    store = DiskStore(path, system)
    topology, notices = counting([f"{i % 40}" for i in range(values)]), []
    follower = follower_of(
        topology,
        store,
        slots=4,
        epoch_records=10,
        straggler_s=BUDGET_S,
        on_notice=lambda notice: notices.append(notice.text),
    )
    slow = Slow(topology, store)
    return Follower(replace(follower.setup, substrate=slow)).take_over(), slow, notices


def test_a_job_that_a_slot_holds_up_is_given_up_and_its_slot_gets_a_limit(tmp_path: Path) -> None:
    driver, slow, notices = started(tmp_path)
    for _ in range(5):
        driver.step()
    slow.seconds[6] = 20.0
    before = driver.ledger.epoch
    driver.step()
    assert slow.given_up == 1 and driver.ledger.epoch == before, "its plan is voided"
    assert driver.ledger.limits["Count/1"].records == 1
    assert any("slot Count/1 holds up epoch 6" in text for text in notices)
    step = driver.step()
    assert isinstance(step, Run) and step.plan.limits == {"Count/1": 1}
    assert driver.ledger.epoch == 6
    while isinstance(driver.step(), Run):
        pass
    assert driver.ledger.counters.records == 200, "nothing is lost"
    assert any("slot Count/1 keeps up again" in text for text in notices)
    assert driver.ledger.limits == {}


def test_a_driver_that_takes_over_plans_with_the_same_limit(tmp_path: Path) -> None:
    driver, slow, _ = started(tmp_path)
    for _ in range(5):
        driver.step()
    slow.seconds[6] = 20.0
    driver.step()
    other, _, _ = started(tmp_path)
    assert other.ledger.limits == driver.ledger.limits
    step = other.step()
    assert isinstance(step, Run) and step.plan.limits == {"Count/1": 1}


def test_a_job_within_its_budget_goes_on_though_tasks_say_that_they_are_slow(
    tmp_path: Path,
) -> None:
    driver, slow, _ = started(tmp_path)
    for _ in range(5):
        driver.step()
    slow.seconds[6] = BUDGET_S - 1
    driver.step()
    assert slow.given_up == 0 and driver.ledger.epoch == 6


def test_the_first_jobs_take_as_long_as_they_need(tmp_path: Path) -> None:
    driver, slow, _ = started(tmp_path)
    slow.seconds[1] = 60.0
    driver.step()
    assert slow.given_up == 0 and driver.ledger.epoch == 1


def test_marks_of_closed_epochs_are_deleted(tmp_path: Path) -> None:
    driver, slow, _ = started(tmp_path)
    slow.seconds[1] = 2.0
    while driver.ledger.epoch < 16:
        driver.step()
    marks = [n for n in driver.store.list(paths.WORK) if paths.is_work_mark(n, 1)]
    assert marks == []


def test_a_task_says_how_far_it_has_come_again_and_again(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.make_directory(paths.WORK)
    plan = Plan(3, 1, 1, "", [], {}, {})
    order = WorkOrder(plan, "", {}, {}, {}, {}, mark_after_s=0.1)
    counters, found = Counters(), []
    with Marks(store).over(order, "C/0", counters, 50):
        deadline = time.monotonic() + 10.0
        while len(found) < 2 and time.monotonic() < deadline:
            counters.hooks = 7 if not found else 30
            time.sleep(0.05)
            for name in store.list(paths.WORK):
                mark = msgspec.msgpack.decode(store.read(f"{paths.WORK}/{name}"), type=WorkMark)
                if mark not in found and mark.done == counters.hooks:
                    found.append(mark)
    assert [(mark.label, mark.records, mark.done) for mark in found] == [
        ("C/0", 50, 7),
        ("C/0", 50, 30),
    ]
    assert found[0].seconds < found[1].seconds


def test_a_task_says_nothing_if_nobody_asks(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    order = WorkOrder(Plan(3, 1, 1, "", [], {}, {}), "", {}, {}, {}, {})
    marks = Marks(store)
    with marks.over(order, "C/0", Counters(), 50):
        assert marks._thread is None


@pytest.mark.parametrize("label", ["C/0", "a long name/" + "x" * 300])
def test_the_name_of_a_mark_says_its_epoch(label: str) -> None:
    name = paths.work_mark(12, label).removeprefix(f"{paths.WORK}/")
    assert paths.marked_in(name) == 12 and paths.is_work_mark(name, 12)
    assert not paths.is_work_mark(name, 1) and len(name) < 255 - 40
