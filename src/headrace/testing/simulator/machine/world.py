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
from types import SimpleNamespace
from typing import Any

from headrace import failpoints
from headrace.causal import outside
from headrace.causal.journal import Journal
from headrace.engine.driver.pins import pinned, pins_of
from headrace.engine.leading.lease import Pulse
from headrace.engine.leading.retry import Retry
from headrace.engine.leading.standby import stand_by
from headrace.plan.epoch import SegmentSlice
from headrace.system import System
from headrace.testing.simulator.drivers.life import Life
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.syscalls import Syscalls
from headrace.testing.simulator.machine.threads import SimulatedEvent, SimulatedThread

_RANDOM_NAMES = (
    "headrace.causal.journal",
    "headrace.engine.driver.compactor",
    "headrace.engine.driver.driver",
)
_MISSING = object()


class SimulatedSystem(System):
    """The surroundings of every process of a simulation."""

    files: Syscalls

    def __init__(self, files: Syscalls, chance: Chance, clock_s: Callable[[], float]) -> None:
        super().__init__(files)
        self._chance, self._clock_s = chance, clock_s

    def wall_s(self) -> float:
        return self._clock_s()

    def sleep(self, seconds: float) -> None:
        """The log repeats its puts at once."""

    def token_hex(self, size: int) -> str:
        return self._chance.token(size)


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


def _conducted(
    chance: Chance,
    clock_s: Callable[[], float],
    uptime_s: Callable[[], float],
    running: Callable[[], Life | None],
) -> dict[tuple[str, str], Any]:
    """What leases, patience, standbys and readers from outside take for clocks and threads."""
    if not chance.is_conducted:
        return {}
    return {
        ("headrace.engine.leading.loop", "Patience"): partial(Retry, clock=uptime_s),
        ("headrace.engine.leading.loop", "Pulse"): partial(Pulse, clock=uptime_s),
        ("headrace.engine.leading.loop", "stand_by"): partial(stand_by, clock=uptime_s),
        ("headrace.engine.leading.retry", "time"): SimpleNamespace(time=clock_s),
        ("headrace.engine.leading.retry", "random"): chance.random,
        ("headrace.engine.leading.lease", "threading"): SimpleNamespace(
            Event=partial(SimulatedEvent, running, uptime_s),
            Thread=partial(SimulatedThread, running),
        ),
        ("headrace.engine.replay.replay", "pinned"): partial(pinned, clock=clock_s),
        ("headrace.engine.driver.collection", "pins_of"): partial(pins_of, clock=clock_s),
        ("headrace.engine.driver.pins", "secrets"): SimpleNamespace(token_hex=chance.token),
    }


@contextmanager
def simulated_world(
    chance: Chance,
    tuning: Tuning,
    clock_s: Callable[[], float],
    sleep: Callable[[float], None],
    reached: Callable[[str], None],
    uptime_s: Callable[[], float],
    running: Callable[[], Life | None],
) -> Iterator[None]:
    """While entered, the engine lives on the simulated disk.

    `reached(name)` is called at failpoints.
    """
    names: dict[tuple[str, str], Any] = dict(tuning.constants())
    for module in _RANDOM_NAMES:
        names[module, "secrets"] = SimpleNamespace(token_hex=chance.token)
    # Calls are made by their own process: a thread beside it could not be paused with it.
    names["headrace.causal.calls", "Journal"] = partial(Journal, clock=clock_s, sleep=sleep)
    names["headrace.causal.outside", "tried"] = partial(outside.tried, clock=clock_s, sleep=sleep)
    names["headrace.causal.outside", "_within"] = lambda timeout, call, one: call(one)
    names |= _conducted(chance, clock_s, uptime_s, running)
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
