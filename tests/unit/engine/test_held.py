"""Checkpoint intervals where deltas lie on executors' own disks: written, lost, made again (M2)."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from tests.unit.engine.executors import Executors, on_executors
from tests.unit.engine.support import Crash, counting, die, driver_of, run
from tests.unit.engine.test_keeping import VALUES, counts, expected, only_written, quick

from headrace import Computation, failpoints, state
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.keeping import require_interval
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.engine.upkeep import held
from headrace.errors import EpochFailed, InvalidPipeline, NondeterministicCode, StoreError
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.holding import HoldingStore
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.interval.cadence import Cadence
from headrace.plan.rings.wanted import Wanted
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

_rooms = count()


def started(tmp_path: Path, every: int = 4, topology=None, **options) -> Driver:
    where = tmp_path / f"room-{next(_rooms)}"
    store = DiskStore(tmp_path / "state", options.pop("system", None) or quick())
    options = {"epoch_records": 6, "checkpoint_every": Cadence(every), **options}
    return on_executors(topology or counting(VALUES), store, where, **options)


def substrate_of(driver: Driver) -> Executors:
    return driver.substrate


def in_store(driver: Driver) -> list[str]:
    names = driver.store.list(f"{paths.STATE}/Count")
    return [f"{paths.STATE}/Count/{name}" for name in names]


def test_deltas_lie_on_disks_of_executors_until_a_checkpoint_has_them(tmp_path):
    driver = started(tmp_path, 4)
    run(driver, 3)
    assert len(only_written(driver)) == 6 and in_store(driver) == []
    on_disks = [name for n in range(2) for name in substrate_of(driver).names_on(n)]
    assert sorted(on_disks) == only_written(driver)
    run(driver, 2)
    assert driver.ledger.interval.durable(5) == 4 and len(in_store(driver)) == 2
    run(driver, 1)
    on_disks = [name for n in range(2) for name in substrate_of(driver).names_on(n)]
    assert sorted(on_disks) == only_written(driver), "the others were released"
    run(driver)
    assert counts(driver) == expected() and driver.ledger.interval.is_durable


@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1)])
def test_executors_that_die_lose_their_slots_which_are_made_again(tmp_path, lost):
    driver = started(tmp_path, 200)
    run(driver, 7)
    substrate_of(driver).lose(*lost)
    run(driver, 1)
    assert driver._keeping.repairer.repaired >= 7
    assert set(in_store(driver)) <= set(only_written(driver)), "a repair writes to the store"
    run(driver)
    assert counts(driver) == expected()


def test_the_next_driver_on_new_executors_makes_all_again(tmp_path):
    run(started(tmp_path, 200), 7)
    driver = started(tmp_path, 4)
    run(driver)
    assert driver._keeping.repairer.repaired >= 14
    assert counts(driver) == expected() and driver.ledger.interval.is_durable


def test_the_next_driver_without_executors_of_its_own_makes_all_again(tmp_path):
    run(started(tmp_path, 200), 7)
    driver = driver_of(counting(VALUES), DiskStore(tmp_path / "state", quick()), epoch_records=6)
    run(driver)
    assert counts(driver) == expected() and driver.ledger.interval.is_durable


def test_what_a_disk_refuses_is_durable_at_once(tmp_path):
    driver = started(tmp_path, 200)
    substrate_of(driver).full()
    run(driver, 5)
    assert only_written(driver) == [] and len(in_store(driver)) == 10
    assert driver.ledger.interval.is_durable
    run(driver)
    assert counts(driver) == expected()


def test_with_an_interval_of_one_nothing_lies_on_a_disk(tmp_path):
    driver = started(tmp_path, 1)
    run(driver, 5)
    assert [substrate_of(driver).names_on(n) for n in range(2)] == [[], []]
    assert substrate_of(driver).made == substrate_of(driver).looks == 0


def test_rings_change_when_all_is_durable_and_only_then(tmp_path):
    driver = started(tmp_path, 5)
    run(driver, 2)
    driver.ledger.wanted["Count"] = Wanted(slots=3)
    for _ in range(12):
        run(driver, 1)
        task = substrate_of(driver).tasks[-1]
        if task.plan.moves:
            entries = [e for s in task.bases["Count"].values() for e in s.entries]
            assert not any(entry.written for entry in entries)
    assert len(driver.ledger.slots["Count"]) == 3, "the change has come"
    assert driver.ledger.epoch - driver.ledger.interval.durable(driver.ledger.epoch) < 6
    assert driver.ledger.open_plan is None or driver.ledger.open_plan.written, "and it goes on"
    run(driver)
    assert counts(driver) == expected() and driver._keeping.repairer.repaired == 0


def test_an_idle_pipeline_makes_a_checkpoint_for_the_sake_of_a_ring(tmp_path):
    source = memory(VALUES[:12], timestamps=range(12))
    source.bounded = False
    driver = started(tmp_path, 200, counting(source), until=None)
    run(driver, 2)
    assert only_written(driver)
    driver.ledger.wanted["Count"] = Wanted(slots=3)
    for _ in range(6):
        driver.step()
    assert len(driver.ledger.slots["Count"]) == 3


def test_another_number_of_tasks_waits_for_a_checkpoint(tmp_path):
    driver = started(tmp_path, 5)
    run(driver, 2)
    driver.ledger.tasks = 3
    run(driver)
    seen = [task.plan.tasks for task in substrate_of(driver).tasks]
    assert seen[:3] == [2, 2, 2] and seen[-1] == 3
    for before, after in zip(
        substrate_of(driver).tasks, substrate_of(driver).tasks[1:], strict=False
    ):
        if before.plan.tasks != after.plan.tasks:
            entries = [e for s in after.bases["Count"].values() for e in s.entries]
            assert not any(entry.written for entry in entries)
    assert counts(driver) == expected() and driver._keeping.repairer.repaired == 0


def test_while_slots_may_run_anywhere_all_is_durable_at_once(tmp_path):
    driver = started(tmp_path, 200)
    run(driver, 2)
    substrate_of(driver).moves = True
    run(driver, 3)
    assert driver.ledger.interval.is_durable
    plans = [task.plan.written for task in substrate_of(driver).tasks]
    assert plans[:2] == [True, True] and plans[-1] is False
    substrate_of(driver).moves = False
    run(driver, 2)
    assert substrate_of(driver).tasks[-1].plan.written and only_written(driver)


@pytest.mark.parametrize(("swapped", "repaired"), [(1, False), (4, True)])
def test_a_fragment_that_misses_a_delta_is_tried_again_and_then_made_whole(
    tmp_path, swapped, repaired
):
    driver = started(tmp_path, 4)
    run(driver, 3)
    substrate_of(driver).swapped = swapped
    run(driver)
    assert (driver._keeping.repairer.repaired > 0) is repaired
    assert counts(driver) == expected() and driver.ledger.interval.is_durable


def test_a_fragment_that_cannot_be_made_now_is_made_later(tmp_path):
    driver = started(tmp_path, 4)
    substrate = substrate_of(driver)
    make = substrate.make
    fails = [3]

    def failing(jobs):
        fails[0] -= 1
        return make(jobs) if fails[0] < 0 else [StoreError("away") for _ in jobs]

    substrate.make = failing
    run(driver)
    assert fails[0] < 0 and counts(driver) == expected()


def test_a_fragment_that_fails_by_a_defect_stops_the_run(tmp_path, monkeypatch):
    def failing(store, job):
        raise KeyError("sum")

    monkeypatch.setattr(held, "make_fragment", failing)
    driver = started(tmp_path, 4)
    with pytest.raises(EpochFailed, match=r"the fragment of Count/0 could not .*KeyError: 'sum'"):
        run(driver, 8)
    assert driver.ledger.epoch == 4, "at the first try"
    monkeypatch.undo()
    again = started(tmp_path, 4)
    run(again)
    assert counts(again) == expected()


def test_a_delta_that_is_missed_within_a_repair_is_made_again_too(tmp_path):
    driver = started(tmp_path, 200, two_levels())
    run(driver, 7)
    substrate_of(driver).blind = True
    substrate_of(driver).lose(0, 1)
    run(driver)
    assert state_of(driver) == calm(two_levels())


def test_the_second_level_is_asked_for_its_losses_at_once(tmp_path):
    driver = started(tmp_path, 200, two_levels())
    run(driver, 7)
    substrate_of(driver).lose(0, 1)
    before = len(substrate_of(driver).tasks)
    run(driver, 1)
    repairs = [t.plan.epoch for t in substrate_of(driver).tasks[before:] if t.repairs is not None]
    assert repairs == list(range(1, 8)), "one repair, of both levels"
    run(driver)
    assert state_of(driver) == calm(two_levels())


@pytest.mark.parametrize(
    "where", ["after-fragment-write", "before-checkpoint-write", "after-checkpoint-write",
              "before-commit-write", "after-commit-write", "before-repair", "before-segment-write",
              "after-segment-write"],
)  # fmt: skip
@pytest.mark.parametrize("dies", [True, False])
def test_a_driver_dies_and_another_one_goes_on(tmp_path, where, dies):
    driver = started(tmp_path, 3)
    run(driver, 4)
    if dies:
        substrate_of(driver).lose(0)
    failpoints.arm(where, die)
    try:
        run(driver)
    except Crash:
        pass
    finally:
        failpoints.disarm()
    driver = started(tmp_path, 3)
    run(driver)
    assert counts(driver) == expected() and driver.ledger.interval.is_durable


def test_an_older_plan_releases_nothing_that_a_newer_one_needs(tmp_path):
    driver = started(tmp_path, 200)
    run(driver, 5)
    store = substrate_of(driver).homes[0].store
    before = substrate_of(driver).names_on(0)
    assert before
    store.release(1)
    assert substrate_of(driver).names_on(0) == before


def test_unlogged_dice_stop_a_repair_here_too(tmp_path):
    made = count()

    class Dice(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n = next(made)

    def topology():
        p = PipelineBuilder("dice")
        p.read("values", memory(VALUES, timestamps=range(len(VALUES))))
        p.compute(Dice, inputs={"values": lambda value: f"key {value}"}, outputs="out")
        p.stream("out").write(memory_sink())
        return p.freeze()

    driver = started(tmp_path, 200, topology())
    run(driver, 5)
    substrate_of(driver).lose(0)
    with pytest.raises(NondeterministicCode, match="Dice"):
        run(driver)
    driver = started(tmp_path, 200, topology(), accept_repairs=True)
    run(driver)
    assert driver.ledger.interval.is_durable


class Far(MemoryStore):
    """A store in memory that looks like one on a server."""

    is_shared = True


def test_a_reader_says_what_it_cannot_reach(tmp_path):
    store = Far(quick())
    options = {"epoch_records": 6, "checkpoint_every": Cadence(200)}
    driver = on_executors(counting(VALUES), store, tmp_path, **options)
    run(driver, 5)
    with pytest.raises(StoreError, match="on executors' own disks"):
        dict(Checkpoint(store).scan("Count"))


def test_a_reader_sees_the_last_durable_epoch_and_says_which_it_is(tmp_path, caplog):
    store = Far(quick())
    options = {"epoch_records": 6, "checkpoint_every": Cadence(4)}
    driver = on_executors(counting(VALUES), store, tmp_path, **options)
    run(driver, 7)
    assert driver.ledger.interval.durable(7) == 4
    calm = driver_of(counting(VALUES), MemoryStore(quick()), epoch_records=6)
    run(calm, 4)
    found = Checkpoint(store)
    assert found.epoch == 7
    assert dict(found.scan("Count")) == dict(Checkpoint(calm.store).scan("Count"))
    assert "this is the state of epoch 4, and not of epoch 7" in caplog.text
    assert found.epoch == 4 and found.watermarks == calm.ledger.ins
    key = next(iter(dict(found.scan("Count"))))
    assert Checkpoint(store).lookup("Count", key).epoch == 4
    table = Checkpoint(store).sql("select count(*) as n from Count")
    assert table["n"].to_pylist() == [len(dict(found.scan("Count")))]
    place = MemoryStore(quick())
    assert Checkpoint(store).backup(place).epoch == 4
    assert Checkpoint(store).verify().is_whole
    run(driver)
    assert found.refresh().epoch == driver.ledger.epoch
    assert counts(driver) == expected()


def test_the_last_durable_epoch_is_backed_up_also_when_it_has_left_the_window(tmp_path):
    store = Far(quick())
    options = {"epoch_records": 6, "checkpoint_every": Cadence(200), "retain_epochs": 2}
    driver = on_executors(counting(VALUES), store, tmp_path, **options)
    run(driver, 2)
    driver._keeping.complete()
    run(driver, 6)
    assert driver.ledger.interval.durable(8) == 2
    store.make_directory(f"{paths.SOURCES}/values")
    store.write(f"{paths.SOURCES}/values/batch", b"what the source needs to read it again")
    found = Checkpoint(store).backup(MemoryStore(quick()))
    assert found.epoch == 2 and found.files > 2
    driver._keeping.complete()
    assert Checkpoint(store).backup(MemoryStore(quick())).epoch == 8


def test_an_interval_on_urls_is_refused_where_slots_have_no_disk(tmp_path):
    class Connect:
        held = None

    topology = counting(VALUES)
    require_interval(topology, Far(), Cadence(5))  # too early to know
    with pytest.raises(InvalidPipeline, match="Spark Connect"):
        require_interval(topology, Far(), Cadence(5), Connect())
    require_interval(topology, Far(), Cadence(1), Connect())


# The store itself ---------------------------------------------------------


def named(epoch: int, data: bytes) -> str:
    return f"{paths.STATE}/Count/{paths.content_name(epoch, 'Count/0', digest_of(data), '.arrow')}"


def test_a_held_delta_is_whole_or_not_there(tmp_path):
    far = DiskStore(tmp_path / "far", quick())
    far.make_directory(f"{paths.STATE}/Count")
    store = HoldingStore(far, DiskStore(tmp_path / "own", quick()), 100)
    name = named(1, b"some bytes")
    assert store.write_for_now(name, b"some bytes")
    assert store.map(name).to_pybytes() == b"some bytes" and not far.list(f"{paths.STATE}/Count")
    path = Path(store.disk.local_path(name))
    path.write_bytes(b"some")
    with pytest.raises(FileNotFoundError):
        store.map(name)
    far.write(name, b"some bytes")  # by a repair
    assert store.map(name).to_pybytes() == b"some bytes"


def test_a_disk_that_holds_enough_takes_no_more(tmp_path):
    far = DiskStore(tmp_path / "far", quick())
    far.make_directory(f"{paths.STATE}/Count")
    store = HoldingStore(far, DiskStore(tmp_path / "own", quick()), 100)
    first, second, third = (bytes([n]) * 60 for n in range(3))
    assert store.write_for_now(named(1, first), first)
    assert not store.write_for_now(named(2, second), second)
    assert far.read(named(2, second)) == second
    store.release(2)
    assert store.held_copy(named(1, first)) is None
    assert store.write_for_now(named(3, third), third)
    other = HoldingStore(far, DiskStore(tmp_path / "own", quick()), 100)
    assert other.map(named(3, third)).to_pybytes() == third, "all processes of an executor share it"


def test_all_processes_of_an_executor_together_hold_no_more_than_that(tmp_path):
    far = DiskStore(tmp_path / "far", quick())
    far.make_directory(f"{paths.STATE}/Count")
    workers = [HoldingStore(far, DiskStore(tmp_path / "own", quick()), 3200) for _ in range(4)]
    held = 0
    for number in range(80):
        data = bytes([number]) * 100
        held += workers[number % 4].write_for_now(named(1, data), data)
    assert 30 <= held <= 32 + 2 * len(workers), "each may not have seen what the others added last"


def test_a_checkpoint_that_begins_anew_at_the_same_place_is_released_too(tmp_path):
    far = DiskStore(tmp_path / "far", quick())
    store = HoldingStore(far, DiskStore(tmp_path / "own", quick()), 1000)
    store.release(1001)  # what was there before had so many epochs
    assert store.write_for_now(named(1, b"x"), b"x") and store.write_for_now(named(3, b"y"), b"y")
    store.release(3)
    assert store.held_copy(named(1, b"x")) is None
    assert store.held_copy(named(3, b"y")) is not None


def test_a_disk_that_fails_is_no_failure(tmp_path):
    far = DiskStore(tmp_path / "far", quick())
    far.make_directory(f"{paths.STATE}/Count")
    (tmp_path / "own").write_bytes(b"a file is in the way")
    store = HoldingStore(far, DiskStore(tmp_path / "own", quick()), 100)
    assert not store.write_for_now(named(1, b"x"), b"x")
    assert store.map(named(1, b"x")).to_pybytes() == b"x"
    store.release(9)


class First(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce({"k": self.n % 3, "n": self.n})


class Second(Computation):
    total: int = state(0)

    def process_record(self, record, ctx):
        self.total += record.value["n"]


def two_levels():
    p = PipelineBuilder("two levels")
    p.read("values", memory(VALUES, timestamps=range(len(VALUES))))
    p.compute(First, inputs={"values": lambda value: f"key {value}"}, outputs="ones")
    p.compute(Second, inputs={"ones": "k"}, outputs="twos")
    p.stream("ones").write(memory_sink())
    return p.freeze()


def state_of(driver: Driver) -> dict:
    found = Checkpoint(driver.store)
    return {name: dict(found.scan(name)) for name in ("First", "Second")}


def calm(topology) -> dict:
    driver = driver_of(topology, MemoryStore(quick()), epoch_records=6)
    run(driver)
    return state_of(driver)


def test_a_task_that_ran_elsewhere_is_run_again_and_nothing_is_repaired(tmp_path):
    driver = started(tmp_path, 200)
    run(driver, 5)
    substrate = substrate_of(driver)
    home, wanders = substrate._home, [True]

    def somewhere(task):
        return home(task + wanders[0])

    def once(task, reports):
        wanders[0] = False
        return reports

    substrate._home, substrate.disturb = somewhere, once
    for runtime in substrate.homes:
        runtime.cache.__init__()
    substrate._of_slot = lambda slot: home(slot % 2).store
    run(driver)
    assert driver._keeping.repairer.repaired == 0 and substrate.looks == 1
    assert counts(driver) == expected()
