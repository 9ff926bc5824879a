"""Background merges: adopted by the open epoch if their run is unchanged, else thrown away (C2)."""

from __future__ import annotations

import threading
from itertools import pairwise

import msgspec
import pyarrow as pa
import pytest
from tests.unit.engine.support import counting, driver_of, run
from tests.unit.systems import limited

from headrace.engine.driver.compactor import Compactor
from headrace.engine.driver.driver import Driver
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.errors import CorruptCheckpoint, StoreError
from headrace.limits import LIMITS
from headrace.log import paths
from headrace.plan.epoch import Plan
from headrace.plan.ring import Ring
from headrace.state import compaction
from headrace.store.memory import MemoryStore
from headrace.system import REAL, System

VALUES = [i * 7 % 10 for i in range(400)]

RETRY_AFTER = LIMITS.merge_retry_epochs


class Never(Compactor):
    """Lets segments pile up."""

    def consider(self, history) -> None:
        pass


def piled_up(epochs: int = 12, system: System = REAL, **options) -> Driver:
    """A driver over so many unmerged epochs."""
    driver = driver_of(counting(VALUES), MemoryStore(system), **options)
    driver._compactor = Never(driver.store, driver.topology, background=False)
    run(driver, epochs)
    driver._compactor = Compactor(driver.store, driver.topology, background=False)
    return driver


def next_plan(driver: Driver) -> Plan:
    plan = driver.ledger.open_plan
    assert plan is not None
    return plan


def temporaries(driver: Driver) -> list[str]:
    return [n for n in driver.store.files if "/.merged-" in n]


def counts(driver: Driver) -> dict:
    return dict(Checkpoint(driver.store).scan("Count"))


def test_a_merge_takes_its_runs_place_and_changes_no_answer() -> None:
    driver = piled_up()
    before, entries = counts(driver), driver.ledger.slots["Count"][0].entries
    driver._compactor.consider(driver.history)
    (adoption, _) = adoptions = driver._compactor.adoptions(next_plan(driver), driver.ledger)
    assert adoption.replaces == tuple(e.segment for e in entries)
    assert adoption.entry.last_epoch == max(e.last_epoch for e in entries)
    epoch, label, _ = paths.parse_content_name(adoption.entry.segment.rsplit("/", 1)[1])
    assert (epoch, label) == (driver.ledger.epoch + 1, "Count/0~")
    for each in adoptions:
        driver.ledger._adopt(each)
    assert len(driver.ledger.slots["Count"][0].entries) == 1
    view = Checkpoint(driver.store)
    view._ledger = driver.ledger
    assert dict(view.scan("Count")) == before != {}


def test_a_pipeline_with_merges_ends_with_the_state_of_one_without() -> None:
    merging, plain = driver_of(counting(VALUES)), piled_up(10_000)
    run(merging)
    assert merging._compactor.adopted > 0
    assert counts(merging) == counts(plain)
    few = max(len(slot.entries) for slot in merging.ledger.slots["Count"].values())
    many = max(len(slot.entries) for slot in plain.ledger.slots["Count"].values())
    assert few < 20 < many


def test_a_result_whose_run_has_changed_is_thrown_away() -> None:
    driver = piled_up()
    driver._compactor.consider(driver.history)
    assert len(temporaries(driver)) == 2
    slot = driver.ledger.slots["Count"][0]
    driver.ledger.slots["Count"][0] = msgspec.structs.replace(slot, entries=slot.entries[1:])
    (adoption,) = driver._compactor.adoptions(next_plan(driver), driver.ledger)
    assert adoption.slot == 1
    assert temporaries(driver) == []


def test_nothing_is_adopted_by_an_epoch_that_moves_the_ring() -> None:
    """Entries are cut before adoption: a result would reach into another slot's interval."""
    driver = piled_up()
    driver._compactor.consider(driver.history)
    moved = msgspec.structs.replace(next_plan(driver), rings={"Count": Ring.even(3)})
    assert driver._compactor.adoptions(moved, driver.ledger) == []
    assert temporaries(driver) == []


def test_a_result_is_offered_to_one_epoch_only() -> None:
    driver = piled_up()
    driver._compactor.consider(driver.history)
    assert len(driver._compactor.adoptions(next_plan(driver), driver.ledger)) == 2
    assert driver._compactor.adoptions(next_plan(driver), driver.ledger) == []


def test_a_full_disk_delays_a_merge_and_stops_nothing() -> None:
    driver = piled_up()
    real = driver.store.write

    def full(name: str, data: bytes) -> None:
        if "Count/.merged-" in name:
            raise StoreError("the disk is full")
        real(name, data)

    driver.store.write = full  # type: ignore[method-assign]
    run(driver, 3)
    assert driver._compactor.adopted == 0
    driver.store.write = real  # type: ignore[method-assign]
    run(driver, 3)
    assert driver._compactor.adopted == 0, "it waits before it tries again"
    run(driver, RETRY_AFTER)
    assert driver._compactor.adopted > 0


def test_a_swept_result_is_forgotten() -> None:
    driver = piled_up()
    driver._compactor.consider(driver.history)
    for name in temporaries(driver):
        driver.store.delete(name)
    assert driver._compactor.adoptions(next_plan(driver), driver.ledger) == []


def test_a_damaged_segment_is_not_merged_over() -> None:
    driver = piled_up()
    name = driver.ledger.slots["Count"][0].entries[3].segment
    driver.store.files[name] = driver.store.files[name][:-1]
    with pytest.raises(CorruptCheckpoint, match="is damaged"):
        driver._compactor.consider(driver.history)
        driver._compactor.adoptions(next_plan(driver), driver.ledger)


def test_a_merge_that_fails_for_any_reason_stops_nothing_and_is_left_alone_ever_longer(
    monkeypatch, caplog
) -> None:
    driver = piled_up()
    tries = []

    def overflowing(*given, **options):
        tries.append(driver.ledger.epoch)
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    monkeypatch.setattr(compaction, "merge", overflowing)
    run(driver, 4 * RETRY_AFTER)
    assert driver.ledger.epoch > 3 * RETRY_AFTER and driver._compactor.adopted == 0
    assert "could not be merged (ArrowInvalid: offset overflow" in caplog.text
    epochs = sorted(set(tries))
    assert epochs[1] - epochs[0] >= RETRY_AFTER and epochs[2] - epochs[1] >= 2 * RETRY_AFTER


def test_a_segment_that_was_out_of_reach_for_a_while_is_not_taken_for_lost() -> None:
    driver = piled_up()
    real, driver.store.map = driver.store.map, lambda name: driver.store.read("away")  # type: ignore[method-assign]
    driver._compactor.consider(driver.history)
    driver.store.map = real  # type: ignore[method-assign]
    assert driver._compactor.adoptions(next_plan(driver), driver.ledger) == []


@pytest.mark.parametrize("piece", [500, 3000])
def test_a_large_run_is_merged_in_pieces_that_are_merged_again_together(piece: int) -> None:
    driver = piled_up(system=limited(merge_piece_bytes=piece, merge_sample_bytes=50))
    before = counts(driver)
    driver._compactor.consider(driver.history)
    adoptions = driver._compactor.adoptions(next_plan(driver), driver.ledger)
    assert len(adoptions) > 2 and driver._compactor.adopted == 2
    for each in adoptions:
        driver.ledger._adopt(each)
    for slot, state in driver.ledger.slots["Count"].items():
        mine = sorted(e.interval for e in state.entries)
        (whole,) = driver.ledger.rings["Count"].intervals(slot)
        assert mine[0].low >= whole.low and mine[-1].last <= whole.last
        assert all(one.high <= other.low for one, other in pairwise(mine))
        assert len({e.last_epoch for e in state.entries}) == 1
        assert compaction.choose(state.entries) == (), "pieces are not a run of their own"
    view = Checkpoint(driver.store)
    view._ledger = driver.ledger
    assert dict(view.scan("Count")) == before != {}


def test_a_pipeline_whose_merges_are_cut_to_pieces_ends_with_the_state_of_one_without() -> None:
    store = MemoryStore(limited(merge_piece_bytes=1000, merge_sample_bytes=50))
    merging, plain = driver_of(counting(VALUES), store), piled_up(10_000)
    run(merging)
    assert merging._compactor.adopted > 1
    assert counts(merging) == counts(plain)


def test_epochs_go_on_while_a_merge_is_running() -> None:
    driver = piled_up()
    gate = threading.Event()

    class Slow(Compactor):
        def _merge(self, *given):
            gate.wait(10)
            return super()._merge(*given)

    slow = driver._compactor = Slow(driver.store, driver.topology, background=True)
    slow.consider(driver.history)
    assert run(driver, 3) == 3 and slow.adopted == 0
    gate.set()
    for future in slow._running.values():
        future.result(10)
    run(driver, 1)
    slow.close()
    assert slow.adopted >= 1
