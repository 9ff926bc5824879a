"""Puts a simulated world under the engine: disk, clock, random names, small constants.

The code that runs is the engine's own. Only the names by which its modules reach
the outside (`os`, `Path`, `secrets`, `time`) and the constants that would make a
schedule long (how often files are collected, segments merged, ledgers kept) are
put in place of the real ones, for as long as a simulation runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from headrace import failpoints
from headrace.log.epochlog import EpochLog
from headrace.testing.simulator.chance import Chance
from headrace.testing.simulator.syscalls import SimulatedPath, Syscalls

_FILESYSTEM = (
    "headrace.log.files",
    "headrace.log.store",
    "headrace.sinks.files",
    "headrace.sinks.high_water",
    "headrace.sinks.staging",
)
_RANDOM_NAMES = (
    "headrace.log.files",
    "headrace.log.epochlog",
    "headrace.log.identity",
    "headrace.engine.compactor",
    "headrace.sinks.files",
)
_MISSING = object()


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

    def constants(self) -> dict[tuple[str, str], Any]:
        """(module, name) -> value."""
        return {
            ("headrace.log.paths", "LOG_DIRECTORY_ENTRIES"): self.log_directory_entries,
            ("headrace.engine.driver", "COLLECT_EVERY"): self.collect_every,
            ("headrace.engine.driver", "SNAPSHOT_EVERY"): self.snapshot_every,
            ("headrace.engine.compactor", "RETRY_AFTER"): 2,
            ("headrace.state.compaction", "RUN_MIN"): self.run_min,
            ("headrace.plan.ledger", "CHAINS_KEPT"): self.chains_kept,
            ("headrace.sinks.high_water", "MARKERS_KEPT"): 2,
        }


@contextmanager
def simulated_world(
    system: Syscalls, chance: Chance, tuning: Tuning, clock_s: Any, reached: Any
) -> Iterator[None]:
    """While entered, the engine lives on the simulated disk; `reached(name)` at failpoints."""
    names: dict[tuple[str, str], Any] = dict(tuning.constants())
    for module in _FILESYSTEM:
        names[module, "os"] = system
        names[module, "Path"] = SimulatedPath
    for module in ("headrace.sinks.files", "headrace.sinks.staging"):
        names[module, "shutil"] = SimpleNamespace(rmtree=system.rmtree)
    names["headrace.sinks.staging", "open"] = system.open_file
    for module in _RANDOM_NAMES:
        names[module, "secrets"] = SimpleNamespace(token_hex=chance.token)
    names["headrace.log.store", "time"] = SimpleNamespace(time=clock_s)
    names["headrace.engine.driver", "EpochLog"] = partial(EpochLog, sleep=lambda seconds: None)
    SimulatedPath.system = system
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
