"""Checkpoint intervals: written, kept in fragments, lost and made again (M2 to M7)."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from itertools import count
from pathlib import Path

import msgspec
import pytest
from tests.unit.engine.support import Crash, Local, counting, die, driver_of, run
from tests.unit.systems import FILES, limited, with_files

from headrace import Computation, failpoints, state
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.keeping import require_interval
from headrace.engine.history.recovery import recover
from headrace.engine.history.savepoints import read_savepoint
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.engine.upkeep.fragments import make_fragment
from headrace.errors import (
    InvalidPipeline,
    NondeterministicCode,
    SinkError,
    SourceError,
    StoreError,
)
from headrace.limits import Limits
from headrace.log import paths
from headrace.log.entry import CHECKPOINT
from headrace.log.epochlog import EpochLog
from headrace.model.sink import Delivery
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.control import SAVEPOINT, ControlRequest
from headrace.plan.interval.cadence import Cadence
from headrace.plan.listener import Listener
from headrace.plan.rings.wanted import Wanted
from headrace.sinks import memory as memory_sink
from headrace.sinks.memory import Memory
from headrace.sources import memory
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.system import System

VALUES = [i * 7 % 10 for i in range(96)]


def quick(**limits) -> System:
    """This machine, where nothing rides, and a sync costs nothing."""
    system = with_files(fsync=lambda descriptor: None)
    system.limits = Limits(ride_bytes_max=0, **limits)
    return system


def store_of(tmp_path: Path, system: System | None = None) -> DiskStore:
    return DiskStore(tmp_path / "state", system or quick())


def started(tmp_path: Path, every: int | Cadence = 4, topology=None, **options) -> Driver:
    cadence = every if isinstance(every, Cadence) else Cadence(every)
    store = options.pop("store", None) or store_of(tmp_path)
    topology = topology or counting(VALUES)
    options = {"epoch_records": 6, **options}
    return driver_of(topology, store, checkpoint_every=cadence, **options)


def counts(driver: Driver) -> dict:
    return {key: fields["n"] for key, fields in Checkpoint(driver.store).scan("Count")}


def expected() -> dict:
    """What an interval of 1 gives."""
    driver = driver_of(counting(VALUES), MemoryStore(FILES))
    run(driver)
    return counts(driver)


def only_written(driver: Driver) -> list[str]:
    slots = [slot for of_name in driver.ledger.slots.values() for slot in of_name.values()]
    return sorted({e.segment for slot in slots for e in slot.entries if e.written})


def lose(driver: Driver, *, torn: bool = False) -> int:
    """What was not synced is lost, or torn, and so are the caches of workers."""
    lost = only_written(driver)
    for name in lost:
        path = Path(driver.store.local_path(name))
        if torn:
            path.write_bytes(path.read_bytes()[:100])
        else:
            path.unlink()
    driver.substrate.runtime.cache.__init__()
    return len(lost)


def test_between_checkpoints_nothing_of_the_state_is_synced(tmp_path):
    synced = []

    def spy(descriptor):
        synced.append(1)

    def syncs(every: int) -> int:
        system = with_files(fsync=spy)
        system.limits = FILES.limits
        driver = started(
            tmp_path / str(every), every, store=store_of(tmp_path / str(every), system)
        )
        run(driver, 2)
        synced.clear()
        run(driver, 8)
        return len(synced)

    each, eighth = syncs(1), syncs(8)
    # An epoch: 2 files of the state, each synced with its directory; the log, which is always.
    assert each - eighth >= 8 * 4 - 2 * 4, (each, eighth)


def test_every_n_epochs_a_checkpoint_replaces_the_deltas_by_one_fragment_per_slot(tmp_path):
    driver = started(tmp_path, 4)
    run(driver, 4)
    assert len(only_written(driver)) == 8 and driver.ledger.interval.durable(4) == 0
    run(driver, 1)
    assert driver.ledger.interval.durable(5) == 4
    for slot in driver.ledger.slots["Count"].values():
        assert [(e.last_epoch, e.written) for e in slot.entries] == [(5, True), (4, False)]
    run(driver)
    assert counts(driver) == expected()


def test_a_run_that_ends_leaves_everything_durable(tmp_path):
    driver = started(tmp_path, 200)
    run(driver)
    assert driver.ledger.interval.is_durable and not only_written(driver)
    kinds = [entry.kind for _, entry in EpochLog(driver.store).backwards()]
    assert kinds[0] == CHECKPOINT, "no commit was due, so an entry of its own says it"
    assert counts(driver) == expected()
    again = recover(EpochLog(driver.store), 1).ledger
    assert again.slots == driver.ledger.slots and again.interval == driver.ledger.interval


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("epochs", [1, 4, 5, 9])
def test_what_is_lost_is_made_again(tmp_path, epochs, torn):
    notices = []
    driver = started(tmp_path, 4, on_notice=lambda notice: notices.append(notice.text))
    run(driver, epochs)
    lost = lose(driver, torn=torn)
    assert lost
    run(driver)
    assert counts(driver) == expected()
    assert any(f"{lost} changes of state" in text for text in notices)


def test_a_new_driver_makes_again_what_a_power_loss_has_taken(tmp_path):
    driver = started(tmp_path, 5)
    run(driver, 8)
    lose(driver)
    second = started(tmp_path, 3)
    run(second)
    assert counts(second) == expected()


def test_a_driver_without_an_interval_keeps_what_another_has_only_written(tmp_path):
    run(started(tmp_path, 50), 7)
    second = started(tmp_path, 1)
    run(second, 2)
    assert second.ledger.interval.is_durable and not only_written(second)
    run(second)
    assert counts(second) == expected()


def test_a_repair_delivers_nothing_and_calls_no_hook_for_other_slots(tmp_path):
    class Once(Memory):
        def deliver(self, delivery: Delivery) -> None:
            epochs.append(delivery.epoch)
            super().deliver(delivery)

    epochs: list[int] = []
    driver = started(tmp_path, 10, counting(VALUES, Once()))
    run(driver, 6)
    gone = [name for name in only_written(driver) if "%2F1-" in name]
    for name in gone:
        Path(driver.store.local_path(name)).unlink()
    driver.substrate.runtime.cache.__init__()
    driver.substrate.tasks.clear()
    run(driver, 1)
    repairs = [task for task in driver.substrate.tasks if task.repairs is not None]
    assert [task.plan.epoch for task in repairs] == [1, 2, 3, 4, 5, 6]
    slots = {label for task in repairs for label in task.repairs if label.startswith("Count")}
    assert slots == {"Count/1"}
    run(driver)
    assert epochs == sorted(set(epochs)) and counts(driver) == expected()


class Dice(Computation):
    """Adds up numbers that nobody logs."""

    total: int = state(0)

    def process_record(self, record, ctx):
        self.total += next(unlogged)
        ctx.produce({"key": ctx.key, "total": self.total})


unlogged = count()


def throwing():
    pipeline = PipelineBuilder("dice")
    pipeline.read("values", memory(VALUES, timestamps=range(len(VALUES))))
    pipeline.compute(Dice, inputs={"values": lambda value: f"key {value}"}, outputs="totals")
    pipeline.stream("totals").write(memory_sink())
    return pipeline.freeze()


def test_unlogged_dice_stop_the_run_with_two_ways_out(tmp_path):
    driver = started(tmp_path, 10, throwing())
    run(driver, 6)
    before = driver.ledger.slots
    lose(driver)
    with pytest.raises(NondeterministicCode) as stop:
        run(driver)
    said = str(stop.value)
    assert "computation 'Dice': epoch 1" in said and "--accept-repairs" in said
    assert "headrace restore" in said
    assert recover(EpochLog(driver.store), 1).ledger.slots == before, "the log is as it was"


def test_another_result_is_accepted_if_that_is_asked_for(tmp_path):
    driver = started(tmp_path, 10, throwing())
    run(driver, 6)
    lose(driver)
    notices = []
    second = started(
        tmp_path, 10, throwing(), accept_repairs=True, on_notice=lambda n: notices.append(n.text)
    )
    run(second)
    assert any("that was accepted" in text for text in notices)
    assert second.ledger.interval.is_durable
    again = recover(EpochLog(second.store), 1).ledger
    assert again.slots == second.ledger.slots
    assert len(list(Checkpoint(second.store).scan("Dice"))) == 10


def test_another_result_is_never_accepted_under_a_commit_that_was_computed(tmp_path):
    """State is lost after the job of epoch 5, and a fragment misses it before the commit."""
    notices, adopted = [], []
    driver = started(
        tmp_path, 4, throwing(), accept_repairs=True, on_notice=lambda n: notices.append(n.text)
    )
    keeping, begin = driver._keeping, driver._keeping.keeper._maker.begin
    adopt = keeping.adopt

    def away(jobs):
        found = [Future() for _ in jobs]
        for each in found:
            each.set_exception(StoreError("away"))
        return found

    def watched(plan, commit, adoptions):
        before = driver.ledger.segments()
        if commit.epoch == 5:
            keeping.keeper._maker.begin = begin
            lose(driver)
        made = adopt(plan, commit, adoptions)
        assert driver.ledger.segments() == before
        adopted.append(commit.epoch)
        return made

    keeping.adopt, keeping.keeper._maker.begin = watched, away
    run(driver, 5)
    assert adopted == [1, 2, 3, 4, 5]
    assert any("that was accepted" in text for text in notices)
    run(driver)
    assert driver.ledger.interval.is_durable and not only_written(driver)


def test_input_that_was_released_is_kept_until_the_checkpoint(tmp_path):
    source = memory(VALUES, timestamps=range(len(VALUES)))
    released = []
    source.release = lambda split, position: released.append(position)
    driver = started(tmp_path, 5, counting(source), retain_epochs=1)
    run(driver, 5)
    assert not released, "the first checkpoint is not complete"
    run(driver, 2)
    assert released == [30], "epochs 1 to 5 read 30 records"
    run(driver, 3)
    assert released == [30]


def test_changed_input_is_named_where_a_repair_reads_it_again(tmp_path):
    driver = started(tmp_path, 10)
    run(driver, 4)
    lose(driver)
    source = driver.graph.injectors["values"].source
    reading = source.read

    def other(split, given):
        if given.start == 6:
            raise SourceError("this file has changed")
        return reading(split, given)

    source.read = other
    with pytest.raises(SourceError, match="epoch 2 is run again.*this file has changed"):
        run(driver)


def test_a_hook_asks_for_a_checkpoint(tmp_path):
    class Asks(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n += 1
            if record.value == 11:
                ctx.checkpoint()

    pipeline = PipelineBuilder("asks")
    pipeline.read("values", memory(list(range(90)), timestamps=range(90)))
    pipeline.compute(Asks, inputs={"values": lambda value: value % 5}, outputs="none")
    driver = started(tmp_path, 200, pipeline.freeze())
    run(driver, 2)
    assert driver.ledger.interval.asked == 2
    run(driver, 1)
    assert driver.ledger.interval.durable(3) == 2


def test_seconds_decide_where_the_interval_is_a_time(tmp_path):
    system = quick()
    now = [100.0]
    system.uptime_s = lambda: now[0]
    driver = started(tmp_path, Cadence(None, 10.0), store=store_of(tmp_path, system))
    run(driver, 5)
    assert driver.ledger.interval.taken == 0
    now[0] += 11.0
    run(driver, 2)
    assert driver.ledger.interval.durable(7) == 6 and driver.ledger.interval.taken == 1


def test_a_listener_hears_of_every_fragment(tmp_path):
    heard = []

    class Hears(Listener):
        def on_checkpoint(self, progress):
            heard.append(progress)

    driver = started(tmp_path, 4, listeners=(Hears(),))
    run(driver, 5)
    assert [(p.computation, p.slot, p.epoch) for p in heard] == [("Count", 0, 4), ("Count", 1, 4)]
    names = {entry.segment for s in driver.ledger.slots["Count"].values() for entry in s.entries}
    for each in heard:
        assert each.queued <= each.started <= each.durable <= each.adopted
        assert any(each.hash in name for name in names) and each.bytes > 0
        assert each.pipeline == "counting"


class Slots(Listener):
    def __init__(self):
        self.heard = []

    def on_checkpoint(self, progress):
        self.heard.append(progress)


class Fragments(Slots):
    only_fragments = True


@pytest.mark.parametrize("rides", [0, 32_000])
def test_a_listener_hears_of_every_slot_that_a_commit_has_changed(rides):
    slots, fragments = Slots(), Fragments()
    store = MemoryStore(limited(ride_bytes_max=rides))
    began = store.system.wall_s()
    driver = driver_of(counting(VALUES), store, listeners=(slots, fragments))
    run(driver, 3)
    commits = [commit for _, commit in driver.history.commits]
    changed = {
        (commit.epoch, slot): delta
        for commit in commits
        for slot, delta in commit.deltas["Count"].items()
        if delta.segment is not None
    }
    assert [(p.epoch, p.slot) for p in slots.heard] == list(changed)
    last = began
    for each in slots.heard:
        delta = changed[each.epoch, each.slot]
        assert each.hash in delta.segment and each.bytes == delta.bytes > 0
        assert began <= each.queued <= each.started <= each.durable == each.adopted
        assert each.started >= last or each.epoch == 1
        last = each.durable if each.slot else last
    assert fragments.heard == []


def test_with_an_interval_a_slot_is_told_once_it_is_durable(tmp_path):
    slots = Slots()
    driver = started(tmp_path, 4, listeners=(slots,))
    run(driver, 5)
    assert [(p.slot, p.epoch) for p in slots.heard] == [(0, 4), (1, 4)], "no change that may go"
    riding = Slots()
    system = limited(ride_bytes_max=32_000)
    driver = started(
        tmp_path / "b", 4, store=DiskStore(tmp_path / "b", system), listeners=(riding,)
    )
    run(driver, 3)
    assert {p.epoch for p in riding.heard} == {1, 2, 3}, "what rides is durable with its commit"


def test_a_savepoint_names_only_what_is_durable(tmp_path):
    driver = started(tmp_path, 100)
    run(driver, 6)
    assert only_written(driver)
    asked = ControlRequest("", "nonce", "command", SAVEPOINT, {"name": "before"})
    driver.control.own(asked)
    savepoint = driver.ledger.control.savepoints["before"]
    assert savepoint.epoch == 6
    saved = read_savepoint(driver.store, savepoint)
    entries = [e for slot in saved.slots["Count"].values() for e in slot.entries]
    assert entries and not any(entry.written for entry in entries)
    assert saved.interval.is_durable


def test_sinks_wait_for_durable_state_if_asked(tmp_path):
    sink = Memory()
    driver = started(tmp_path, 4, counting(VALUES, sink), deliver="durable")
    run(driver, 4)
    assert sink.high_water() == 0
    run(driver, 1)
    assert sink.high_water() == 4
    run(driver)
    assert sink.high_water() == driver.ledger.epoch


def test_rows_that_waited_are_kept_until_their_sink_has_them(tmp_path):
    sink = Memory()
    driver = started(tmp_path, 4, counting(VALUES, sink), deliver="durable", retain_epochs=1)
    run(driver, 4)
    deliver = sink.deliver

    def refusing(delivery):
        raise ConnectionError("away")

    sink.deliver = refusing
    with pytest.raises(SinkError):
        run(driver, 1)
    sink.deliver = deliver
    second = started(tmp_path, 4, counting(VALUES, sink), deliver="durable", retain_epochs=1)
    assert sink.high_water() == 5
    run(second)
    assert sorted(row["n"] for row in sink.rows) == sorted(row["n"] for row in all_rows())


def all_rows() -> list:
    sink = Memory()
    run(driver_of(counting(VALUES, sink), MemoryStore()))
    return sink.rows


def test_sinks_that_wait_get_everything_when_the_pipeline_is_quiet(tmp_path):
    sink = Memory()
    source = memory(VALUES, timestamps=range(len(VALUES)))
    source.bounded = False
    driver = started(tmp_path, 200, counting(source, sink), deliver="durable", until=None)
    epochs = run(driver)
    assert epochs and sink.high_water() == epochs == driver.ledger.epoch
    assert driver.ledger.interval.is_durable


def test_the_next_driver_makes_state_durable_before_sinks_get_the_rest(tmp_path):
    sink = Memory()
    driver = started(tmp_path, 4, counting(VALUES, sink), deliver="durable")
    run(driver, 7)
    assert sink.high_water() == 4
    lose(driver)
    second = started(tmp_path, 4, counting(VALUES, sink), deliver="durable")
    assert sink.high_water() == 7 and second.ledger.interval.is_durable
    run(second)
    assert counts(second) == expected()


class AtOnce(Executor):
    """Does what it is given in the calling thread, and tells what it was."""

    def __init__(self, tell):
        self.tell = tell

    def submit(self, what, /, *args, **given):
        self.tell(what)
        future: Future = Future()
        future.set_result(what(*args, **given))
        return future


@pytest.mark.parametrize(("deliver", "begun_after"), [("committed", [8, 10]), ("durable", [8, 8])])
def test_fragments_are_spread_over_epochs_unless_sinks_wait_for_them(
    tmp_path, deliver, begun_after
):
    def tell(what):
        if what is make_fragment:
            after.append(driver.ledger.epoch)

    system = quick()
    system.executor = lambda name, threads=1: AtOnce(tell)
    options = {"background": True, "deliver": deliver}
    driver = started(tmp_path, 8, store=store_of(tmp_path, system), **options)
    after: list[int] = []
    run(driver, 13)
    assert after == begun_after and driver.ledger.interval.durable(13) == 8
    run(driver, 3)
    assert after[2:3] == [16]
    driver._keeping.complete()
    assert set(after[2:]) == {16}, "somebody waits for it"
    run(driver)
    assert counts(driver) == expected()


def test_rings_wait_for_a_checkpoint_that_is_under_way(tmp_path):
    driver = started(tmp_path, 3)
    keeper = driver._keeping.keeper
    run(driver, 3)
    assert keeper.holds_rings
    driver.ledger.wanted["Count"] = Wanted(slots=3)
    plan = driver.ledger.open_plan
    assert plan is not None and not plan.moves
    run(driver, 1)
    assert len(driver.ledger.slots["Count"]) == 2 and driver.ledger.interval.durable(4) == 3
    run(driver, 2)
    assert len(driver.ledger.slots["Count"]) == 3
    lose(driver)
    run(driver)
    assert counts(driver) == expected()


@pytest.mark.parametrize(
    "point", ["after-fragment-write", "before-checkpoint-write", "after-checkpoint-write"]
)
@pytest.mark.parametrize("lost", [False, True])
def test_a_driver_that_dies_in_a_checkpoint_loses_nothing(tmp_path, point, lost):
    driver = started(tmp_path, 200)
    run(driver, 9)
    failpoints.arm(point, die)
    with pytest.raises(Crash):
        driver._keeping.complete()
    failpoints.disarm()
    second = started(tmp_path, 200)
    if lost:
        lose(second)
    run(second)
    assert counts(second) == expected() and second.ledger.interval.is_durable


def test_a_driver_that_dies_in_a_repair_leaves_it_to_the_next(tmp_path):
    driver = started(tmp_path, 200)
    run(driver, 9)
    lose(driver)
    times = count()
    failpoints.arm("before-repair", lambda: die() if next(times) == 4 else None)
    with pytest.raises(Crash):
        run(driver)
    failpoints.disarm()
    second = started(tmp_path, 200)
    run(second)
    assert counts(second) == expected()


def test_a_disk_that_is_full_delays_the_checkpoint_and_the_interval_grows(tmp_path):
    driver = started(tmp_path, 3)
    run(driver, 2)
    full = [True]
    write = driver.store.write

    def refusing(name, data):
        if full[0] and "~" in name:
            raise StoreError("the disk is full")
        write(name, data)

    driver.store.write = refusing
    run(driver, 5)
    assert driver.ledger.interval.taken == 0 and driver.ledger.epoch == 7
    full[0] = False
    run(driver, 6)
    said = driver.ledger.interval
    assert said.taken >= 2 and said.late >= 1
    run(driver, 6)
    assert driver.ledger.interval.span == 3, "it is back"
    run(driver)
    assert counts(driver) == expected()


def test_files_of_a_checkpoint_are_not_collected_before_it_is_complete(tmp_path):
    system = quick(collect_every_epochs=1, snapshot_every_epochs=2)
    store = store_of(tmp_path, system)
    driver = started(tmp_path, 4, store=store, retain_epochs=1)
    run(driver, 13)
    there = {f"{paths.STATE}/Count/{name}" for name in store.list(f"{paths.STATE}/Count")}
    assert driver.ledger.segments() <= there
    assert len(there) <= 24, "deltas go when a checkpoint has them"
    lose(driver)
    run(driver)
    assert counts(driver) == expected()


def test_intervals_are_refused_up_front(tmp_path):
    topology = counting(VALUES)
    require_interval(topology, store_of(tmp_path), Cadence(5))
    topology.graph.injectors["values"].source.rereads = False
    with pytest.raises(InvalidPipeline, match="stream 'values'"):
        require_interval(topology, store_of(tmp_path), Cadence(5))


def test_reports_of_a_repair_must_be_complete(tmp_path):
    driver = started(tmp_path, 200)
    run(driver, 5)
    lose(driver)
    seen = count()
    substrate: Local = driver.substrate

    def losing(task, reports):
        if task.repairs is not None and next(seen) == 0:
            return reports[:-1]
        return reports

    substrate.disturb = losing
    run(driver)
    assert counts(driver) == expected()


def test_what_a_commit_says_of_intervals_survives_the_log(tmp_path):
    driver = started(tmp_path, 4)
    run(driver, 6)
    again = recover(EpochLog(driver.store), 1)
    assert again.ledger.interval == driver.ledger.interval
    assert msgspec.to_builtins(again.ledger.slots) == msgspec.to_builtins(driver.ledger.slots)
    assert again.commits[0][1].epoch <= 4
