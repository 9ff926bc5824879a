"""Small output rides in commits: one durable write, and nothing is lost under it (PROTOCOL M1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.unit.engine.support import Crash, counting, die, driver_of, run
from tests.unit.systems import limited

from headrace import Computation, failpoints, state
from headrace.engine.driver.driver import Driver
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.engine.replay.drop import drop_state
from headrace.engine.replay.replay import replay_epoch
from headrace.engine.upkeep.collection import collect, needed_by
from headrace.engine.upkeep.compactor import Compactor
from headrace.errors import CorruptCheckpoint
from headrace.limits import LIMITS
from headrace.log import paths
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.units import ride_bytes
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.system import AnyPath, Filesystem, System

MANY = [i * 7 % 10 for i in range(300)]


class Diary(MemoryStore):
    """Remembers what was written, put and read."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(limited(**limits))
        self.written: list[str] = []
        self.got: list[str] = []

    def write(self, name: str, data: bytes) -> None:
        self.written.append(name)
        super().write(name, data)

    def read(self, name: str) -> bytes:
        self.got.append(name)
        return super().read(name)


def content(store: MemoryStore) -> set[str]:
    """Files of output: deltas, merges, feedback, rows."""
    places = (f"{paths.STATE}/", f"{paths.STAGED}/", f"{paths.OUTBOX}/")
    return {name for name in store.files if name.startswith(places)}


def counts(store: MemoryStore) -> dict[Any, Any]:
    return dict(Checkpoint(store).scan("Count"))


def expected(values: list[int]) -> dict[Any, Any]:
    """What `Count` keeps: it forgets a key at every fifth value."""
    total = {v: values.count(v) % 5 for v in values}
    return {f"key {v}": {"n": n} for v, n in total.items() if n}


def test_an_epoch_of_small_deltas_is_one_durable_write() -> None:
    store = Diary(merge_segments_min=1000)
    driver = driver_of(counting(MANY), store)
    run(driver, 3)
    for _ in range(5):
        store.written.clear()
        assert run(driver, 1) == 1
        commit = paths.log_entry(driver.log.position)
        assert [n for n in store.written if not n.startswith("sinks/")] == [commit]
    assert content(store) == set()


class Recording(Filesystem):
    """Notes which files are created, and how often something is synced."""

    def __init__(self) -> None:
        super().__init__()
        self.created: list[str] = []
        self.syncs = 0

    def create(self, path: AnyPath) -> int:
        self.created.append(str(path))
        return super().create(path)

    def fsync(self, descriptor: int) -> None:
        self.syncs += 1
        super().fsync(descriptor)


def test_on_a_disk_a_small_epoch_creates_one_file_and_syncs_it_and_its_name(
    tmp_path: Path,
) -> None:
    files = Recording()
    limits = msgspec.structs.replace(LIMITS, merge_segments_min=1000)
    driver = driver_of(counting(MANY), DiskStore(tmp_path, System(files, limits)))
    run(driver, 3)
    files.created.clear()
    files.syncs = 0
    assert run(driver, 5) == 5
    assert [Path(name).parent for name in files.created] == [tmp_path / "log" / "000000"] * 5
    assert files.syncs == 2 * 5


def test_a_warm_slot_reads_nothing_of_what_it_has_made_itself() -> None:
    store = Diary(merge_segments_min=1000)
    driver = driver_of(counting(MANY), store)
    run(driver, 3)
    store.got.clear()
    run(driver, 5)
    read = [name for name in store.got if name.startswith(("log/", "state/"))]
    ahead = {paths.log_entry(p) for p in range(driver.log.position + 1)}
    assert not [name for name in read if name in ahead]


@pytest.mark.parametrize("most", [0, 2600, 2800, 32 << 10])
def test_state_and_rows_are_the_same_whatever_rides(most: int) -> None:
    sink = memory_sink()
    store = Diary(ride_bytes_max=most, merge_segments_min=3)
    driver = driver_of(counting(MANY, sink), store)
    run(driver)
    assert counts(store) == expected(MANY)
    plain = memory_sink()
    run(driver_of(counting(MANY, plain), MemoryStore(limited(ride_bytes_max=0))))
    assert sink.records == plain.records


def test_all_files_of_a_unit_share_one_allowance() -> None:
    driver = driver_of(counting(MANY), MemoryStore())
    run(driver, 2)
    plan = driver.ledger.open_plan
    assert plan is not None
    units = sum(map(len, plan.reads)) + 2
    order = driver.work_order(plan)
    assert ride_bytes(order, LIMITS) == LIMITS.ride_bytes_max
    few = msgspec.structs.replace(LIMITS, ride_total_max=100 * units)
    assert ride_bytes(order, few) == 100
    reports = driver.substrate.run(order)
    sizes = {len(r.riders[r.delta.segment]) for r in reports if r.delta and r.delta.segment}
    limits = limited(ride_bytes_max=max(sizes))
    alone = driver_of(counting(MANY), MemoryStore(limits))
    run(alone, 2)
    for report in alone.substrate.run(alone.work_order(alone.ledger.open_plan)):
        assert sum(map(len, report.riders.values())) <= limits.limits.ride_bytes_max
        if report.delta is not None and report.delta.segment is not None:
            assert report.delta.rides and not any(file.rides for file in report.staged)


def test_two_attempts_of_a_plan_decide_alike() -> None:
    driver = driver_of(counting(MANY), MemoryStore(limited(ride_bytes_max=2700)))
    run(driver, 2)
    order = driver.work_order(driver.ledger.open_plan)
    first, second = (
        {r.label: msgspec.msgpack.encode(r) for r in driver.substrate.run(order)} for _ in range(2)
    )
    assert first == second


# The log under segments


class Idle(Computation):
    """Keeps the last value of each key."""

    last: int = state(0)

    def process_record(self, record, ctx):
        self.last = record.value["n"]


def idle_pipeline(values: list[dict[str, Any]]) -> Any:
    pipeline = PipelineBuilder("idle")
    pipeline.read("values", memory(values, timestamps=range(len(values))))
    pipeline.compute(Idle, inputs={"values": lambda value: value["k"]}, outputs=())
    return pipeline.freeze()


ONCE_THEN_OTHERS = [{"k": "once", "n": 1}] + [{"k": f"other {i % 3}", "n": i} for i in range(60)]
SMALL = {"log_directory_entries": 2, "collect_every_epochs": 1, "snapshot_every_epochs": 1}


def idle_driver(store: MemoryStore) -> Driver:
    return driver_of(
        idle_pipeline(ONCE_THEN_OTHERS), store, epoch_records=1, slots=16, retain_epochs=1
    )


def positions(store: MemoryStore) -> list[int]:
    return sorted(int(n[-20:]) for n in store.files if n.startswith("log/") and n[-1].isdigit())


def test_the_log_is_not_trimmed_under_a_segment() -> None:
    store = MemoryStore(limited(**SMALL, ride_entries_max=1000))
    driver = idle_driver(store)
    run(driver, 50)
    at = driver.ledger.rides_from()
    assert at is not None and at < 6, "the slot of the first key has not changed since"
    assert positions(store)[0] <= at
    assert Checkpoint(store).get("Idle", "once") == {"last": 1}
    successor = idle_driver(store)
    run(successor)
    assert Checkpoint(store).get("Idle", "once") == {"last": 1}


def test_without_what_rides_the_log_would_have_been_trimmed(monkeypatch: Any) -> None:
    """The directed schedule of M1: [the log was trimmed under a segment]."""
    from headrace.plan.ledger import Ledger

    monkeypatch.setattr(Ledger, "rides_from", lambda self: None)
    store = MemoryStore(limited(**SMALL, ride_entries_max=1000))
    with pytest.raises(CorruptCheckpoint, match="missing from the checkpoint"):
        run(idle_driver(store), 50)
        Checkpoint(store).get("Idle", "once")


@pytest.mark.parametrize("result_rides", [True, False])
def test_an_idle_slot_does_not_hold_the_log_for_ever(result_rides: bool, monkeypatch: Any) -> None:
    """What rides too far back is merged: its result rides in a later commit, or is a file."""
    store = MemoryStore(limited(**SMALL, ride_entries_max=5))
    if not result_rides:
        merge = Compactor._merge
        monkeypatch.setattr(Compactor, "_merge", lambda *given: merge(*given[:-1], 0))
    driver = idle_driver(store)
    run(driver)
    first = driver.ledger.rides_from()
    assert first is None or first > driver.log.position - 12
    assert positions(store)[0] > driver.log.position - 14
    assert Checkpoint(store).get("Idle", "once") == {"last": 1}
    moved = [n for n in content(store) if paths.parse_content_name(n.rsplit("/", 1)[1])[0] > 5]
    assert bool(moved) is not result_rides
    run(idle_driver(store))
    assert Checkpoint(store).get("Idle", "once") == {"last": 1}


def test_epochs_of_the_window_keep_what_rides_for_them() -> None:
    store = MemoryStore(limited(**SMALL, ride_entries_max=3, merge_segments_min=2))
    topology = counting(MANY)
    driver = driver_of(topology, store, retain_epochs=6)
    run(driver, 40)
    collect(store, driver.log, needed_by(driver.history, driver._deliverer.acknowledged()))
    last = driver.ledger.epoch
    assert set(range(last - 4, last + 1)) <= set(Checkpoint(store).epochs)
    for epoch in range(last - 4, last + 1):
        assert replay_epoch(topology, store, epoch, prepared=True).equal


def test_what_a_replay_reads_is_pinned_in_the_log() -> None:
    store = MemoryStore(limited(**SMALL, ride_entries_max=2, merge_segments_min=2))
    topology = counting(MANY)
    driver = driver_of(topology, store, retain_epochs=3)
    run(driver, 20)
    epoch = driver.ledger.epoch

    class Meanwhile(Exception):
        pass

    def go_on() -> None:
        failpoints.disarm("before-segment-write")
        run(driver, 20)  # collects after every epoch
        raise Meanwhile

    failpoints.arm("before-segment-write", go_on)
    try:
        with pytest.raises(Meanwhile):
            replay_epoch(topology, store, epoch, prepared=True)
        assert driver.ledger.epoch == epoch + 20
    finally:
        failpoints.disarm()


# Rows


@pytest.mark.parametrize("rides", [True, False])
def test_a_new_driver_delivers_rows_that_ride(rides: bool) -> None:
    sink = memory_sink()
    store = Diary(ride_bytes_max=(32 << 10) * rides)
    failpoints.arm("after-commit-write", die)
    try:
        with pytest.raises(Crash):
            run(driver_of(counting(MANY[:9], sink), store))
        assert sink.records == []
        staged = {n for n in store.files if n.startswith(f"{paths.STAGED}/")}
        assert bool(staged) is not rides
    finally:
        failpoints.disarm()
    run(driver_of(counting(MANY[:9], sink), store))
    assert len(sink.records) == 9


def test_rows_are_delivered_from_memory_by_the_driver_that_commits_them() -> None:
    sink = memory_sink()
    store = Diary(merge_segments_min=1000)
    driver = driver_of(counting(MANY, sink), store)
    run(driver, 2)
    store.got.clear()
    before = len(sink.records)
    run(driver, 3)
    assert len(sink.records) > before
    assert not [n for n in store.got if n.startswith(("staged/", "state/"))]


def test_rows_that_ride_and_are_missing_are_not_lost_in_silence() -> None:
    sink = memory_sink()
    store = Diary()
    failpoints.arm("after-commit-write", die)
    try:
        with pytest.raises(Crash):
            run(driver_of(counting(MANY[:9], sink), store))
    finally:
        failpoints.disarm()
    commit = max(n for n in store.files if n.startswith("log/") and n[-1].isdigit())
    data = store.files[commit]

    class Forgetful(Diary):
        def map(self, name: str) -> pa.Buffer:
            if name == commit:
                raise FileNotFoundError(name)
            return super().map(name)

    other = Forgetful()
    other.files = store.files
    with pytest.raises(CorruptCheckpoint, match="is missing") as found:
        driver_of(counting(MANY[:9], sink), other)
    assert commit in str(found.value) and data == store.files[commit]


def test_a_report_that_was_damaged_on_its_way_runs_the_plan_again() -> None:
    store = Diary()
    driver = driver_of(counting(MANY), store)
    run(driver, 2)
    jobs = len(driver.substrate.tasks)

    def damage(task, reports):
        driver.substrate.disturb = None
        (first, *rest) = sorted(reports, key=lambda r: -len(r.riders))
        name = next(iter(first.riders))
        return [msgspec.structs.replace(first, riders={**first.riders, name: b"other"}), *rest]

    driver.substrate.disturb = damage
    assert run(driver, 1) == 1
    assert len(driver.substrate.tasks) == jobs + 2
    run(driver)
    assert counts(store) == expected(MANY)


# Other readers


def test_state_that_rides_can_be_dropped() -> None:
    store = Diary()
    driver = driver_of(counting(MANY[:30]), store)
    run(driver)
    driver.close()
    key = next(iter(counts(store)))
    assert drop_state(store, "Count", [key]).cells
    assert key not in counts(store) and len(counts(store)) == len(expected(MANY[:30])) - 1


def test_another_number_of_slots_opens_what_rides() -> None:
    store = Diary(merge_segments_min=1000)
    run(driver_of(counting(MANY), store, slots=2), 30)
    run(driver_of(counting(MANY), store, slots=5), 30)
    run(driver_of(counting(MANY), store, slots=1))
    assert counts(store) == expected(MANY)


# Merges


def test_small_results_of_merges_ride_too_and_nothing_else_is_written() -> None:
    store = Diary(merge_segments_min=3)
    driver = driver_of(counting(MANY), store)
    run(driver)
    assert driver._compactor.adopted > 10
    assert content(store) == set() and not [n for n in store.written if n.startswith("merged/")]
    assert counts(store) == expected(MANY)
    slots = driver.ledger.slots["Count"].values()
    assert all(len(slot.entries) < 6 and entry.at for slot in slots for entry in slot.entries)


def test_a_result_that_is_too_large_becomes_a_file_and_others_ride() -> None:
    store = Diary(merge_segments_min=3, ride_bytes_max=3400)
    driver = driver_of(counting(list(range(200)) * 2), store, epoch_records=4)
    run(driver)
    entries = [e for slot in driver.ledger.slots["Count"].values() for e in slot.entries]
    assert any(e.at for e in entries) and any(not e.at for e in entries)
    assert all(e.bytes <= 3400 for e in entries if e.at)
    assert {e.segment for e in entries if not e.at} <= content(store)
    assert len(counts(store)) == 200


def test_pieces_of_one_result_ride_as_far_as_there_is_room() -> None:
    store = Diary(merge_segments_min=3, merge_piece_bytes=3000, merge_sample_bytes=50)
    driver = driver_of(counting(MANY), store)
    run(driver)
    assert driver._compactor.adopted and content(store) == set()
    assert counts(store) == expected(MANY)
