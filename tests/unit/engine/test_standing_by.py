"""A slot's standby takes over from its near copies: the tasks of two executors, without Spark."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.systems import FILES

from headrace import Computation, Context, Pipeline, Record, sinks, sources, state
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import read_all, reports_in
from headrace.engine.driver.setup import Setup
from headrace.engine.spark.segment_copies import NearStore
from headrace.engine.spark.tasks import (
    ORDER_BYTES_MAX,
    OpenOrder,
    _run,
    order_in,
    order_text,
)
from headrace.errors import CorruptCheckpoint
from headrace.pipeline.graph.topology import Topology
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import Report, WorkOrder
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.plan.progress import StoreUse
from headrace.state.cache import WorkerCache
from headrace.store.disk import DiskStore
from headrace.worker.exchange.envelope import Envelope
from headrace.worker.runtime import Runtime


class Count(Computation):
    count: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.count += 1
        ctx.produce({"key": ctx.key, "count": self.count})


class Executors:
    """A substrate of two executors, with a near directory each; slot -> executor as told."""

    spark = None
    parallelism = 2
    grows = False
    held = None

    def __init__(self, topology: Topology, root: Path, near: Path, replicas: bool) -> None:
        self.topology = topology
        self.stores = {name: NearStore(DiskStore(root, FILES), near / name) for name in "ab"}
        self.runtimes = {n: Runtime(topology, s, WorkerCache()) for n, s in self.stores.items()}
        self.place = {0: "a", 1: "b"}
        self.guards = {1: {0: [1], 1: [0]}} if replicas else {}

    def run(self, task: WorkOrder) -> Sequence[Report]:
        rows = read_all(self.runtimes["b"], task)
        order = OpenOrder(task, [], self.guards)
        found: list[Envelope] = []
        for slot, name in self.place.items():
            mine = [row for row in rows if row.partition == slot]
            found += _run(self.runtimes[name], order, 1, slot, mine)
        return reports_in(found)

    def gone(self) -> str | None:
        return None

    def notes(self) -> Sequence[SlotNote]:
        return []

    def used(self) -> StoreUse:
        return StoreUse()

    def close(self) -> None:
        pass


def started(tmp_path: Path, replicas: bool) -> tuple[Driver, Executors]:
    p = Pipeline("standing by")
    values = [{"key": f"k{i % 10}", "at": i} for i in range(100)]
    p.read("in", sources.memory(values, timestamp="at"))
    p.compute(Count, inputs={"in": "key"}, outputs="counts")
    p.stream("counts").write(sinks.jsonl(tmp_path / "out"))
    topology = p.freeze()
    root = tmp_path / "checkpoint"
    executors = Executors(topology, root, tmp_path / "near", replicas)
    options = Options(background=False, slots=2, epoch_records=10)
    store = DiskStore(root, FILES)
    setup = Setup(topology, fingerprint(topology.graph), store, executors, options)
    driver = Follower(setup).take_over()
    for _ in range(4):
        driver.step()
    return driver, executors


def lose_a(tmp_path: Path, executors: Executors) -> None:
    """Executor a is gone; and so is all state in the store, but for its directories."""
    executors.place[0] = "b"
    del executors.runtimes["a"]
    shutil.rmtree(tmp_path / "near" / "a")
    for path in (tmp_path / "checkpoint" / "state").rglob("*.arrow"):
        path.unlink()


def test_a_standby_takes_over_though_the_store_has_lost_the_state(tmp_path: Path) -> None:
    driver, executors = started(tmp_path, replicas=True)
    driver.step()  # what epoch 4 left is fetched when epoch 5 begins
    before = executors.stores["b"].far_reads
    # As a second worker of the same executor would: nothing but the directory is shared.
    runtime = executors.runtimes["b"]
    executors.runtimes["b"] = Runtime(runtime.topology, runtime.store, WorkerCache())
    fresh = driver.ledger.epoch
    newest = list((tmp_path / "checkpoint" / "state").rglob(f"{fresh:012d}-*.arrow"))
    kept = {path: path.read_bytes() for path in newest}
    lose_a(tmp_path, executors)
    for path, data in kept.items():  # of the last epoch, which nobody had fetched yet
        path.write_bytes(data)
    driver.step()
    assert driver.ledger.epoch == fresh + 1
    assert executors.stores["b"].far_reads <= before + len(newest)
    driver.close()


def test_without_replicas_the_state_is_missed(tmp_path: Path) -> None:
    driver, executors = started(tmp_path, replicas=False)
    lose_a(tmp_path, executors)
    with pytest.raises(CorruptCheckpoint, match=r"is missing from the checkpoint"):
        driver.step()
    driver.close()


def test_copies_do_not_pile_up_where_nobody_guards_anybody(tmp_path: Path) -> None:
    """As with replicas of which one executor is left: it still writes copies."""
    driver, executors = started(tmp_path, replicas=False)
    executors.place[0] = "b"
    while driver.ledger.epoch < 9 or driver.ledger.segments() == set():
        driver.step()
    assert driver._compactor.adopted
    driver.step()
    written = {path.name for path in (tmp_path / "near" / "b").rglob("*.arrow")}
    named = {name.rsplit("/", 1)[1] for name in driver.ledger.segments()}
    newest = {name for name in written if int(name[:12]) >= driver.ledger.epoch}
    assert written <= named | newest
    driver.close()


# The work order -------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 3000, ORDER_BYTES_MAX, 20 * ORDER_BYTES_MAX])
@pytest.mark.parametrize("alike", [True, False])
def test_a_small_work_order_is_a_text_and_a_large_one_is_not(size: int, alike: bool) -> None:
    data = b"x" * size if alike else random.Random(1).randbytes(size)
    text = order_text(data)
    if text is None:
        assert size >= ORDER_BYTES_MAX
    else:
        assert text.isascii() and text.isprintable() and len(text) < 2 * ORDER_BYTES_MAX
        assert order_in(text) == data
    assert order_in("work/000000000001-order-" + 32 * "0") is None
