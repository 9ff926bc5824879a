"""Compaction on demand: of a stopped pipeline by hand, of a running one by its leader."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.primitives.support import everything
from tests.unit.engine.support import Clock, counting, driver_of, run
from tests.unit.systems import limited

from headrace import Checkpoint
from headrace.engine.driver.driver import Driver
from headrace.engine.leading.lease import Lease, write_lease
from headrace.errors import IncompatibleState
from headrace.plan.control import ControlRequest
from headrace.plan.decisions.next_step import Finish, Run, Wait
from headrace.store.memory import MemoryStore

VALUES = [i % 7 for i in range(30)]
NO_MERGES = {"merge_segments_min": 999, "collect_every_epochs": 1, "snapshot_every_epochs": 3}


def states(store: MemoryStore) -> dict[str, Any]:
    found = Checkpoint(store)
    return {name: repr(list(found.scan(name))) for name in found.computations}


def segments(store: MemoryStore, name: str) -> int:
    return Checkpoint(store).sizes(name)[1]


def ask(driver: Driver, **arguments: str) -> Any:
    return driver.control.own(ControlRequest("", "c", "c", "compact", arguments))


@pytest.mark.parametrize("ride_bytes_max", [0, 32_000])
def test_a_stopped_pipeline_has_one_segment_per_slot_and_goes_on(ride_bytes_max: int) -> None:
    store = MemoryStore(limited(**NO_MERGES, ride_bytes_max=ride_bytes_max))
    driver = driver_of(everything(30), store)
    run(driver, 6)
    arguments = {"computation": "Everything", "slots": 3}
    driver.control.own(ControlRequest("", "r", "r", "rescale", arguments))
    run(driver, 2)
    before, epoch = states(store), Checkpoint(store).epoch
    found = Checkpoint(store).compact("Everything")
    assert (found.epoch, found.segments[0] > found.segments[1]) == (epoch, True)
    assert segments(store, "Everything") <= 3 < segments(store, "Counts")
    assert states(store) == before
    assert Checkpoint(store).compact().segments[1] <= 5
    assert Checkpoint(store).compact().slots == 0, "there is nothing left to merge"
    assert states(store) == before and Checkpoint(store).verify().problems == []
    again = driver_of(everything(30), store)
    run(again)
    whole = MemoryStore(limited(**NO_MERGES))
    run(driver_of(everything(30), whole))
    assert states(store) == states(whole)
    with pytest.raises(Exception, match="taken over"):
        run(driver)


def test_what_has_expired_goes_and_what_past_epochs_may_read_stays() -> None:
    store = MemoryStore(limited(**NO_MERGES, ride_bytes_max=0))
    run(driver_of(everything(60), store, retain_epochs=4))
    before, kept = states(store), Checkpoint(store).epochs
    rows = Checkpoint(store).part("Everything").rows
    Checkpoint(store).compact()
    assert Checkpoint(store).part("Everything").rows < rows
    assert states(store) == before
    assert Checkpoint(store).epochs == kept, "past epochs can still be replayed"


def test_a_pipeline_that_leads_is_not_compacted_behind_its_back() -> None:
    store = MemoryStore(limited(**NO_MERGES))
    driver = driver_of(counting(VALUES), store)
    run(driver, 3)
    beats = iter(range(1, 100))
    write_lease(store, Lease(driver.log.generation, next(beats), 1.0, 3))
    read = store.read

    def beating(name: str) -> bytes:
        if name == "LEASE":
            write_lease(store, Lease(driver.log.generation, next(beats), 1.0, 3))
        return read(name)

    store.read = beating  # type: ignore[method-assign]
    with pytest.raises(IncompatibleState, match="stop it first"):
        Checkpoint(store).compact()
    assert run(driver, 1) == 1, "its driver was not fenced"


def test_a_leader_that_is_asked_merges_while_epochs_go_on() -> None:
    store = MemoryStore(limited(**NO_MERGES, ride_bytes_max=0))
    driver = driver_of(counting(VALUES), store)
    run(driver, 6)
    assert segments(store, "Count") > 8
    asked = ask(driver)
    assert (asked.verdict, asked.done) == ("taken", "")
    assert driver.ledger.control.compact == {"Count": 6}
    run(driver, 3)
    [outcome] = driver.ledger.control.outcomes
    assert outcome.done == "all state is compacted since epoch 8"
    assert driver.ledger.control.compact == {}
    assert segments(store, "Count") <= 2 * 3
    run(driver)
    whole = MemoryStore()
    run(driver_of(counting(VALUES), whole))
    assert states(store) == states(whole)


def test_a_driver_that_takes_over_completes_what_was_asked() -> None:
    store = MemoryStore(limited(**NO_MERGES, ride_bytes_max=0))
    driver = driver_of(counting(VALUES), store)
    run(driver, 6)
    ask(driver, computation="Count")
    again = driver_of(counting(VALUES), store)
    assert again.ledger.control.compact == {"Count": 6}
    run(again, 3)
    assert again.ledger.control.compact == {}
    assert again.ledger.control.outcomes[0].done.startswith("Count is compacted since epoch")


def test_an_idle_pipeline_runs_an_epoch_now_and_then_until_it_is_done() -> None:
    clock = Clock()
    store = MemoryStore(limited(**NO_MERGES, ride_bytes_max=0))
    driver = driver_of(counting(VALUES), store, clock=clock, until=None)
    run(driver)
    assert isinstance(driver.step(), Wait)
    epoch = driver.ledger.epoch
    ask(driver)
    steps = []
    for _ in range(6):
        steps.append(driver.step())
        clock.now += 600_000
    assert [type(each) for each in steps[:2]] == [Wait, Wait], "not at full speed"
    assert driver.ledger.control.compact == {}
    assert not any(isinstance(each, Finish) for each in steps)
    assert epoch < driver.ledger.epoch <= epoch + 3
    clock.now += 5_000_000
    assert not isinstance(driver.step(), Run), "nothing more is to be done"


def test_a_paused_pipeline_refuses_and_says_what_to_do() -> None:
    """No commit would adopt what is merged, so whoever asked would wait for ever."""
    store = MemoryStore(limited(**NO_MERGES, ride_bytes_max=0))
    driver = driver_of(counting(VALUES), store)
    run(driver, 6)
    driver.control.own(ControlRequest("", "p", "p", "pause", {}))
    driver.step()
    refused = ask(driver)
    assert refused.verdict == "refused" and "resume it, or stop it" in refused.message
    assert driver.ledger.control.compact == {}
    driver.control.own(ControlRequest("", "r", "r", "resume", {}))
    assert driver.control.own(ControlRequest("", "d", "d", "compact", {})).verdict == "taken"
    run(driver, 3)
    assert driver.ledger.control.compact == {}
    driver.control.own(ControlRequest("", "q", "q", "pause", {}))
    asked = driver.control.own(ControlRequest("", "e", "e", "compact", {"computation": "Count"}))
    assert asked.done or "resume it" in asked.message, "it never waits"


def test_requests_that_cannot_be_are_refused_and_nothing_to_do_is_done_at_once() -> None:
    store = MemoryStore(limited(**NO_MERGES))
    driver = driver_of(counting(VALUES), store)
    run(driver, 1)
    assert "there are: Count" in ask(driver, computation="Cuont").message
    asked = driver.control.own(ControlRequest("", "d", "d", "compact", {}))
    assert asked.done == "all state is compacted since epoch 1"
    with pytest.raises(IncompatibleState, match="it has: Count"):
        Checkpoint(store).compact("Cuont")
