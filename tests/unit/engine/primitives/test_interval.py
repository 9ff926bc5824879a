"""Primitives where state is durable every few epochs only, and written in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.engine.support import counting, driver_of, run
from tests.unit.systems import limited

from headrace import Backup, Checkpoint, Remote
from headrace.errors import IncompatibleState
from headrace.plan.control import ControlRequest
from headrace.plan.interval.cadence import Cadence
from headrace.store.disk import DiskStore

VALUES = [i % 7 for i in range(60)]
LIMITS = limited(ride_bytes_max=0, merge_segments_min=999)


def led(root: Path):
    store = DiskStore(root / "state", LIMITS)
    driver = driver_of(counting(VALUES), store, checkpoint_every=Cadence(epochs=100))
    run(driver, 5)
    assert driver.ledger.interval.durable(5) < 5
    return store, driver


def test_a_checkpoint_on_request_makes_the_last_epoch_durable(tmp_path: Path) -> None:
    store, driver = led(tmp_path)
    assert Remote(store).checkpoint() < 5, "no driver holds a lease here, so nobody is asked"
    asked = driver.control.own(ControlRequest("", "n", "n", "checkpoint", {}))
    assert (asked.verdict, asked.done) == ("taken", "epoch 5 is durable")
    assert Remote(store).checkpoint() == 5


def test_a_backup_of_what_is_only_written_is_durable_where_it_is_restored(tmp_path: Path) -> None:
    store, _ = led(tmp_path)
    place, to = DiskStore(tmp_path / "b", LIMITS), DiskStore(tmp_path / "r", LIMITS)
    assert Checkpoint(store).backup(place).epoch == 5
    Backup(place).restore(to)
    assert Remote(to).checkpoint() == 5
    assert dict(Checkpoint(to).scan("Count")) == dict(Checkpoint(store).scan("Count"))
    again = driver_of(counting(VALUES), to)
    run(again)
    assert again.ledger.epoch > 20 and Checkpoint(to).verify().is_whole


def test_what_a_power_loss_has_taken_is_a_note_and_no_compaction_is_made(tmp_path: Path) -> None:
    store, driver = led(tmp_path)
    [entry, *_] = [e for s in driver.ledger.slots["Count"].values() for e in s.entries if e.written]
    store.delete(entry.segment)
    found = Checkpoint(store).verify()
    assert found.is_whole
    assert any(entry.segment in note and "is made again" in note for note in found.notes)
    with pytest.raises(IncompatibleState, match="compact it while it runs"):
        Checkpoint(store).compact()
