"""The substrate without Spark: the same tasks, run one after another in this process.

The harness uses it, and so do epochs that need no cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headrace.engine.upkeep.held import HeldDeltas
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import Report, WorkOrder
from headrace.plan.progress import StoreUse
from headrace.worker.exchange.envelope import REPORT, Envelope, decode_report, tasks_at
from headrace.worker.level import run_level
from headrace.worker.reader import run_reader
from headrace.worker.runtime import Runtime


def read_all(runtime: Runtime, order: WorkOrder) -> list[Envelope]:
    """The rows that all reader tasks send."""
    return [
        e for number in range(len(order.plan.reads)) for e in run_reader(runtime, order, number)
    ]


def run_epoch(runtime: Runtime, order: WorkOrder) -> list[Report]:
    """Runs all tasks of an epoch, level by level; returns their reports."""
    rows = read_all(runtime, order)
    topology = runtime.topology
    for level in range(1, topology.depth + 1):
        arrived: list[list[Envelope]] = [[] for _ in range(tasks_at(order.plan, level))]
        for row in rows:
            arrived[row.partition].append(row)
        rows = [
            sent
            for number, received in enumerate(arrived)
            for sent in run_level(runtime, order, level, number, received)
        ]
    return reports_in(rows)


def reports_in(rows: Iterable[Envelope]) -> list[Report]:
    """The reports among the rows that reached the driver."""
    return [decode_report(row.body) for row in rows if row.header.kind == REPORT]


class LocalSubstrate:
    """Runs epochs in this process."""

    spark = None
    parallelism = 1
    grows = False
    held: HeldDeltas | None = None

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def run(self, order: WorkOrder) -> Sequence[Report]:
        """Runs an epoch; returns the reports of all its tasks."""
        return run_epoch(self.runtime, order)

    def give_up_when(self, look: Callable[[], bool]) -> None:
        """Does nothing: tasks run one after another in this thread, which cannot give them up."""

    def gone(self) -> str | None:
        """Never: this process is running."""
        return None

    def used(self) -> StoreUse:
        """Nothing: tasks use the store of the driver, which counts for itself."""
        return StoreUse()

    def notes(self) -> Sequence[SlotNote]:
        """What was measured in slots since the last call."""
        return self.runtime.take_notes()

    def close(self) -> None:
        """Does nothing: there is nothing to close."""
