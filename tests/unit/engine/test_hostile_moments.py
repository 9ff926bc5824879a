"""Moments that the simulator and hostile users have found, one by one."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest
from tests.unit.engine.support import Crash, counting, die, driver_of, follower_of, run
from tests.unit.systems import FILES, Stopwatch, with_files

from headrace import failpoints
from headrace.causal.journal import Journal
from headrace.causal.outside import ANSWER
from headrace.engine.leading.lease import Pulse
from headrace.engine.leading.loop import RunControl, run_loop
from headrace.engine.leading.retry import Retry
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.errors import CorruptCheckpoint, SinkError, StoreError
from headrace.model.services import CALL
from headrace.plan.decisions.transient import HICCUP_S, part_of
from headrace.plan.epoch import Determinant
from headrace.plan.progress import Notice
from headrace.sinks import jsonl
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

VALUES = [i * 7 % 10 for i in range(60)]


class Flaky(MemoryStore):
    """Refuses to list the log as often as it is told to."""

    refusals = 0

    def list(self, directory: str) -> list[str]:
        if directory == "log" and self.refusals:
            self.refusals -= 1
            raise StoreError("cannot list log")
        return super().list(directory)


# Standbys --------------------------------------------------------------------


def test_a_standby_whose_first_look_failed_half_way_looks_again() -> None:
    store = Flaky()
    run(driver_of(counting(VALUES), store), 2)
    standby = follower_of(counting(VALUES), store)
    store.refusals = 2
    with pytest.raises(StoreError):
        standby.follow()
    store.refusals = 0
    assert standby.follow() == 1
    assert standby.ledger.epoch == 2


def test_a_standby_that_cannot_begin_waits_between_its_tries(tmp_path: Path) -> None:
    """It filled the log with generations, as fast as it could, while its sink was away."""
    out = jsonl(tmp_path / "out")
    leader = driver_of(counting(VALUES, out), DiskStore(tmp_path / "state"))
    run(leader, 2)
    (tmp_path / "out").rename(tmp_path / "away")
    (tmp_path / "out").write_text("in the way")
    notices: list[Notice] = []
    stopping = threading.Event()

    def hear(notice: Notice) -> None:
        notices.append(notice)
        if notice.kind == "away":
            stopping.set()

    topology = counting(VALUES, jsonl(tmp_path / "out"))
    standby = follower_of(
        topology,
        DiskStore(tmp_path / "state"),
        clock=lambda: 1,
        give_up_s=None,
        lease_s=0.1,
        standby=True,
        on_notice=hear,
    )
    run_loop(standby, RunControl(stopping))
    tries = [n for n in notices if "cannot take over" in n.text]
    assert 2 <= len(tries) <= 7
    outages = [f"the {part} has been unavailable" for part in ("checkpoint", "sink")]
    assert any(outage in notices[-1].text for outage in outages)


# Outages ---------------------------------------------------------------------


def test_a_leader_that_waits_for_what_is_away_is_not_stuck() -> None:
    watch = Stopwatch()
    pulse = Pulse(5.0, watch)
    pulse.rest(True)
    watch.now_s = 30.0
    assert pulse.alive()
    pulse.rest(False)
    assert pulse.alive()
    watch.now_s = 36.0
    assert not pulse.alive()


class Waited(threading.Event):
    """An event that is never set; to wait for it takes no time but that of a stopwatch."""

    def __init__(self, watch: Stopwatch) -> None:
        super().__init__()
        self.watch = watch

    def wait(self, timeout: float | None = None) -> bool:
        self.watch.sleep(timeout or 0.0)
        return False


def test_an_outage_is_told_as_soon_as_it_has_lasted_though_each_try_takes_long() -> None:
    watch, told = Stopwatch(), []
    stopping = Waited(watch)
    patience = Retry(None, stopping, lambda *n: told.append(n), system=watch)
    patience.wait(StoreError("no"))
    assert not told
    watch.now_s = HICCUP_S
    patience.wait(StoreError("no"))
    assert [kind for kind, _ in told] == ["away"]


def test_giving_up_is_told_once_though_waits_lie_within_waits() -> None:
    watch = Stopwatch()
    patience = Retry(10.0, Waited(watch), system=watch)

    def away() -> None:
        raise StoreError("cannot write x")

    with pytest.raises(StoreError) as caught:
        patience.through(lambda: patience.through(away))
    assert str(caught.value).count("given up") == 1


def test_a_sink_that_is_away_is_told_as_a_sink(tmp_path: Path) -> None:
    away = False

    def listed(path: str) -> list[str]:
        if away and "_high_water" in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.listdir(path)

    store = MemoryStore(with_files(list=listed))
    driver = driver_of(counting(VALUES, jsonl(tmp_path / "out")), store)
    run(driver, 1)
    away = True
    with pytest.raises(SinkError, match="sink 'counts' .* cannot list .*_high_water") as caught:
        run(driver, 1)
    assert part_of(caught.value) == "sink"


def test_rows_that_vanished_with_the_whole_checkpoint_are_waited_for(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "state", FILES)
    driver = driver_of(counting(VALUES, jsonl(tmp_path / "out")), store)
    moved = lambda: (tmp_path / "state").rename(tmp_path / "elsewhere")  # noqa: E731
    failpoints.arm("before-delivery", moved)
    with pytest.raises(StoreError, match="is it still mounted"):
        run(driver, 1)
    failpoints.disarm()
    (tmp_path / "elsewhere").rename(tmp_path / "state")
    run(driver, 1)
    assert len(list((tmp_path / "out").glob("epoch=*"))) == 2


# What is missing -------------------------------------------------------------


def undelivered(tmp_path: Path) -> list[Path]:
    """A driver has died after a commit; gives the rows that its sink does not have."""
    store = DiskStore(tmp_path / "state", FILES)
    driver = driver_of(counting(VALUES, jsonl(tmp_path / "out")), store)
    run(driver, 2)
    failpoints.arm("after-commit-write", die)
    with pytest.raises(Crash):
        run(driver, 1)
    failpoints.disarm()
    return sorted((tmp_path / "state" / "staged" / "counts").glob("000000000003-*"))


def test_rows_that_no_sink_has_are_not_passed_over_where_their_file_is_missing(
    tmp_path: Path,
) -> None:
    undelivered(tmp_path)[0].unlink()
    topology = counting(VALUES, jsonl(tmp_path / "out"))
    with pytest.raises(CorruptCheckpoint) as caught:
        driver_of(topology, DiskStore(tmp_path / "state"))
    text = str(caught.value)
    assert str(tmp_path / "state" / "staged" / "counts") in text
    assert "rows of epoch 3, which sink 'counts' does not have" in text
    assert "give the sink another name" in text


def test_a_damaged_staged_file_is_told_with_its_sink_and_what_to_do(tmp_path: Path) -> None:
    path = undelivered(tmp_path)[0]
    path.unlink()
    path.write_bytes(b"other")
    with pytest.raises(CorruptCheckpoint, match="for sink 'counts' whose digest .* Restore"):
        driver_of(counting(VALUES, jsonl(tmp_path / "out")), DiskStore(tmp_path / "state"))


def test_a_sink_whose_working_directories_were_tidied_away_goes_on(tmp_path: Path) -> None:
    undelivered(tmp_path)
    for name in ("_claims", "_staging"):
        shutil.rmtree(tmp_path / "out" / name)
    driver_of(counting(VALUES, jsonl(tmp_path / "out")), DiskStore(tmp_path / "state"))
    assert len(list((tmp_path / "out").glob("epoch=*"))) == 3


def test_a_reader_goes_on_to_the_newest_commit_where_its_files_were_collected() -> None:
    store = MemoryStore(FILES)
    driver = driver_of(counting(VALUES), store)
    run(driver, 1)
    reader = Checkpoint(store)
    run(driver, 2)
    for entry in reader._state.ledger.slots["Count"][0].entries:
        store.files.pop(entry.segment)
    newest = {name for slot in driver.ledger.slots["Count"].values() for name in slot.entries}
    kept = [entry for entry in newest if entry.segment in store.files]
    assert kept, "later epochs have written segments of their own"
    with pytest.raises(CorruptCheckpoint, match="is missing from the checkpoint"):
        reader.view("Count")
    assert reader.epoch == 3, "it has looked for something newer first"


def test_an_answer_is_kept_at_hand_while_its_log_is_away() -> None:
    class Full(MemoryStore):
        refusals = 9

        def put_if_absent(self, name: str, data: bytes) -> bool:
            if name.endswith(".result") and self.refusals:
                self.refusals -= 1
                raise StoreError("the disk is full")
            return super().put_if_absent(name, data)

    store, calls = Full(Stopwatch(1000.0)), []

    def perform(deadline: float) -> Determinant:
        calls.append(deadline)
        return Determinant("n", b"r", ANSWER, b"yes")

    journal = Journal(store, "determinants/1")
    assert journal.once("n", b"r", CALL, perform).kind == ANSWER
    assert len(calls) == 1
    assert store.refusals == 0


def test_a_standby_makes_nothing_in_the_place_of_a_checkpoint_that_went_away(
    tmp_path: Path,
) -> None:
    class Vanishing(DiskStore):
        """Is moved away between a driver's last look and its first act."""

        vanishes = False

        def make_directory(self, directory: str) -> None:
            if self.vanishes:
                self.vanishes = False
                (tmp_path / "state").rename(tmp_path / "away")
            super().make_directory(directory)

    run(driver_of(counting(VALUES), DiskStore(tmp_path / "state")), 1)
    store = Vanishing(tmp_path / "state")
    standby = follower_of(counting(VALUES), store)
    standby.follow()
    store.vanishes = True
    with pytest.raises(StoreError, match="has vanished: is it still mounted"):
        standby.take_over(1)
    assert not (tmp_path / "state").exists()
