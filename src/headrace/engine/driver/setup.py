"""The setup of a driver: what it works with, whether it follows the log or leads."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.pipeline.graph.topology import Topology
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import Report, WorkOrder
from headrace.plan.options import Options
from headrace.plan.progress import StoreUse
from headrace.plan.summary import asked_of
from headrace.state.compaction import ChooseRun
from headrace.store.store import Store


class Substrate(Protocol):
    """Runs the tasks of an epoch and carries their rows: Spark, or this process."""

    spark: Any
    parallelism: int
    grows: bool
    """Whether it gets more executors when levels have more tasks."""

    def run(self, order: WorkOrder, /) -> Sequence[Report]: ...
    def gone(self) -> str | None: ...
    def give_up_when(self, look: Callable[[], bool], /) -> None: ...
    def used(self) -> StoreUse: ...
    def notes(self) -> Sequence[SlotNote]: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Setup:
    """The pipeline, the location of its checkpoint, the substrate, and the options of the run."""

    topology: Topology
    fingerprint: str
    store: Store
    substrate: Substrate
    options: Options
    clock: Callable[[], int] = lambda: time.time_ns() // 1000
    seeds: Callable[[], int] = lambda: secrets.randbits(63)
    choose_run: ChooseRun | None = None
    """Chooses which segments are merged; `compaction.choose` if None."""

    def used(self) -> StoreUse:
        """What the run has asked of stores so far, in this process and in workers."""
        return asked_of(self.store, self.topology.graph) + self.substrate.used()
