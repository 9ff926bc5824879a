"""Delivery: every committed epoch, in order, to every sink, once, through crashes (PROTOCOL F)."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.unit.engine.support import Count, Crash, counting, die, driver_of, run
from tests.unit.systems import FILES, limited

from headrace import failpoints
from headrace.errors import (
    CorruptCheckpoint,
    IncompatibleState,
    InvalidPipeline,
    SinkError,
    StoreError,
)
from headrace.log import paths
from headrace.log.identity import Identity
from headrace.log.sealed import seal
from headrace.model.sink import Delivery, Opening, Sink
from headrace.model.values.rows import Rows
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sinks import jsonl
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

VALUES = [i * 7 % 10 for i in range(60)]


class Diary(Sink):
    """Notes what is delivered; refuses while `refusing` is not empty."""

    def __init__(self, high_water: int = 0) -> None:
        self.delivered: list[tuple[int, int]] = []
        self.water = high_water
        self.refusing: list[Exception] = []
        self.openings: list[Opening] = []

    def open(self, opening: Opening) -> None:
        self.openings.append(opening)

    def encode(self, rows: Rows) -> bytes:
        return b"%d" % len(rows)

    def high_water(self) -> int:
        return self.water

    def deliver(self, delivery: Delivery) -> None:
        if self.refusing:
            raise self.refusing.pop()
        rows = sum(int(part.read()) for part in delivery.parts)
        self.delivered.append((delivery.epoch, rows))
        self.water = delivery.epoch

    def __deepcopy__(self, memo):
        return self


def epochs_of(diary: Diary) -> list[int]:
    return [epoch for epoch, _ in diary.delivered]


class Aliased(Diary):
    """A sink whose target has more than one name."""

    def target(self) -> str:
        assert self.openings, "only an open sink knows it"
        return "database/public.counts"


def two_sinks(first: Sink, second: Sink):
    pipeline = PipelineBuilder("p")
    pipeline.read("values", memory(VALUES, timestamps=range(len(VALUES))))
    pipeline.compute(Count, inputs={"values": lambda v: f"key {v}"}, outputs="counts")
    pipeline.stream("counts").write(first).write(second)
    return pipeline.freeze()


def test_every_epoch_is_delivered_in_order_also_those_without_rows() -> None:
    diary = Diary()
    driver = driver_of(counting(VALUES, diary))
    run(driver)
    assert epochs_of(diary) == list(range(1, driver.ledger.epoch + 1))
    assert sum(rows for _, rows in diary.delivered) == len(VALUES)
    assert diary.delivered[-1][1] == 0, "the final epoch has no rows here"


@pytest.mark.parametrize("name", ["after-commit-write", "before-delivery"])
def test_an_epoch_that_was_committed_and_not_delivered_comes_first_after_a_crash(
    name: str,
) -> None:
    diary = Diary()
    topology = counting(VALUES, diary)
    store = MemoryStore()
    driver = driver_of(topology, store)
    run(driver, 3)
    failpoints.arm(name, die)
    with pytest.raises(Crash):
        driver.step()
    failpoints.disarm()
    assert epochs_of(diary) == [1, 2, 3]
    successor = driver_of(topology, store)
    assert epochs_of(diary) == [1, 2, 3, 4]
    run(successor)
    assert sum(rows for _, rows in diary.delivered) == len(VALUES)


class Flickering(MemoryStore):
    """Does not see staged files at the first look, as a filesystem that is mounted again."""

    unseen = False

    def read(self, name: str) -> bytes:
        if self.unseen and name.startswith(paths.STAGED):
            self.unseen = False
            raise FileNotFoundError(name)
        return super().read(name)

    def list(self, directory: str):
        if self.unseen and directory.startswith(paths.STAGED):
            self.unseen = False
            return []
        return super().list(directory)


def test_staged_rows_that_are_out_of_sight_for_a_moment_are_delivered() -> None:
    diary, store = Diary(), Flickering(FILES)
    driver = driver_of(counting(VALUES, diary), store)
    run(driver, 2)
    failpoints.arm("after-commit-write", lambda: setattr(store, "unseen", True))
    driver.step()
    failpoints.disarm()
    assert epochs_of(diary) == [1, 2, 3] and not store.unseen


def test_staged_files_that_cannot_be_listed_for_a_moment_are_not_lost() -> None:
    diary, store = Diary(), Flickering(FILES)
    topology = counting(VALUES, diary)
    driver = driver_of(topology, store)
    run(driver, 2)
    failpoints.arm("after-commit-write", die)
    with pytest.raises(Crash):
        driver.step()
    failpoints.disarm()
    store.unseen = True
    with pytest.raises(StoreError, match="not there while its staged files"):
        driver_of(topology, store)  # a run waits, and tries again
    driver_of(topology, store)
    assert epochs_of(diary) == [1, 2, 3]


def test_a_sink_that_has_an_epoch_is_not_given_it_again_for_anothers_sake() -> None:
    first, second = Diary(), Diary()
    topology = two_sinks(first, second)
    driver = driver_of(topology)
    run(driver, 2)
    second.refusing = [ValueError("no")]
    with pytest.raises(SinkError, match="sink 'counts.2' refused epoch 3"):
        driver.step()
    driver_of(topology, driver.store)
    assert epochs_of(first) == epochs_of(second) == [1, 2, 3]


def test_an_epoch_that_a_sink_refused_is_delivered_before_the_next_by_the_same_driver_too() -> None:
    diary = Diary()
    driver = driver_of(counting(VALUES, diary))
    run(driver, 2)
    diary.refusing = [SinkError("its place is full")]
    with pytest.raises(SinkError, match="its place is full"):
        driver.step()
    run(driver)
    assert epochs_of(diary) == list(range(1, driver.ledger.epoch + 1))


def test_a_damaged_staged_file_is_not_delivered() -> None:
    diary = Diary()
    topology = counting(VALUES, diary)
    driver = driver_of(topology, MemoryStore(FILES))
    failpoints.arm("before-delivery", die)
    with pytest.raises(Crash):
        driver.step()
    failpoints.disarm()
    for name in list(driver.store.files):
        if name.startswith(paths.STAGED):
            driver.store.files[name] = b"999"
    with pytest.raises(CorruptCheckpoint, match="not the committed one"):
        driver_of(topology, driver.store)
    assert diary.delivered == []


def test_a_sink_hears_which_checkpoint_generation_and_epoch_it_belongs_to() -> None:
    diary = Diary()
    topology = counting(VALUES, diary)
    driver = driver_of(topology)
    run(driver, 3)
    driver_of(topology, driver.store)
    first, second = diary.openings
    assert (first.generation, first.committed) == (1, 0)
    assert (second.generation, second.committed) == (2, 3)
    assert first.checkpoint == second.checkpoint == driver.checkpoint


# Sinks that have lost their memory ----------------------------------------

OFTEN = limited(collect_every_epochs=1)


def test_a_deleted_output_directory_starts_at_the_oldest_epoch_still_staged_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topology = counting(VALUES, jsonl(tmp_path / "out"))
    store = DiskStore(tmp_path / "checkpoint", OFTEN)
    run(driver_of(topology, store, retain_epochs=4), 10)
    shutil.rmtree(tmp_path / "out")
    with caplog.at_level(logging.WARNING, "headrace"):
        successor = driver_of(topology, store, retain_epochs=4)
    assert "goes on at epoch 7" in caplog.text
    run(successor)
    found = sorted(path.name for path in (tmp_path / "out").glob("epoch=*"))
    assert found[0] == "epoch=000000000007"
    assert len(found) == len(VALUES) // 3 - 6


def test_a_new_sink_on_an_old_checkpoint_starts_with_what_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diary = Diary()
    driver = driver_of(counting(VALUES, diary), MemoryStore(OFTEN), retain_epochs=4)
    run(driver, 10)
    newcomer = Diary()
    with caplog.at_level(logging.WARNING, "headrace"):
        successor = driver_of(two_sinks(diary, newcomer), _same_name(driver), retain_epochs=4)
    run(successor)
    assert epochs_of(newcomer)[-1] == successor.ledger.epoch
    assert epochs_of(newcomer) == list(range(epochs_of(newcomer)[0], successor.ledger.epoch + 1))
    assert epochs_of(diary) == list(range(1, successor.ledger.epoch + 1))


def _same_name(driver):
    """The checkpoint of a pipeline called `p` from one called `counting`."""
    body = msgspec.json.encode(Identity(driver.checkpoint, "p"))
    driver.store.files[paths.IDENTITY] = seal(b"headrace-checkpoint", body)
    return driver.store


def test_a_memory_sink_in_a_new_process_holds_what_comes_from_then_on() -> None:
    store = MemoryStore()
    run(driver_of(counting(VALUES), store), 10)
    fresh = memory_sink()
    driver = driver_of(counting(VALUES, fresh), store)
    assert fresh.rows == []
    run(driver)
    assert len(fresh.rows) == len(VALUES) - 30


def test_a_memory_sink_in_the_same_process_gets_the_epoch_of_the_crash() -> None:
    sink = memory_sink()
    topology = counting(VALUES, sink)
    store = MemoryStore()
    failpoints.arm("before-delivery", die)
    with pytest.raises(Crash):
        driver_of(topology, store).step()
    failpoints.disarm()
    run(driver_of(topology, store))
    assert len(sink.rows) == len(VALUES)


def test_a_sink_ahead_of_the_checkpoint_is_refused() -> None:
    """[The checkpoint was put back to an older copy: its next epochs would silently be skipped.]"""
    diary = Diary()
    topology = counting(VALUES, diary)
    driver = driver_of(topology)
    run(driver, 2)
    copy = MemoryStore()
    copy.files = dict(driver.store.files)
    run(driver, 3)
    with pytest.raises(IncompatibleState, match="has epoch 5, but the checkpoint is at epoch 2"):
        driver_of(topology, copy)


def test_two_sinks_that_turn_out_to_be_one_are_refused() -> None:
    with pytest.raises(InvalidPipeline, match="both write to database/public.counts"):
        driver_of(two_sinks(Aliased(), Aliased()))
    driver_of(two_sinks(Aliased(), Diary()))
