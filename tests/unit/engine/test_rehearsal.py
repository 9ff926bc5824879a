"""A standby's rehearsals: an epoch goes its whole way, and nothing happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.support import driver_of, run

from headrace import Computation, Pipeline, sinks, sources, state, tumbling
from headrace.engine.driver.local import run_epoch
from headrace.engine.driver.takeover import first_slots
from headrace.plan.decisions.rehearsal import (
    REHEARSALS_MAX,
    REHEARSALS_MIN,
    is_warm,
    rehearsal,
)
from headrace.state.cache import WorkerCache
from headrace.store.disk import DiskStore
from headrace.worker.runtime import Runtime


class Busy(Computation):
    """Sets timers of both clocks, feeds itself, holds the watermark."""

    seen: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.seen += 1
        ctx.set_timer("soon", at=record.timestamp + 3)
        ctx.set_timer("wall", after="1h", clock="wall")
        if record.stream == "in" and self.seen % 2:
            ctx.produce({"k": ctx.key, "t": record.timestamp}, to="back")

    def process_timer(self, timer: Any, ctx: Any) -> None:
        ctx.produce({"k": ctx.key, "seen": self.seen}, to="out")


class Late(Computation, ordered=True):
    """Holds back what the watermark has not passed."""

    seen: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.seen += 1


def busy(directory: Path) -> Pipeline:
    p = Pipeline("busy")
    for name in ("in", "slow"):
        every = 1 if name == "in" else 7
        values = [{"k": str(i % 5), "t": i * every} for i in range(200)]
        p.read(name, sources.memory(values, timestamp="t", lateness="2ms"))
    p.stream("back", feedback=True)
    p.compute(Busy, inputs={"in": "k", "slow": "k", "back": "k"}, outputs=["out", "back"])
    p.compute(Late, inputs={"out": "k", "slow": "k"})
    windows = p.stream("in").key_by("k").window(tumbling("1ms")).count()
    windows.write(sinks.jsonl(directory / "windows"))
    p.stream("out").write(sinks.jsonl(directory / "out"))
    return p


def files(directory: Path) -> dict[str, bytes]:
    return {str(f): f.read_bytes() for f in directory.rglob("*") if f.is_file()}


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("epochs", [0, 1, 3, 6])
def test_a_rehearsal_goes_through_every_slot_and_leaves_no_trace(
    tmp_path: Path, epochs: int, short: bool
) -> None:
    topology = busy(tmp_path).freeze()
    store = DiskStore(str(tmp_path / "checkpoint"))
    driver = driver_of(topology, store, epoch_records=20)
    run(driver, epochs)
    before = files(tmp_path)
    ledger = driver.ledger
    slots = first_slots(topology, None, 2)
    task = rehearsal(topology, ledger, driver.checkpoint, slots, tasks=2, short=short)
    assert task is not None
    reports = run_epoch(Runtime(topology, store, WorkerCache()), task)
    keyed = {report.label for report in reports}
    assert len(keyed) == 2 * len(topology.keyed), "every slot of every computation"
    for report in reports:
        assert report.error is None, report.message
        assert (report.counters.hooks, report.counters.timers) == (0, 0)
        assert (report.staged, report.outbox) == ((), ())
        assert report.delta is not None and report.delta.segment is None
    assert files(tmp_path) == before


def test_a_pipeline_that_has_ended_is_not_rehearsed(tmp_path: Path) -> None:
    topology = busy(tmp_path).freeze()
    driver = driver_of(topology, DiskStore(str(tmp_path / "checkpoint")))
    run(driver)
    ledger = driver.ledger
    slots = first_slots(topology, None, 2)
    assert rehearsal(topology, ledger, "id", slots, tasks=2, short=True) is None


def test_a_candidate_is_warm_when_rehearsals_become_no_faster() -> None:
    def needed(seconds: list[float]) -> int:
        return next(n for n in range(len(seconds) + 1) if is_warm(seconds[:n]))

    assert needed([0.1] * 50) == REHEARSALS_MIN
    assert REHEARSALS_MIN < needed([2.0 * 0.8**n for n in range(12)] + [0.14] * 50) < 25
    assert needed([1.0 * 0.7**n for n in range(60)]) == REHEARSALS_MAX, "there is an end"
    assert needed([7.0 * 0.9**n for n in range(60)]) == 4, "a slow machine is not rehearsed on long"
    assert needed([30.0] * 60) == 3
    slow_once = [0.1, 0.1, 0.1, 0.1, 9.0, 0.1, 0.1]
    assert needed(slow_once) == REHEARSALS_MIN, "a disturbed one does not count"
