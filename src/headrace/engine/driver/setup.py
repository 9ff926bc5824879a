"""The setup of a driver: what it works with, whether it follows the log or leads."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.engine.history.recovery import History
from headrace.engine.jobs.attempts import Attempts
from headrace.engine.jobs.stragglers import StragglerWatch
from headrace.engine.upkeep.applier import Applier
from headrace.engine.upkeep.compactor import Compactor
from headrace.engine.upkeep.held import HeldDeltas
from headrace.pipeline.graph.topology import Topology
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import Report, WorkOrder
from headrace.plan.options import Options
from headrace.plan.progress import StoreUse
from headrace.plan.rings.ring import Ring
from headrace.plan.summary import asked_of
from headrace.state.backend import OpenState
from headrace.state.compaction import ChooseRun
from headrace.store.store import Store


class Substrate(Protocol):
    """Runs the tasks of an epoch and carries their rows: Spark, or this process."""

    spark: Any
    parallelism: int
    grows: bool
    """Whether it gets more executors when levels have more tasks."""
    held: HeldDeltas | None
    """The disks of executors, where the store is no directory that all of them share; else None."""

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
    opens: OpenState | None = None
    """Opens the state store of a checkpoint; None: segments hold the state."""

    def used(self) -> StoreUse:
        """What the run has asked of stores so far, in this process and in workers."""
        return asked_of(self.store, self.topology.graph) + self.substrate.used()


def applier_of(setup: Setup, checkpoint: str, history: History) -> Applier:
    """What applies epochs to the state store of a driver, if it has one."""
    backend = None if setup.opens is None else setup.opens(history.ledger.applied.id or checkpoint)
    return Applier(backend, setup.store, history, setup.options.background)


def compactor_of(setup: Setup, ring_of: Callable[[str], Ring]) -> Compactor:
    """What merges the segments of a driver. `ring_of` gives the ring that a computation has."""
    background, choose_run = setup.options.background, setup.choose_run
    store, topology = setup.store, setup.topology
    return Compactor(store, topology, ring_of, background=background, choose_run=choose_run)


def attempts_of(
    setup: Setup,
    checkpoint: str,
    run: Callable[[WorkOrder], Sequence[Report]],
    on_job: Callable[[bool], None],
    notice: Callable[[str, str], None],
) -> Attempts:
    """The attempts of a driver, watched for stragglers if its options say so."""
    watch = StragglerWatch(setup.store, setup.options, notice)
    if setup.options.straggler_s is not None:
        setup.substrate.give_up_when(watch.look)
    substrate = setup.substrate
    return Attempts(
        setup.topology, setup.store, checkpoint, run, lambda: substrate.gone(), on_job, watch
    )
