"""A pipeline through many lives of its driver, ended anywhere: the same answer as in one life."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.support import driver_of, run
from tests.unit.systems import limited

from headrace import Computation, failpoints, state
from headrace.engine.history.recovery import recover
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.log.epochlog import EpochLog
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.state.segment import Segment
from headrace.store.memory import MemoryStore


class Crash(BaseException):
    """The death of a driver."""


class Windows(Computation, ordered=True):
    """Counts per window of ten, by timers; keys that have nothing open vanish."""

    open: dict[int, int] = state()

    def process_record(self, record, ctx):
        window = record.timestamp // 10
        self.open[window] = self.open.get(window, 0) + 1
        ctx.set_timer(window, at=(window + 1) * 10)

    def process_timer(self, timer, ctx):
        count = self.open.pop(timer.tag)
        ctx.produce({"key": ctx.key, "window": timer.tag, "n": count})


class Again(Computation):
    """Sends each count round once more, and keeps a total."""

    total: int = state(0)

    def process_record(self, record, ctx):
        self.total += record.value["n"]
        if record.stream == "counts":
            ctx.produce({**record.value, "n": 1000}, to="back")
        ctx.produce({"key": ctx.key, "total": self.total}, to="totals")


def pipeline(seed: int, records: int) -> tuple[Topology, list]:
    dice = random.Random(seed)
    values = [{"k": f"key {dice.randrange(5)}", "t": i * 2} for i in range(records)]
    p = PipelineBuilder("lives")
    p.read("in", memory(values, timestamp="t"))
    p.compute(Windows, inputs={"in": "k"}, outputs="counts")
    p.stream("back", feedback=True)
    p.compute(
        Again, inputs={"counts": "key", "back": "key"}, outputs={"back": "back", "totals": "totals"}
    )
    sinks = [memory_sink(), memory_sink()]
    p.stream("counts").write(sinks[0])
    p.stream("totals").write(sinks[1])
    return p.freeze(), sinks


def answers(store: MemoryStore, sinks: list) -> tuple:
    rows = [sorted(map(repr, sink.rows)) for sink in sinks]
    checkpoint = Checkpoint(store)
    return rows, [sorted(map(repr, checkpoint.scan(n))) for n in ("Windows", "Again")]


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_crashes_anywhere_change_neither_output_nor_state(seed: int) -> None:
    dice = random.Random(seed)
    topology, sinks = pipeline(seed, 60)
    calm = MemoryStore()
    run(driver_of(topology, calm, epoch_records=7))
    expected = answers(calm, sinks)

    topology, sinks = pipeline(seed, 60)
    limits = limited(
        collect_every_epochs=2,
        log_directory_entries=5,
        snapshot_every_epochs=3,
        ride_bytes_max=dice.choice((0, 2700, 4000, 32_000)),
        ride_entries_max=dice.choice((3, 20)),
    )
    store = MemoryStore(limits)
    for _ in range(25):
        left = dice.randrange(1, 15)

        def maybe_die() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash

        failpoints.arm(dice.choice(failpoints.NAMES), maybe_die)
        try:
            driver = driver_of(topology, store, epoch_records=7, retain_epochs=2)
            run(driver, dice.randrange(1, 6))
        except Crash:
            pass
        finally:
            failpoints.disarm()
        for slots in recover(EpochLog(store), 2).ledger.slots.values():
            for entry in (entry for slot in slots.values() for entry in slot.entries):
                Segment.open(store, entry.segment, entry.at)
    run(driver_of(topology, store, epoch_records=7, retain_epochs=2))
    assert answers(store, sinks) == expected, f"seed {seed}"
