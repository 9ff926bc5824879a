"""Where calls are logged: one directory while a cause may come back, and none for ever."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.engine.support import driver_of, run
from tests.unit.systems import limited

from headrace import Computation, service
from headrace.causal.journal import Journal
from headrace.engine.driver import driver as driver_module
from headrace.engine.upkeep.determinants import collect_determinants, make_ready
from headrace.errors import Fenced, StoreError
from headrace.limits import LIMITS
from headrace.log import paths
from headrace.log.epochlog import EpochLog
from headrace.model.services import CallOptions
from headrace.model.source import Range
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.counters import Counters
from headrace.plan.epoch import Commit, Determinant, Plan, ReadTask, SplitState
from headrace.plan.ledger import Ledger
from headrace.plan.watermarks import Mark
from headrace.sources import memory
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

MARK = Mark(0, 0)

DETERMINANTS_EPOCHS = LIMITS.determinants_epochs


def plan(ledger: Ledger, end: int) -> Plan:
    read = ReadTask("s", "p", 0, Range(0, end, 1), MARK)
    where = ledger.next_determinants()
    return Plan(ledger.epoch + 1, 0, 0, "", [[read]], {}, {}, determinants=where)


def commit(ledger: Ledger, end: int) -> None:
    splits = {"s": {"p": SplitState(end, MARK)}}
    ledger.committed(
        Commit(ledger.epoch + 1, {}, {}, splits, {}, {}, [], [], Counters(), 0), ledger.epoch
    )


def test_a_directory_serves_some_epochs():
    ledger = Ledger()
    found = []
    for epoch in range(1, 40):
        found.append(plan(ledger, epoch).determinants)
        ledger.planned(plan(ledger, epoch))
        commit(ledger, epoch)
    n = DETERMINANTS_EPOCHS
    assert found == [1] * n + [1 + n] * n + [1 + 2 * n] * (39 - 2 * n)


def test_no_new_one_is_begun_while_a_voided_plans_input_may_come_again():
    ledger = Ledger()
    for epoch in range(1, DETERMINANTS_EPOCHS + 1):
        ledger.planned(plan(ledger, epoch))
        if epoch == DETERMINANTS_EPOCHS:
            ledger.planned(plan(ledger, 100))
            ledger.voided()
            ledger.planned(plan(ledger, epoch))
        commit(ledger, epoch)
    for end in (50, 99, 100):
        assert plan(ledger, end).determinants == 1
        ledger.planned(plan(ledger, end))
        commit(ledger, end)
    assert plan(ledger, 101).determinants == ledger.epoch + 1
    assert ledger.voided_reads == {}


@service
def ask(key: int) -> int:
    return key


class Ask(Computation):
    def process_record(self, record, ctx):
        ctx.call(ask, ctx.key)


def asking(values: list[int]) -> Topology:
    p = PipelineBuilder("asking")
    p.read("in", memory([{"k": v, "t": i} for i, v in enumerate(values)], timestamp="t"))
    p.compute(Ask, inputs={"in": "k"}, name="Ask")
    return p.freeze()


def forget(driver: driver_module.Driver) -> int:
    oldest = driver.history.commits[0][1].epoch
    return collect_determinants(driver.store, oldest, driver.ledger.determinants)


def directories(driver: driver_module.Driver) -> set[int]:
    names = driver.store.list(paths.DETERMINANTS)
    return {int(name) for name in names if not name.endswith(".closed")}


def test_directories_go_when_their_epochs_have_left_the_window():
    driver = driver_of(asking(list(range(400))), retain_epochs=3)
    run(driver, 60)
    oldest = driver.history.commits[0][1].epoch
    forget(driver)
    left = directories(driver)
    assert driver.ledger.determinants in left
    assert len(left) <= 2 and min(left) + DETERMINANTS_EPOCHS > oldest
    assert forget(driver) == 0


def test_markers_of_a_span_that_is_over_become_one_and_a_zombie_is_still_turned_away() -> None:
    store = MemoryStore(limited(closed_span_epochs=4 * DETERMINANTS_EPOCHS))
    driver = driver_of(asking(list(range(1200))), store, retain_epochs=3)
    run(driver, 20 * DETERMINANTS_EPOCHS)
    forget(driver)
    markers = [n for n in driver.store.list(paths.DETERMINANTS) if n.endswith(".closed")]
    spans = [name for name in markers if name.startswith("span-")]
    assert len(spans) >= 3 and len(markers) - len(spans) <= 4
    current = driver.ledger.determinants
    for first in range(1, current, DETERMINANTS_EPOCHS):
        directory = paths.determinants_directory(first)
        if first in directories(driver):
            continue
        driver.store._retired.clear()  # a driver that slept makes it again
        with pytest.raises(Fenced, match="long closed"):
            Journal(driver.store, directory).once("n", b"r", CallOptions(), lambda deadline: 1 / 0)
    here = Journal(driver.store, paths.determinants_directory(current))
    answer = Determinant("n", b"r", "answer")
    assert here.once("n", b"r", CallOptions(), lambda deadline: answer) == answer


def test_a_driver_that_was_overtaken_starts_no_job():
    driver = driver_of(asking([1, 2, 3]))
    run(driver, 1)
    other = EpochLog(driver.store)
    list(other.take_over())
    with pytest.raises(Fenced):
        make_ready(driver.store, driver.log, plan(driver.ledger, 5))


def test_a_directory_that_is_closed_while_it_is_opened_ends_the_driver_that_was_overtaken(tmp_path):
    class Closing(DiskStore):
        """A newer driver closes a directory of calls as soon as it is made."""

        takes_over = False

        def make_directory(self, name: str) -> None:
            super().make_directory(name)
            if name.startswith(paths.DETERMINANTS):
                if self.takes_over:
                    list(EpochLog(DiskStore(self.location)).take_over())
                self.retire_directory(name)

    store = Closing(tmp_path)
    driver = driver_of(asking([1, 2, 3]), store)
    with pytest.raises(StoreError, match="has vanished"):
        make_ready(store, driver.log, plan(driver.ledger, 5))
    store.takes_over = True
    with pytest.raises(Fenced):
        make_ready(store, driver.log, plan(driver.ledger, 5))


def test_a_directory_is_opened_and_closed_by_markers_in_this_order() -> None:
    class Written(MemoryStore):
        """Notes puts and deletes."""

        def __init__(self) -> None:
            super().__init__()
            self.acts: list[str] = []

        def put_if_absent(self, name: str, data: bytes) -> bool:
            self.acts.append(f"put {name}")
            return super().put_if_absent(name, data)

        def delete(self, name: str) -> None:
            self.acts.append(f"delete {name}")
            super().delete(name)

    store = Written()
    driver = driver_of(asking(list(range(400))), store, retain_epochs=3)
    run(driver, 60)
    directory = paths.determinants_directory(1)
    opened, closed = paths.opened_marker(directory), paths.closed_marker(directory)
    mine = [act for act in store.acts if directory in act]
    assert mine[0] == f"put {opened}" and mine.count(f"put {opened}") == 1
    deletes = [number for number, act in enumerate(mine) if act.startswith("delete")]
    assert mine.index(f"put {closed}") < deletes[0]
    assert mine[deletes[0]] == f"delete {opened}"


def test_a_plan_knows_the_voided_ones_before_it_until_their_directory_is_left():
    ledger = Ledger()

    def planned(end: int) -> Plan:
        wall = ledger.wall + 1
        where = ledger.next_determinants()
        known = ledger.given_up if where == ledger.determinants else {}
        made = msgspec.structs.replace(
            plan(ledger, end), wall=wall, determinants=where, given_up=known
        )
        ledger.planned(made)
        return made

    for _ in range(2):
        planned(5)
        ledger.voided()
    assert planned(5).given_up == {1: 2}
    commit(ledger, 5)
    planned(10)
    ledger.voided()
    for end in range(6, 6 + DETERMINANTS_EPOCHS - 1):
        assert planned(end).given_up == {1: 2, 2: 4}
        commit(ledger, end)
    assert planned(100).determinants == DETERMINANTS_EPOCHS + 1
    assert ledger.given_up == {}
    again = msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger)
    assert again == ledger
