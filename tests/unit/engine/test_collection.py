"""Collection: nothing that somebody needs goes, and what nobody needs does (PROTOCOL C8)."""

from __future__ import annotations

import concurrent.futures
import random
import threading

import pytest
from tests.unit.engine.support import Crash, counting, driver_of, run
from tests.unit.systems import FILES, Stopwatch, limited

from headrace import Computation, failpoints
from headrace.engine.driver.driver import Driver
from headrace.engine.history.recovery import recover
from headrace.engine.upkeep.collection import Collector, collect, needed_by
from headrace.errors import StoreError
from headrace.log import paths
from headrace.log.epochlog import EpochLog
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.state.segment import Segment
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.system import REAL, System

VALUES = [i * 7 % 10 for i in range(300)]
DIGEST = "0" * 32


def collected(driver: Driver, acknowledged: int | None = None) -> int:
    done = driver._deliverer.acknowledged() if acknowledged is None else acknowledged
    return collect(driver.store, driver.log, needed_by(driver.history, done))


def files(store: MemoryStore, directory: str) -> set[str]:
    """What lies there, without what a merge is still writing."""
    return {n for n in store.files if n.startswith(f"{directory}/") and "/." not in n}


def named_by_the_window(driver: Driver) -> set[str]:
    found = set(driver.history.files())
    for _, commit in driver.history.commits:
        found |= {f"{paths.staged_directory(f.sink)}/{f.name}" for f in commit.staged}
        found |= {f"{paths.OUTBOX}/{f.name}" for f in commit.outbox}
    return found


@pytest.mark.parametrize("retain", [1, 3, 16])
def test_what_the_window_names_stays_and_the_rest_goes(retain: int) -> None:
    driver = driver_of(counting(VALUES), MemoryStore(FILES), retain_epochs=retain)
    run(driver, 40)
    needed = named_by_the_window(driver)
    assert needed <= set(driver.store.files)
    collected(driver)
    assert needed <= set(driver.store.files)
    left = files(driver.store, paths.STATE) | files(driver.store, paths.STAGED)
    assert left <= needed
    assert collected(driver) == 0


def orphan(epoch: int, label: str = "zombie") -> str:
    return paths.content_name(epoch, label, DIGEST, ".arrow")


def test_orphans_of_closed_epochs_go_and_those_of_the_open_one_stay() -> None:
    driver = driver_of(counting(VALUES), MemoryStore(FILES))
    run(driver, 20)
    state, staged = paths.state_directory("Count"), paths.staged_directory("counts")
    for epoch in (1, 12, 20, 21, 22):
        for directory in (state, staged, paths.OUTBOX):
            driver.store.write(f"{directory}/{orphan(epoch)}", b"")
    collected(driver)
    for directory in (state, staged, paths.OUTBOX):
        left = [n for n in driver.store.list(directory) if "zombie" in n]
        assert left == [orphan(21), orphan(22)], directory


def test_the_parts_that_an_open_order_may_name_stay_and_older_ones_go() -> None:
    driver = driver_of(counting(VALUES), MemoryStore(limited(order_parts=4)))
    run(driver, 20)
    for epoch in range(12, 22):
        for label in ("order", paths.ORDER_PART):
            name = paths.content_name(epoch, label, DIGEST)
            driver.store.write(f"{paths.WORK}/{name}", b"")
    collected(driver)
    left = sorted(paths.parse_content_name(n)[:2] for n in driver.store.list(paths.WORK))
    parts = [(epoch, paths.ORDER_PART) for epoch in range(18, 22)]
    assert left == sorted([*parts, (21, "order")])


def test_a_zombie_that_writes_late_is_swept_the_next_time() -> None:
    driver = driver_of(counting(VALUES), MemoryStore(FILES))
    run(driver, 20)
    collected(driver)
    late = f"{paths.state_directory('Count')}/{orphan(3)}"
    driver.store.write(late, b"")
    assert collected(driver) == 1 and late not in driver.store.files


def test_staged_files_of_epochs_that_some_sink_lacks_stay() -> None:
    driver = driver_of(counting(VALUES), MemoryStore(FILES), retain_epochs=2)
    run(driver, 20)
    before = files(driver.store, paths.STAGED)
    driver.store.files.update(dict.fromkeys(before, b""))
    collected(driver, acknowledged=14)
    staged = driver.store.list(paths.staged_directory("counts"))
    assert min(paths.parse_content_name(name)[0] for name in staged) == 15


def test_a_merge_that_waits_for_its_commit_is_not_an_orphan() -> None:
    driver = driver_of(counting(VALUES), MemoryStore(FILES))
    run(driver, 20)
    waiting = f"{paths.state_directory('Count')}/{orphan(21, 'Count/0~')}"
    driver.store.write(waiting, b"")
    collected(driver)
    assert waiting in driver.store.files


def test_strange_files_are_left_alone() -> None:
    driver = driver_of(counting(VALUES), MemoryStore(FILES))
    run(driver, 20)
    driver.store.write("state/Count/notes.txt", b"mine")
    collected(driver)
    assert driver.store.read("state/Count/notes.txt") == b"mine"


def test_feedback_that_waits_for_the_next_epoch_stays() -> None:
    class Loop(Computation):
        def process_record(self, record, ctx):
            if record.value:
                ctx.produce(record.value - 1)

    pipeline = PipelineBuilder("p")
    pipeline.read("s", memory([30], timestamps=[0]))
    pipeline.stream("back", feedback=True)
    pipeline.compute(Loop, inputs={"s": lambda v: "k", "back": lambda v: "k"}, outputs="back")
    driver = driver_of(pipeline.freeze(), MemoryStore(FILES), retain_epochs=1)
    for _ in range(10):
        run(driver, 1)
        collected(driver)
        waiting = {f.name for fs in driver.ledger.outbox.values() for f in fs}
        assert set(driver.store.list(paths.OUTBOX)) == waiting


def test_files_that_a_writer_left_half_written_long_ago_go(tmp_path) -> None:
    driver = driver_of(counting(VALUES), DiskStore(tmp_path))
    run(driver, 2)
    half = tmp_path / paths.state_directory("Count") / ".half.tmp"
    half.write_bytes(b"")
    collected(driver)
    assert half.exists()
    driver.store.system = limited(leftover_age_s=-1.0)
    collected(driver)
    assert not half.exists()


def test_the_log_is_trimmed_and_recovery_still_finds_the_whole_window() -> None:
    store = MemoryStore(limited(log_directory_entries=10))
    driver = driver_of(counting(VALUES), store, retain_epochs=5)
    run(driver, 90)
    collected(driver)
    entries = [n for n in files(driver.store, paths.LOG) if not n.endswith(".trimmed")]
    assert len(entries) < 60
    found = recover(EpochLog(driver.store), 5)
    assert found.ledger == driver.ledger
    assert found.commits == driver.history.commits


@pytest.mark.parametrize("rides", [0, 2600, 32 << 10])
def test_after_any_crash_and_collection_every_file_that_counts_opens(rides: int) -> None:
    """Lives of random length, ended at random failpoints, with collection after every epoch."""
    dice = random.Random(3)
    names = [n for n in failpoints.NAMES if n not in ("after-claim", "after-publish")]
    sink = memory_sink()
    topology = counting(VALUES[:240], sink)
    limits = limited(
        collect_every_epochs=1,
        log_directory_entries=7,
        snapshot_every_epochs=3,
        ride_bytes_max=rides,
        ride_entries_max=9,
    )
    store = MemoryStore(limits)
    for _ in range(60):
        left = dice.randrange(1, 9)

        def maybe_die() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash

        failpoints.arm(dice.choice(names), maybe_die)
        try:
            driver = driver_of(
                topology, store, retain_epochs=dice.choice((1, 4)), slots=dice.choice((1, 2, 3))
            )
            run(driver, dice.randrange(1, 12))
        except Crash:
            pass
        failpoints.disarm()
        found = recover(EpochLog(store), 4)
        for slots in found.ledger.slots.values():
            for entry in (entry for slot in slots.values() for entry in slot.entries):
                Segment.open(store, entry.segment, entry.at)
    run(driver_of(topology, store))
    expected = {f"key {v}": VALUES[:240].count(v) for v in range(10)}
    totals: dict[str, int] = {}
    for row in sink.rows:
        totals[row["k"]] = totals.get(row["k"], 0) + 1
    assert totals == expected


# Beside the epochs ---------------------------------------------------------


class Barred(MemoryStore):
    """Lists only when the test lets it."""

    rewrite_interval_s = 0.0

    def __init__(self, system: System = REAL) -> None:
        super().__init__(system)
        self.open = threading.Event()
        self.open.set()
        self.error: Exception | None = None

    def list(self, directory: str) -> list[str]:
        self.open.wait(10)
        if self.error is not None:
            raise self.error
        return super().list(directory)


def collector_over(store: Barred) -> tuple[Driver, Collector]:
    driver = driver_of(counting(VALUES), store, retain_epochs=1)
    driver._collector.close()
    driver._collector = Collector(store, driver.log, lambda: None, background=True)
    return driver, driver._collector


def wait_for(collector: Collector) -> None:
    if collector._running is not None:
        concurrent.futures.wait([collector._running], 10)


def test_epochs_go_on_while_a_collection_runs_and_what_they_need_stays() -> None:
    store = Barred(limited(collect_every_epochs=4, ride_bytes_max=0))
    driver, collector = collector_over(store)
    run(driver, 3)
    store.open.clear()
    run(driver, 12)
    assert driver.ledger.epoch == 15 and collector._running is not None
    assert not collector._running.done(), "one at a time"
    store.open.set()
    wait_for(collector)
    assert named_by_the_window(driver) <= set(store.files)
    run(driver, 1)
    wait_for(collector)
    assert files(store, paths.STATE) <= named_by_the_window(driver)
    collector.close()


def test_an_outage_of_a_collection_stops_nothing_and_another_error_is_raised_once(caplog) -> None:
    store = Barred(limited(collect_every_epochs=1))
    driver, collector = collector_over(store)
    run(driver, 1)
    wait_for(collector)
    store.error = StoreError("cannot list")
    run(driver, 1)
    wait_for(collector)
    store.error = ValueError("a bug")
    run(driver, 1)
    wait_for(collector)
    assert "old files could not be deleted: cannot list" in caplog.text
    store.error = None
    with pytest.raises(ValueError, match="a bug"):
        run(driver, 1)
    collector.close()


def test_an_object_store_is_not_listed_at_every_turn() -> None:
    time = Stopwatch()
    time.limits = limited(collect_every_epochs=1, ride_bytes_max=0).limits
    store = Barred(time)
    store.rewrite_interval_s = 1.1
    driver = driver_of(counting(VALUES), store, retain_epochs=1)
    run(driver, 10)
    assert len(store.list(paths.STAGED + "/counts")) > 9
    time.now_s += 61.0
    run(driver, 1)
    assert len(store.list(paths.STAGED + "/counts")) <= 2
