"""Small pipelines and drivers without Spark, for tests of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace import Computation, state
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import run_epoch
from headrace.engine.driver.setup import Setup
from headrace.model.sink import Sink
from headrace.model.source import Source
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.next_step import Run
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import Report, WorkOrder
from headrace.plan.fingerprint import fingerprint
from headrace.plan.listener import EpochCallback, NoticeCallback
from headrace.plan.options import Options
from headrace.plan.progress import EpochProgress, Notice, StoreUse
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.state.cache import WorkerCache
from headrace.store.memory import MemoryStore
from headrace.store.store import Store
from headrace.worker.runtime import Runtime


class Crash(BaseException):
    """A process dies here."""


def die() -> None:
    """For failpoints."""
    raise Crash


class Count(Computation):
    """Counts per key, and forgets keys that reach a multiple of five."""

    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce({"k": ctx.key, "n": self.n})
        if self.n % 5 == 0:
            ctx.forget()


def counting(
    values: Sequence[Any] | Source, sink: Sink | None = None, name: str = "counting"
) -> Topology:
    """values -> Count by value -> counts -> a sink."""
    pipeline = PipelineBuilder(name)
    source = values if isinstance(values, Source) else memory(values, timestamps=range(len(values)))
    pipeline.read("values", source)
    pipeline.compute(Count, inputs={"values": lambda value: f"key {value}"}, outputs="counts")
    pipeline.stream("counts").write(memory_sink() if sink is None else sink)
    return pipeline.freeze()


class Local:
    """A substrate in this process; `disturb` may change what it reports."""

    spark = None
    grows = False
    held = None

    def __init__(self, topology: Topology, store: Store, parallelism: int = 2) -> None:
        self.runtime = Runtime(topology, store, WorkerCache())
        self.parallelism = parallelism
        self.disturb: Callable[[WorkOrder, list[Report]], Sequence[Report]] | None = None
        self.measure: Callable[[list[SlotNote]], Sequence[SlotNote]] | None = None
        """What the driver gets of the notes, if not all."""
        self.tasks: list[WorkOrder] = []

    def run(self, task: WorkOrder) -> Sequence[Report]:
        self.tasks.append(task)
        reports = run_epoch(self.runtime, task)
        return reports if self.disturb is None else self.disturb(task, reports)

    def gone(self) -> str | None:
        return None

    def notes(self) -> Sequence[SlotNote]:
        measured = self.runtime.take_notes()
        return measured if self.measure is None else self.measure(measured)

    def used(self) -> StoreUse:
        return StoreUse()

    def close(self) -> None:
        pass


class Clock:
    """A clock that a test turns."""

    def __init__(self, now: int = 1_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        self.now += 1
        return self.now


def driver_of(
    topology: Topology,
    store: Store | None = None,
    **options: Any,
) -> Driver:
    """A driver that has taken over."""
    return follower_of(topology, store, **options).take_over()


def follower_of(
    topology: Topology,
    store: Store | None = None,
    *,
    clock: Callable[[], int] | None = None,
    code: str | None = None,
    on_epoch: Callable[[EpochProgress], None] | None = None,
    on_notice: Callable[[Notice], None] | None = None,
    **options: Any,
) -> Follower:
    """A follower that can take over; `code` stands for the pipeline's fingerprint."""
    if on_epoch is not None:
        options["listeners"] = (*options.get("listeners", ()), EpochCallback(on_epoch))
    if on_notice is not None:
        options["listeners"] = (*options.get("listeners", ()), NoticeCallback(on_notice))
    store = MemoryStore() if store is None else store
    options = {"slots": 2, "epoch_records": 3, "background": False, **options}
    setup = Setup(
        topology,
        code or fingerprint(topology.graph),
        store,
        Local(topology, store),
        Options(**options),
        clock=clock or Clock(),
        seeds=lambda: 7,
    )
    return Follower(setup)


def run(driver: Driver, epochs: int = 10_000) -> int:
    """Steps until there is nothing to do; gives how many epochs were run."""
    done = 0
    while done < epochs and isinstance(driver.step(), Run):
        done += 1
    return done
