"""Savepoints are kept while the log lists them, and the state goes back to them under a new id."""

import pytest
from tests.unit.engine.support import Crash, counting, die, driver_of, run
from tests.unit.systems import limited

from headrace import failpoints
from headrace.engine.driver import control as control_module
from headrace.engine.history.savepoints import files_of, read_savepoint
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.engine.replay.restore import restore_savepoint
from headrace.errors import IncompatibleState, InvalidPipeline, SinkError, StoreError
from headrace.log.identity import Identity, read_identity, replace_identity
from headrace.plan.control import ControlRequest
from headrace.plan.decisions import control as decisions
from headrace.sinks import jsonl
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

VALUES = [i % 7 for i in range(60)]
OFTEN = {"collect_every_epochs": 1, "snapshot_every_epochs": 3, "log_directory_entries": 4}


@pytest.fixture(autouse=True)
def _disarmed():
    yield
    failpoints.disarm()


def store_of(**limits):
    return MemoryStore(limited(**OFTEN, **limits))


def ask(driver, verb, name):
    return driver.control.own(ControlRequest("", name + verb, name + verb, verb, {"name": name}))


def counts(checkpoint):
    return {key: state["n"] for key, state in checkpoint.scan("Count")}


def expected(records):
    found = {}
    for value in VALUES[:records]:
        key = f"key {value}"
        found[key] = found.get(key, 0) + 1
        if found[key] % 5 == 0:
            del found[key]
    return found


@pytest.mark.parametrize("ride_bytes_max", [0, 32_000])
def test_the_files_of_a_savepoint_stay_until_it_is_dropped(ride_bytes_max):
    """Also those that rode in entries of the log, which is trimmed meanwhile."""
    store = store_of(ride_bytes_max=ride_bytes_max)
    driver = driver_of(counting(VALUES), store, retain_epochs=2)
    run(driver, 4)
    ask(driver, "savepoint", "here")
    saved = driver.ledger.control.savepoints["here"]
    needed = files_of(read_savepoint(store, saved)) | {saved.snapshot}
    assert len(needed) > 1
    run(driver)
    assert store.list("log/000000") == [], "the log was trimmed past the riders"
    assert needed <= set(store.files)
    restored = restore_savepoint(store, "here", to := store_of())
    assert (restored.epoch, restored.savepoint.epoch) == (4, 4)
    assert counts(Checkpoint(to)) == expected(12)
    again = driver_of(counting(VALUES), store, retain_epochs=2)
    ask(again, "drop-savepoint", "here")
    ask(again, "savepoint", "other")  # a listing of savepoints is due
    run(again)
    again._collect()
    kept = files_of(read_savepoint(store, again.ledger.control.savepoints["other"]))
    assert (needed - kept) & set(store.files) == set()


def test_a_driver_that_takes_over_keeps_the_files_of_savepoints():
    store = store_of(ride_bytes_max=0)
    driver = driver_of(counting(VALUES), store, retain_epochs=1)
    run(driver, 3)
    ask(driver, "savepoint", "here")
    again = driver_of(counting(VALUES), store, retain_epochs=1)
    run(again)
    saved = again.ledger.control.savepoints["here"]
    assert files_of(read_savepoint(store, saved)) <= set(store.files)


def test_a_crash_before_the_entry_leaves_no_savepoint_and_it_can_be_taken_again():
    store = store_of()
    driver = driver_of(counting(VALUES), store)
    run(driver, 3)
    failpoints.arm("before-control-write", die)
    with pytest.raises(Crash):
        ask(driver, "savepoint", "here")
    failpoints.disarm()
    again = driver_of(counting(VALUES), store)
    assert again.ledger.control.savepoints == {}
    run(again, 1)
    assert ask(again, "savepoint", "here").done == "here holds epoch 4"


def test_a_savepoint_that_cannot_be_written_is_not_listed(monkeypatch):
    store = store_of()
    driver = driver_of(counting(VALUES), store)
    run(driver, 3)

    def full(*args):
        raise StoreError("no space left")

    monkeypatch.setattr(control_module, "write_savepoint", full)
    with pytest.raises(StoreError):
        ask(driver, "savepoint", "here")
    monkeypatch.undo()
    assert run(driver) == 18
    assert driver.ledger.control.savepoints == {}


def test_a_restore_in_place_goes_back_and_epoch_numbers_go_on():
    store = store_of()
    driver = driver_of(counting(VALUES), store)
    run(driver, 4)
    ask(driver, "savepoint", "here")
    run(driver)
    old, last = read_identity(store).id, driver.ledger.epoch
    restored = restore_savepoint(store, "here")
    assert restored.epoch == last and restored.checkpoint != old
    assert read_identity(store).id == restored.checkpoint
    assert counts(Checkpoint(store)) == expected(12)
    again = driver_of(counting(VALUES), store)
    assert again.ledger.control.savepoints["here"].epoch == 4, "it can be restored again"
    assert run(again) == 17, "the input after the savepoint is read again"
    assert again.ledger.epoch == last + 17
    assert counts(Checkpoint(store)) == expected(60)
    third = driver_of(counting(VALUES), store)
    assert (third.ledger.slots, third.ledger.splits) == (again.ledger.slots, again.ledger.splits)


def test_a_restore_that_died_before_it_wrote_the_new_id_is_completed_by_the_next_start():
    store = store_of()
    driver = driver_of(counting(VALUES), store)
    run(driver, 4)
    ask(driver, "savepoint", "here")
    old = read_identity(store)
    restored = restore_savepoint(store, "here")
    replace_identity(store, old)
    again = driver_of(counting(VALUES), store)
    assert again.checkpoint == restored.checkpoint
    assert read_identity(store) == Identity(restored.checkpoint, old.pipeline)
    run(again)
    assert counts(Checkpoint(store)) == expected(60)


def test_sinks_refuse_the_new_id_and_fresh_ones_begin_there(tmp_path):
    store = DiskStore(tmp_path / "state", limited(**OFTEN))
    driver = driver_of(counting(VALUES, jsonl(tmp_path / "out")), store)
    run(driver, 4)
    ask(driver, "savepoint", "here")
    run(driver)
    driver.close()
    restore_savepoint(store, "here")
    with pytest.raises(SinkError, match="belongs to the checkpoint"):
        driver_of(counting(VALUES, jsonl(tmp_path / "out")), store)
    again = driver_of(counting(VALUES, jsonl(tmp_path / "fresh")), store)
    run(again)
    again.close()
    rows = [line for f in sorted((tmp_path / "fresh").rglob("*.jsonl")) for line in f.open()]
    assert len(rows) == 48


def test_the_log_of_a_restored_checkpoint_is_trimmed_like_any_other():
    store = store_of(ride_bytes_max=0)
    driver = driver_of(counting(VALUES), store, retain_epochs=2)
    run(driver, 4)
    ask(driver, "savepoint", "here")
    restore_savepoint(store, "here")
    again = driver_of(counting(VALUES), store, retain_epochs=2)
    run(again)
    assert store.list("log/000001") == []
    third = driver_of(counting(VALUES), store, retain_epochs=2)
    assert third.ledger.epoch == again.ledger.epoch
    assert counts(Checkpoint(store)) == expected(60)


def test_a_savepoint_that_there_is_not_is_refused_with_those_that_there_are():
    store = store_of()
    driver = driver_of(counting(VALUES), store)
    run(driver, 4)
    ask(driver, "savepoint", "here")
    with pytest.raises(IncompatibleState, match="no savepoint 'there'; it has: here"):
        restore_savepoint(store, "there")


def test_a_savepoint_is_restored_only_into_an_empty_place():
    store, other = store_of(), store_of()
    driver = driver_of(counting(VALUES), store)
    run(driver, 4)
    ask(driver, "savepoint", "here")
    other.write("something", b"")
    for to in (other, store):
        with pytest.raises(InvalidPipeline, match="is not empty"):
            restore_savepoint(store, "here", to)


def test_a_savepoint_is_no_number_and_one_of_an_earlier_release_is_found(monkeypatch):
    store = store_of()
    driver = driver_of(counting(VALUES), store, retain_epochs=9)
    run(driver, 4)
    refused = ask(driver, "savepoint", "2")
    assert refused.verdict == "refused" and "number of an epoch" in refused.message
    assert ask(driver, "savepoint", "2b").verdict == "taken"
    assert counts(Checkpoint(store, at="2")) == counts(Checkpoint(store, at=2)) == expected(6)
    monkeypatch.setattr(decisions, "is_epoch", lambda name: False)  # as it was
    ask(driver, "savepoint", "2")
    assert counts(Checkpoint(store, at="2")) == expected(12)
    assert counts(Checkpoint(store, at=2)) == expected(6)


@pytest.mark.parametrize("at", ["", "²", "9" * 5000, "-1", " 2"])
def test_what_is_neither_an_epoch_nor_a_savepoint_is_refused(at):
    store = store_of()
    driver = driver_of(counting(VALUES), store, retain_epochs=9)
    run(driver, 4)
    with pytest.raises(IncompatibleState, match="has no savepoint"):
        Checkpoint(store, at=at)
    with pytest.raises(IncompatibleState, match="has no savepoint"):
        list(Checkpoint(store).diff(at, 2))
