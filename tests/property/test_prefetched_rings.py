"""Rings that change at random while new owners prefetch: results are those of a fixed ring (J7).

Tasks run in one of several workers, each with its own cache, chosen at random. So pieces are of any
age, some workers have them and others do not, and merges drop deletions in between.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest
from tests.unit.engine.support import Local, driver_of
from tests.unit.systems import limited

from headrace import Computation, state
from headrace.model.values.keys import HASH_SPACE
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.next_step import Run
from headrace.plan.epoch import Report, WorkOrder
from headrace.plan.rings.wanted import Move, Wanted
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.state.cache import WorkerCache
from headrace.state.times.pieces import PrefetchedPiece, covers
from headrace.store.memory import MemoryStore

RECORDS = 180
KEYS = 9
SEEDS = 6
WORKERS = 2


class Alarms(Computation):
    """Every key has alarms; some records set them, some cancel them, some forget the key."""

    seen: int = state(0)

    def process_record(self, record, ctx):
        self.seen += 1
        what, tag = record.value["what"], record.value["tag"]
        if what == "set":
            ctx.set_timer(tag, at=record.timestamp + record.value["after"])
        elif what == "cancel":
            ctx.cancel_timer(tag=tag)
        else:
            ctx.forget()

    def process_timer(self, timer, ctx):
        ctx.produce({"key": ctx.key, "tag": timer.tag, "at": timer.timestamp, "seen": self.seen})


def alarms(seed: int, sink: Any) -> Topology:
    dice = random.Random(seed)
    values = [
        {
            "key": dice.randrange(KEYS),
            "what": dice.choice(("set", "set", "cancel", "cancel", "forget")),
            "tag": dice.randrange(3),
            "after": dice.choice((5, 40, 90)),
        }
        for _ in range(RECORDS)
    ]
    p = PipelineBuilder("alarms")
    p.read("values", memory(values, timestamps=range(RECORDS)))
    p.compute(Alarms, inputs={"values": "key"}, outputs="rung", name="A")
    p.stream("rung").write(sink)
    return p.freeze()


class ManyWorkers(Local):
    """Every job runs in one of several worker processes."""

    dice = random.Random(0)

    def run(self, task: WorkOrder) -> Sequence[Report]:
        if not hasattr(self, "caches"):
            self.caches = [WorkerCache() for _ in range(WORKERS)]
        self.runtime.cache = self.dice.choice(self.caches)
        return super().run(task)

    def notes(self) -> list[Any]:
        found = self.runtime.take_notes()
        return found if self.dice.random() < 0.3 else []


def rung(seed: int, *, rings: bool) -> list[Any]:
    """What came out of a run, whose ring changes now and then, or never."""
    sink = memory_sink()
    limits = {"prefetch_bytes_min": 0, "prefetch_epochs_max": 3, "merge_segments_min": 2}
    store = MemoryStore(limited(**limits, chains_kept=4))
    driver = driver_of(alarms(seed, sink), store, epoch_records=6, slots=2)
    dice = random.Random(f"{seed} rings")
    if rings:
        driver.substrate.__class__ = ManyWorkers
        driver.substrate.dice = random.Random(f"{seed} workers")
    while isinstance(driver.step(), Run):
        if rings and dice.random() < 0.4:
            low = dice.randrange(HASH_SPACE)
            move = Move(low, dice.randrange(low, HASH_SPACE), dice.randrange(4))
            driver.ledger.wanted["A"] = Wanted(moves=(move,))
    return sorted(sink.records, key=repr)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_rings_that_are_announced_and_change_alter_nothing(seed: int) -> None:
    assert rung(seed, rings=True) == rung(seed, rings=False)


def blindly() -> AbstractContextManager[Any]:
    """A piece is used for its intervals, whatever has become of them since it was built."""

    def serves(self: PrefetchedPiece, came: Any, entries: Any, records: Any) -> bool:
        return came.slot == self.slot and covers(self.records, records)

    return patch.object(PrefetchedPiece, "serves", serves)


def test_without_its_rule_a_piece_brings_back_what_was_deleted() -> None:
    used = 0
    serves = PrefetchedPiece.serves

    def counted(self: PrefetchedPiece, *given: Any) -> bool:
        nonlocal used
        found = serves(self, *given)
        used += found and any(self.cells.values())
        return found

    with patch.object(PrefetchedPiece, "serves", counted):
        for seed in range(SEEDS):
            rung(seed, rings=True)
    assert used > SEEDS, "pieces with timers are used"
    with blindly():
        assert any(rung(seed, rings=True) != rung(seed, rings=False) for seed in range(SEEDS))
