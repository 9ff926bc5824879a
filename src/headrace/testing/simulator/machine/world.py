"""The `System` of a simulation, and limits that a seed picks.

The engine's own code runs on it, with a simulated disk, clock, threads and random names, and with
limits small enough that a schedule of a few epochs collects files, merges segments and trims its
log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import TypeVar

from headrace import failpoints
from headrace.limits import LIMITS, Limits
from headrace.plan.decisions.resizing import elasticity
from headrace.plan.elastic.settings import EVEN, OFF, RING, Elasticity, Scale
from headrace.plan.options import Options
from headrace.plan.rings.classes import SegmentSlice
from headrace.system import System
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.fiber import Process
from headrace.testing.simulator.machine.syscalls import Syscalls
from headrace.testing.simulator.machine.threads import (
    SimulatedEvent,
    SimulatedExecutor,
    SimulatedThread,
)

_Given = TypeVar("_Given")
SLOTS_MAX = 4
"""How many slots the scaler may give."""


class SimulatedSystem(System):
    """The surroundings of every process of a simulation."""

    files: Syscalls

    def __init__(
        self,
        files: Syscalls,
        chance: Chance,
        clock_s: Callable[[], float],
        limits: Limits = LIMITS,
    ) -> None:
        super().__init__(files, limits)
        self._chance, self._clock_s = chance, clock_s
        self.uptime: Callable[[], float] = clock_s
        self.running: Callable[[], Process | None] = lambda: None
        """The process whose turn it is."""
        self.on_sleep: Callable[[float], None] = lambda seconds: None

    def wall_s(self) -> float:
        return self._clock_s()

    def uptime_s(self) -> float:
        return self.uptime()

    def cpu_s(self) -> float:
        return self.uptime()

    def sleep(self, seconds: float) -> None:
        self.on_sleep(seconds)

    def token_hex(self, size: int) -> str:
        return self._chance.token(size)

    def random(self) -> float:
        return self._chance.random.random()

    def event(self) -> SimulatedEvent:
        return SimulatedEvent(self.running, self.uptime)

    def thread(self, target: Callable[[], None], name: str) -> SimulatedThread:
        return SimulatedThread(self.running, target)

    def executor(self, name: str, threads: int = 1) -> SimulatedExecutor:
        return SimulatedExecutor(self.running)

    def run_within(
        self, timeout_s: float, act: Callable[[], _Given], leave: Callable[[], None]
    ) -> _Given:
        """Runs it in the thread of its process: another thread could not be paused with it."""
        return act()


class Tuning:
    """Limits of the engine, small enough for a run of a few epochs."""

    def __init__(self, chance: Chance) -> None:
        pick = chance.random.randint
        log_directory_entries = pick(4, 12)
        collect_every = pick(1, 3)
        snapshot_every = pick(2, 4)
        segments_min = pick(2, 4)
        chains_kept = pick(1, 4)
        self.retain_epochs = pick(1, 4)
        determinants_epochs = pick(1, 3)
        ride_bytes_max = chance.choice((0, 2000, 3000, 5000, 32_000))
        ride_entries_max = pick(1, 6)
        prefetch = Random(f"{chance.seed} prefetch")
        stored = Random(f"{chance.seed} stored")
        dice = Random(f"{chance.seed} rings")
        self.rings = dice
        """Decides in which epochs another ring is wanted."""
        self.rings_left = dice.randint(5, 30) if dice.random() < 0.25 else 0
        """How often this may still happen; it is no fault, and has no part in their budget."""
        self.moves_back = False
        """Whether rings change between few slots and over few intervals, back and forth."""
        self.limits_stay = False
        """Whether limits of slots stay until all input has ended."""
        memory = Random(f"{chance.seed} memory")
        self.limits = Limits(
            cached_cells_max=memory.choice((0, 4, 100_000)),
            window_cells=memory.choice((1, 3, 4096)),
            cached_bytes_max=memory.choice((0, 5_000, 256 << 20)),
            kept_bytes_max=memory.choice((0, 16 << 20)),
            shard_slots=dice.choice((1, 2, 64)),
            ring_steps_max=dice.choice((1, 2, 16)),
            log_directory_entries=log_directory_entries,
            log_markers_together=Random(f"{chance.seed} markers").choice((1, 2, 3, 100)),
            collect_every_epochs=collect_every,
            collect_rest_s=0.0,
            status_every_s=None,  # a hint for people: no driver reads it
            snapshot_every_epochs=snapshot_every,
            merge_retry_epochs=2,
            sealed_rows_min=1 + self.retain_epochs % 2,
            merge_segments_min=segments_min,
            merge_piece_bytes=2000 * segments_min,
            merge_sample_bytes=200,
            chains_kept=chains_kept,
            determinants_epochs=determinants_epochs,
            closed_span_epochs=2 * determinants_epochs,
            high_water_markers_kept=2,
            sink_upkeep_epochs=2,
            outcomes_kept=8,
            ride_bytes_max=ride_bytes_max,
            ride_entries_max=ride_entries_max,
            report_every_epochs=1,
            straggler_jobs_min=1,
            limit_period_epochs=1,
            # In half of the schedules rings change at once; in the others they are announced.
            prefetch_bytes_min=prefetch.choice((0, 1 << 30)),
            prefetch_bytes_max=prefetch.choice((1, 1 << 20)),
            prefetch_epochs_max=prefetch.randint(1, 3),
            unapplied_epochs_max=stored.randint(1, 3),
            purge_every_epochs=stored.randint(1, 3),
        )
        dice = Random(f"{chance.seed} elastic")
        scale = Scale(above=0.5, aim=0.3, below=0.1, reports=1, every=dice.choice((1, 1, 2)))
        self.elastic = (dice.choice((EVEN, EVEN, RING, OFF)), dice.choice((scale, None)))
        """The policy of the balancer and the settings of the scaler, if load moves."""
        if self.elastic == (OFF, None):
            self.elastic = (EVEN, scale)
        self._chance = chance
        self.choose_run = self._choose if chance.random.random() < 0.5 else None
        """Half of the schedules merge any run that may be merged."""

    def elasticity(self, cores: int) -> Elasticity:
        """What drivers of this schedule let the balancer and the scaler do, if load moves."""
        policy, scale = self.elastic
        return elasticity(Options(balance=policy, scale=scale, max_slots=SLOTS_MAX), cores, cores)

    def merges_any_run(self) -> None:
        """Whatever may be merged is merged."""
        self.choose_run = self._choose

    def _choose(self, entries: Sequence[SegmentSlice]) -> tuple[SegmentSlice, ...]:
        """Any run that may be merged; the engine's own choice is always all small segments."""
        epochs = sorted({entry.last_epoch for entry in entries}, reverse=True)
        if len(epochs) < 2 or self._chance.random.random() < 0.5:
            return ()
        start = self._chance.random.randrange(len(epochs) - 1)
        end = self._chance.random.randrange(start + 1, len(epochs))
        run = [e for e in entries if epochs[end] <= e.last_epoch <= epochs[start]]
        return tuple(sorted(run, key=lambda e: -e.last_epoch))


@contextmanager
def at_failpoints(reached: Callable[[str], None]) -> Iterator[None]:
    """While entered, `reached(name)` is called at every failpoint."""
    for name in failpoints.NAMES:
        failpoints.arm(name, partial(reached, name))
    try:
        yield
    finally:
        failpoints.disarm()
