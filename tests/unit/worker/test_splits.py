"""Sources of several splits: who holds the watermark, who no longer does, who waits."""

import numpy as np

from headrace import SECOND, Computation, Pipeline, state
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.model.source import Range, Reading, Source, Timing
from headrace.plan.decisions.next_step import Run
from headrace.plan.options import Options
from headrace.state.cache import WorkerCache
from headrace.store.memory import MemoryStore
from headrace.worker.runtime import Runtime


class Splits(Source):
    """Lists of timestamps that a test appends to."""

    def __init__(self, **timing):
        self.timing = Timing(timestamp=lambda value: value, **timing)
        self.lists = {}
        self.ended = set()

    def splits(self):
        return list(self.lists)

    def plan(self, split, start, records):
        values = self.lists[split]
        end = min(len(values), start + records)
        last = split in self.ended and end == len(values)
        return Range(start, end, end - start, last) if end > start or last else None

    def read(self, split, range):
        values = self.lists[split][range.start : range.end]
        return Reading(np.arange(range.start, range.end), values=values)


class Times(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1


class Run_:
    """A driver over a source of splits, under a clock of its own."""

    def __init__(self, source, epoch_records=1000):
        p = Pipeline("splits")
        p.read("in", source)
        p.compute(Times, inputs={"in": ()}, name="C")
        topology = p.freeze()
        self.wall = 1000 * SECOND
        self.store = MemoryStore()
        setup = Setup(
            topology,
            "code",
            self.store,
            LocalSubstrate(Runtime(topology, self.store, WorkerCache())),
            Options(until="caught_up", slots=1, epoch_records=epoch_records, background=False),
            clock=lambda: self.wall,
            seeds=lambda: 1,
        )
        self.driver = Follower(setup).take_over()

    def settle(self, steps=100):
        while steps and isinstance(self.driver.step(), Run):
            steps -= 1
        return self.driver.watermark()

    def positions(self):
        splits = self.driver.ledger.splits.get("in", {})
        return {split: state.position for split, state in splits.items()}


def test_the_slowest_split_holds_the_watermark():
    source = Splits()
    source.lists = {"a": [10, 50], "b": [30], "c": []}
    run = Run_(source)
    assert run.settle() == 0  # c has not begun
    source.lists["c"].append(20)
    assert run.settle() == 20
    source.lists["c"].append(100)
    assert run.settle() == 30


def test_a_finished_split_holds_nothing():
    source = Splits()
    source.lists = {"a": [10, 50], "b": [30]}
    source.ended = {"b"}
    assert Run_(source).settle() == 50


def test_an_idle_split_no_longer_holds_the_watermark_and_may_come_back():
    source = Splits(idle="5s")
    source.lists = {"a": [10, 50], "b": [30]}
    run = Run_(source)
    assert run.settle() == 30
    run.wall += 4 * SECOND
    source.lists["a"].append(60)
    assert run.settle() == 30
    run.wall += 2 * SECOND
    source.lists["a"].append(70)
    assert run.settle() == 70
    source.lists["b"].append(80)
    source.lists["a"].append(90)
    assert run.settle() == 80


def test_an_expected_split_holds_the_watermark_until_it_comes():
    source = Splits(expected=["a", "b"])
    source.lists = {"a": [10, 50]}
    run = Run_(source)
    assert run.settle() == 0
    source.lists["b"] = [20]
    assert run.settle() == 20


def test_a_split_that_runs_ahead_waits_for_the_slowest():
    source = Splits(max_skew="20us")
    source.lists = {"a": [10, 40, 70, 100, 130], "b": [5]}
    run = Run_(source, epoch_records=2)
    run.settle()
    assert run.positions() == {"a": 2, "b": 1}
    source.lists["b"] += [50]
    run.settle()
    assert run.positions()["a"] == 4
    source.lists["b"] += [200]
    run.settle()
    assert run.positions()["a"] == 5
