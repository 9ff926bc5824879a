"""Taking state out by hand: what is named is gone, everything else goes on as if nothing were."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.support import driver_of, run
from tests.unit.systems import FILES, Stopwatch

from headrace import Checkpoint, Computation, Map, state
from headrace.engine.history.epoch_at import kept_epochs
from headrace.engine.leading.lease import DONE, Lease, LeaseKeeper, Pulse, write_lease
from headrace.engine.replay.drop import drop_state
from headrace.errors import CorruptCheckpoint, Fenced, IncompatibleState
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.store.memory import MemoryStore
from headrace.system import REAL, System

KEYS = [f"key {i}" for i in range(7)]


class Stuck(Computation):
    """Raises over what it stored, once it has stored three of a bad key."""

    n: int = state(0)
    seen: Map[int, int] = state()

    def process_record(self, record, ctx):
        if ctx.key == "key 3" and self.n >= 3:
            raise ValueError("what is stored cannot be handled")
        self.n += 1
        self.seen[self.n] = record.timestamp
        ctx.set_timer("later", at=10_000)
        ctx.produce({"k": ctx.key, "n": self.n})

    def process_timer(self, timer, ctx):
        """Nothing is left to do."""


def pipeline(sink: Any = None) -> Topology:
    builder = PipelineBuilder("stuck")
    values = [KEYS[i % len(KEYS)] for i in range(70)]
    builder.read("values", memory(values, timestamps=range(len(values))))
    builder.compute(Stuck, inputs={"values": str}, outputs="out")
    builder.stream("out").write(memory_sink() if sink is None else sink)
    return builder.freeze()


def stuck(sink: Any = None, system: System = REAL) -> MemoryStore:
    """A checkpoint at which every start fails."""
    store = MemoryStore(system)
    for _ in range(2):
        driver = driver_of(pipeline(sink), store, epoch_records=7)
        with pytest.raises(Exception, match="cannot be handled"):
            run(driver)
    return store


def test_a_key_that_stops_every_start_is_dropped_and_the_others_lose_nothing() -> None:
    sink = memory_sink()
    store = stuck(sink)
    before = Checkpoint(store)
    epoch = before.epoch
    others = {key: before.get("Stuck", key) for key in KEYS if key != "key 3"}

    dropped = drop_state(store, "Stuck", ["key 3"])

    after = Checkpoint(store)
    assert dropped.epoch == after.epoch == epoch and not dropped.missing
    assert dropped.cells == 1 + 3 + 1  # a field, three entries, a timer
    assert after.get("Stuck", "key 3") is None
    assert {key: after.get("Stuck", key) for key in others} == others
    run(driver_of(pipeline(sink), store, epoch_records=7), 3)  # until it is stuck again
    assert Checkpoint(store).get("Stuck", "key 3")["n"] == 3  # counted anew
    assert Checkpoint(store).get("Stuck", "key 0")["n"] == 6
    rows = [(row["k"], row["n"]) for row in sink.rows if row["k"] == "key 0"]
    assert rows == [("key 0", n) for n in range(1, 7)]


def test_past_epochs_can_still_be_replayed_from_before_and_after() -> None:
    store = stuck()
    drop_state(store, "Stuck", ["key 3"])
    run(driver_of(pipeline(), store, epoch_records=7), 2)
    assert kept_epochs(store) == list(range(1, Checkpoint(store).epoch + 1))


def test_a_computation_is_dropped_without_reading_its_segments() -> None:
    store = stuck(system=FILES)
    for name in [name for name in store.files if name.startswith("state/")]:
        store.files[name] = b"damaged"
    with pytest.raises(CorruptCheckpoint):
        drop_state(store, "Stuck", ["key 3"])
    drop_state(store, "Stuck", None)
    driver = driver_of(pipeline(), store, epoch_records=7)
    run(driver, 2)
    assert {key: Checkpoint(store).get("Stuck", key)["n"] for key in KEYS} == dict.fromkeys(KEYS, 2)


def test_a_drop_survives_snapshots_recovery_and_another_number_of_slots() -> None:
    store = stuck()
    drop_state(store, "Stuck", ["key 3"])
    drop_state(store, "Stuck", ["key 5", "key 6"])
    run(driver_of(pipeline(), store, epoch_records=7, slots=5), 1)
    found = {key: Checkpoint(store).get("Stuck", key)["n"] for key in KEYS}
    assert found == {**dict.fromkeys(KEYS, 4), "key 3": 1, "key 5": 1, "key 6": 1}


def test_a_key_without_state_is_told_and_changes_nothing() -> None:
    store = stuck()
    dropped = drop_state(store, "Stuck", ["nobody"])
    assert dropped.missing == ("nobody",) and dropped.cells == 0
    assert Checkpoint(store).get("Stuck", "key 3") is not None


def test_an_unknown_computation_is_refused_before_anything_is_written() -> None:
    store = stuck()
    files = dict(store.files)
    with pytest.raises(IncompatibleState, match=r"no computation 'Stock'.*it has: Stuck"):
        drop_state(store, "Stock", None)
    assert store.files == files


def test_a_crash_before_the_entry_leaves_the_state_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = stuck()
    put = store.put_if_absent

    def dying(name: str, data: bytes) -> Any:
        if b'"drop"' in data:
            raise KeyboardInterrupt
        return put(name, data)

    monkeypatch.setattr(store, "put_if_absent", dying)
    with pytest.raises(KeyboardInterrupt):
        drop_state(store, "Stuck", ["key 3"])
    monkeypatch.undo()
    assert Checkpoint(store).get("Stuck", "key 3")["n"] == 3
    drop_state(store, "Stuck", ["key 3"])
    assert Checkpoint(store).get("Stuck", "key 3") is None


def test_a_driver_that_still_runs_is_fenced() -> None:
    store = MemoryStore()
    driver = driver_of(pipeline(), store, epoch_records=7)
    run(driver, 2)
    drop_state(store, "Stuck", ["key 3"])
    with pytest.raises(Fenced):
        driver.step()


def test_a_pipeline_whose_lease_moves_is_not_disturbed() -> None:
    store = MemoryStore()
    driver = driver_of(pipeline(), store, epoch_records=7)
    run(driver, 2)
    keeper = LeaseKeeper(store, driver.log.generation, 0.4, lambda: 2, Pulse(None))
    try:
        with pytest.raises(IncompatibleState, match="stop it first"):
            drop_state(store, "Stuck", ["key 3"])
    finally:
        keeper.abandon()
    driver.step()  # it was not fenced


def test_a_lease_that_nobody_renews_any_more_is_waited_for_and_passed() -> None:
    store = stuck()
    store.system = watch = Stopwatch()
    write_lease(store, Lease(99, 5, 3.0))
    drop_state(store, "Stuck", ["key 3"])
    assert 3.0 <= watch.now_s < 4.0
    write_lease(store, Lease(100, 6, 3.0, state=DONE))
    before_s = watch.now_s
    drop_state(store, "Stuck", ["key 2"])
    assert watch.now_s == before_s, "nobody leads"


def test_a_driver_that_wakes_while_it_collects_takes_nothing_of_a_drop() -> None:
    store = MemoryStore()
    old = driver_of(pipeline(), store, epoch_records=7)
    run(old, 2)
    drop_state(store, "Stuck", ["key 1"])
    old._collect()
    assert Checkpoint(store).get("Stuck", "key 0")["n"] == 2
    assert Checkpoint(store).get("Stuck", "key 1") is None


def test_a_plan_that_was_left_open_is_skipped_or_run_as_without_a_drop() -> None:
    store = MemoryStore()
    driver = driver_of(pipeline(), store, epoch_records=7)
    run(driver, 2)
    assert driver.ledger.open_plan is not None
    drop_state(store, "Stuck", ["nobody"])
    following = driver_of(pipeline(), store, epoch_records=7)
    assert following.ledger.open_plan == driver.ledger.open_plan
