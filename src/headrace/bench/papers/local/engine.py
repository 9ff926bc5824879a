"""Runs a pipeline without Spark, epoch by epoch, and notes what each epoch did.

The driver, the log, workers, state, balancer and scaler are those of any run. Only the substrate
differs (see `threads`), and the checkpoint lies in memory unless a store is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.bench.papers.local.arrivals import Arrivals
from headrace.bench.papers.local.threads import ThreadSubstrate
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.setup import Setup
from headrace.errors import HeadraceError
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.decisions.next_step import Finish, Run
from headrace.plan.fingerprint import fingerprint
from headrace.plan.listener import Listener
from headrace.plan.options import Options
from headrace.plan.progress import CheckpointProgress, EpochProgress, Notice
from headrace.store.memory import MemoryStore
from headrace.store.store import Store

IDLE_S = 0.002
"""How long to wait where a look at the sources found nothing new."""


class LocalEpoch(NamedTuple):
    """One epoch."""

    at_s: float
    """When its results were visible, since the start of the schedule."""
    records: int
    """All records that were read so far."""
    seconds: float
    """From plan to delivery."""
    slots: dict[str, int]
    """Computation -> its slots."""
    shed: int = 0
    carried: int = 0
    """Records that were dropped so far, and that wait."""


@dataclass
class Ran(Listener):
    """What a run has shown."""

    only_fragments: ClassVar[bool] = True

    epochs: list[LocalEpoch] = field(default_factory=list)
    notices: list[tuple[float, str, str]] = field(default_factory=list)
    """(when, kind, text)."""
    checkpoints: list[CheckpointProgress] = field(default_factory=list)
    elapsed: Callable[[], float] = time.monotonic
    progress: EpochProgress | None = None

    def on_epoch(self, progress: EpochProgress) -> None:
        self.progress = progress

    def on_checkpoint(self, progress: CheckpointProgress) -> None:
        self.checkpoints.append(progress)

    def on_notice(self, notice: Notice) -> None:
        self.notices.append((round(self.elapsed(), 3), notice.kind, notice.text))

    def told(self, kind: str) -> list[tuple[float, str]]:
        """The notices of one kind."""
        return [(at, text) for at, known, text in self.notices if known == kind]

    def latencies_ms(self, arrivals: Arrivals) -> npt.NDArray[np.float64]:
        """How long each record took from its arrival until its results were visible."""
        found, first = [np.empty(0)], 0
        for seen in self.epochs:
            due = arrivals.schedule.times(first, seen.records)
            found.append((seen.at_s - due) * 1e3)
            first = seen.records
        return np.concatenate(found)


class LocalRun:
    """A driver over a thread substrate."""

    def __init__(
        self,
        pipeline: PipelineBuilder,
        *,
        threads: int,
        store: Store | None = None,
        arrivals: Arrivals | None = None,
        pace_s: float = 0.0,
        **options: Any,
    ) -> None:
        """`pace_s`: epochs begin at multiples of it; 0: each begins after the one before."""
        topology = pipeline.freeze()
        self._pace_s = pace_s
        self.store = MemoryStore() if store is None else store
        self.ran = Ran()
        if arrivals is not None:
            self.ran.elapsed = lambda: arrivals.elapsed_s
        self.substrate = ThreadSubstrate(topology, self.store, threads)
        options = {"until": None, "background": False, "listeners": (self.ran,)} | options
        chosen = Options(**options)
        setup = Setup(topology, fingerprint(topology.graph), self.store, self.substrate, chosen)
        self.driver: Driver = Follower(setup).take_over()

    def step(self) -> bool:
        """One decision; whether it was an epoch."""
        driver = self.driver
        if self._pace_s:
            time.sleep(self._pace_s - self.ran.elapsed() % self._pace_s)
        step = driver.step()
        if isinstance(step, Finish):
            raise HeadraceError("the pipeline has ended before its input did")
        if not isinstance(step, Run):
            time.sleep(IDLE_S)
            return False
        slots = {name: len(each) for name, each in driver.ledger.slots.items()}
        told = self.ran.progress
        self.ran.epochs.append(
            LocalEpoch(
                self.ran.elapsed(),
                driver.ledger.counters.records,
                0.0 if told is None else told.seconds,
                slots,
                0 if told is None else sum(told.shed.values()),
                0 if told is None else told.carried,
            )
        )
        return True

    def until(self, done: Callable[[], bool], patience_s: float = 600.0) -> Ran:
        """Steps until a condition holds."""
        began = time.monotonic()
        while not done():
            if time.monotonic() - began > patience_s:
                raise HeadraceError(f"waited {patience_s:g} s in vain")
            self.step()
        return self.ran

    def read(self, records: int) -> Ran:
        """Steps until so many records are read and none of them waits."""

        def done() -> bool:
            last = self.ran.epochs[-1] if self.ran.epochs else None
            return last is not None and last.records >= records and not last.carried

        return self.until(done)

    def close(self) -> None:
        """Ends the driver and its threads."""
        self.driver.close()
        self.substrate.close()


def percentiles(values: Sequence[float] | npt.NDArray[np.float64]) -> dict[str, float]:
    """The percentiles that papers show."""
    if not len(values):
        return {}
    return {
        f"p{share}": round(float(np.percentile(np.asarray(values), share)), 3)
        for share in (50, 95, 99)
    }
