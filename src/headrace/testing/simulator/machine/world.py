"""Puts a simulated world under the engine: disk, clock, random names, small constants.

The code that runs is the engine's own. Only the names by which its modules reach
the outside (`os`, `Path`, `secrets`, `time`) and the constants that would make a
schedule long (how often files are collected, segments merged, ledgers kept) are
put in place of the real ones, for as long as a simulation runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from headrace import failpoints
from headrace.plan.epoch import SegmentSlice
from headrace.system import System
from headrace.testing.simulator.drivers.life import Life
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.syscalls import Syscalls
from headrace.testing.simulator.machine.threads import SimulatedEvent, SimulatedThread

_Given = TypeVar("_Given")
_MISSING = object()


class SimulatedSystem(System):
    """The surroundings of every process of a simulation."""

    files: Syscalls

    def __init__(self, files: Syscalls, chance: Chance, clock_s: Callable[[], float]) -> None:
        super().__init__(files)
        self._chance, self._clock_s = chance, clock_s
        self.uptime: Callable[[], float] = clock_s
        self.running: Callable[[], Life | None] = lambda: None
        """The process whose turn it is."""
        self.on_sleep: Callable[[float], None] = lambda seconds: None

    def wall_s(self) -> float:
        return self._clock_s()

    def uptime_s(self) -> float:
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

    def run_within(
        self, timeout_s: float, act: Callable[[], _Given], leave: Callable[[], None]
    ) -> _Given:
        """In the thread of its process: one beside it could not be paused with it."""
        return act()


class Tuning:
    """Constants of the engine, small enough for a run of a few epochs."""

    def __init__(self, chance: Chance) -> None:
        pick = chance.random.randint
        self.log_directory_entries = pick(4, 12)
        self.collect_every = pick(1, 3)
        self.snapshot_every = pick(2, 4)
        self.run_min = pick(2, 4)
        self.chains_kept = pick(1, 4)
        self.retain_epochs = pick(1, 4)
        self.determinants_epochs = pick(1, 3)
        self._chance = chance
        self._picks_runs = chance.random.random() < 0.5

    def constants(self) -> dict[tuple[str, str], Any]:
        """(module, name) -> value."""
        names: dict[tuple[str, str], Any] = {
            ("headrace.log.paths", "LOG_DIRECTORY_ENTRIES"): self.log_directory_entries,
            ("headrace.engine.driver.driver", "COLLECT_EVERY"): self.collect_every,
            ("headrace.engine.driver.driver", "SNAPSHOT_EVERY"): self.snapshot_every,
            ("headrace.engine.driver.compactor", "RETRY_AFTER"): 2,
            ("headrace.engine.driver.finished_input", "SEAL_ROWS"): 1 + self.retain_epochs % 2,
            ("headrace.state.compaction", "RUN_MIN"): self.run_min,
            ("headrace.state.compaction", "PIECE_BYTES"): 2000 * self.run_min,
            ("headrace.state.compaction", "_SAMPLE_BYTES"): 200,
            ("headrace.plan.ledger", "CHAINS_KEPT"): self.chains_kept,
            ("headrace.plan.ledger", "DETERMINANTS_EPOCHS"): self.determinants_epochs,
            ("headrace.log.paths", "CLOSED_SPAN"): 2 * self.determinants_epochs,
            ("headrace.sinks.high_water", "MARKERS_KEPT"): 2,
        }
        if self._picks_runs:
            names["headrace.state.compaction", "choose"] = self._choose
        return names

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
def simulated_world(tuning: Tuning, reached: Callable[[str], None]) -> Iterator[None]:
    """While entered, the engine has small constants; `reached(name)` is called at failpoints."""
    names: dict[tuple[str, str], Any] = dict(tuning.constants())
    before = {}
    for (module, name), value in names.items():
        space = vars(import_module(module))
        before[module, name] = space.get(name, _MISSING)
        space[name] = value
    for name in failpoints.NAMES:
        failpoints.arm(name, partial(reached, name))
    try:
        yield
    finally:
        failpoints.disarm()
        for (module, name), value in before.items():
            space = vars(import_module(module))
            if value is _MISSING:
                del space[name]
            else:
                space[name] = value
