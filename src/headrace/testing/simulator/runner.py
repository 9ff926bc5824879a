"""Runs seeds, one after another or in several processes, and reports what a failing one did."""

from __future__ import annotations

import gc
import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from random import Random

from headrace.errors import CorruptCheckpoint
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.contract import SimulationOutcome, Workload
from headrace.testing.simulator.copies import Copies
from headrace.testing.simulator.deploying.schedule import Deploys, deploys_of
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.faults.kinds import DISK, OBJECTS
from headrace.testing.simulator.simulation import Simulation
from headrace.testing.simulator.workloads import WORKLOADS

TRACE_LINES_MAX = 60
COPIES, DEPLOYS = "copies", "deploys"
MOVING, BASKETS, STORED = "moving", "baskets", "stored"
SHARES = {"limited": 0.1, MOVING: 0.04, "refreshed": 0.04}
"""How often these workloads are chosen: with dice of their own, so that others keep their seeds."""
STORED_SHARE = 0.08
"""How often a schedule has a state store: with dice of its own too."""
_AT_ONCE = 20
"""How many seeds a process takes at a time."""


class SimulationFailed(AssertionError):
    """A guarantee was broken under a schedule: seed, complaint and trace."""


@dataclass(frozen=True)
class Verdict:
    """The result of one seed."""

    seed: int
    workload: str
    complaint: str | None
    """Which guarantee was broken; None where none was."""
    trace: list[str]
    struck: Counter[str] = field(default_factory=Counter)
    """How often each kind of fault struck."""
    command: str = ""
    """The command that runs this schedule again."""

    def __str__(self) -> str:
        if self.complaint is None:
            return f"seed {self.seed} ({self.workload}): every promise was kept"
        lines = self.trace[-TRACE_LINES_MAX:]
        if len(lines) < len(self.trace):
            lines.insert(0, f"({len(self.trace) - len(lines)} lines before these)")
        trace = "".join(f"\n    {line}" for line in lines)
        return (
            f"seed {self.seed} ({self.workload}): {self.complaint}\n"
            f"  what happened:{trace}\n"
            f"  to see it again: {self.command}"
        )


def run_seed(
    seed: int,
    workload: str | None = None,
    outer: Sequence[str] = (),
    face: str | None = None,
) -> Verdict:
    """One schedule over one of our workloads: the seed's own choice, or the one named.

    - `outer`: kinds of faults (with `around=True`) that the schedule always has.
    - `face`: what the checkpoint lies on, a disk or an object store; default: the seed's choice.
    """
    command = f"headrace chaos --seeds 1 --from {seed}"
    if workload is not None:
        command += f" --workload {workload}"
    if face is not None:
        command += f" --store {face}"
    copies = workload is None and Random(f"{seed} copies").random() < 0.02
    if workload == COPIES or copies:
        return _run_copies(seed, command, face or face_of(seed))
    if workload == DEPLOYS or (workload is None and deploys_of(seed)):
        return _run_deploys(seed, command, face or face_of(seed))

    stored = workload == STORED or (workload is None and stored_of(seed))

    def make(random: Random) -> Workload:
        names = sorted(WORKLOADS.keys() - {*SHARES, BASKETS})
        own = names[random.randrange(len(names))]
        for name, share in SHARES.items():
            # `moving` chooses its faults itself, and may leave out those that are always to be.
            chosen = Random(f"{seed} {name}").random() < share and not (outer and name == MOVING)
            own = name if chosen else own
        if stored and Random(f"{seed} {BASKETS}").random() < 0.6:
            own = BASKETS
        return WORKLOADS[own if workload in (None, STORED) else workload](random)

    found, _ = judge(seed, make, command, outer=outer, face=face or face_of(seed), stored=stored)
    return found


def stored_of(seed: int) -> bool:
    """Whether a seed chooses a state store beside its checkpoint."""
    return Random(f"{seed} {STORED}").random() < STORED_SHARE


def face_of(seed: int) -> str:
    """What a seed chooses for its checkpoint to lie on."""
    return OBJECTS if Random(f"{seed} store").random() < 0.5 else DISK


def _run_copies(seed: int, command: str, face: str) -> Verdict:
    """One schedule over two copies of one checkpoint, with a disk and random numbers of its own."""
    chance = Chance(seed, faults=False, face=face)
    complaint: str | None = None
    try:
        Copies(chance).run()
    except Violation as violation:
        complaint = str(violation)
    return Verdict(seed, COPIES, complaint, chance.trace, chance.counts, command)


def _run_deploys(seed: int, command: str, face: str) -> Verdict:
    """One schedule of deploys, with a disk and random numbers of its own."""
    chance = Chance(seed, faults=False, face=face)
    complaint: str | None = None
    logging.disable(logging.WARNING)
    try:
        Deploys(chance).run()
    except Violation as violation:
        complaint = str(violation)
    finally:
        logging.disable(logging.NOTSET)
    return Verdict(seed, DEPLOYS, complaint, chance.trace, chance.counts, command)


def judge(
    seed: int,
    make: Callable[[Random], Workload],
    command: str,
    *,
    faults: bool = True,
    outer: Sequence[str] = (),
    face: str = DISK,
    stored: bool = False,
) -> tuple[Verdict, SimulationOutcome | None]:
    """One schedule over a workload made with the seed's dice."""
    chance = Chance(seed, faults=faults, outer=outer, face=face, stored=stored)
    workload = make(chance.random)
    complaint: str | None = None
    outcome: SimulationOutcome | None = None
    # The warnings of the engine here are about the injected faults.
    logging.disable(logging.WARNING)
    try:
        outcome = Simulation(workload, chance).run()
    except Violation as violation:
        complaint = str(violation)
    except CorruptCheckpoint as error:  # met by the checks: errors of drivers are judged earlier
        complaint = f"at the end the checkpoint cannot be read: {error}"
    finally:
        logging.disable(logging.NOTSET)
    return Verdict(seed, workload.name, complaint, chance.trace, chance.counts, command), outcome


def run_seeds(
    seeds: Sequence[int],
    *,
    processes: int = 1,
    workload: str | None = None,
    face: str | None = None,
) -> Iterator[Verdict]:
    """Many schedules, in the order of seeds."""
    if processes <= 1:
        for seed in seeds:
            yield run_seed(seed, workload, face=face)
        return
    parts = [(seeds[i : i + _AT_ONCE], workload, face) for i in range(0, len(seeds), _AT_ONCE)]
    # Spawned, not forked: the parent may hold a JVM and threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_freeze_modules) as pool:
        for verdicts in pool.map(_run_part, parts):
            yield from verdicts


def _freeze_modules() -> None:
    """Loaded modules stay loaded, so the garbage collector need not scan them again."""
    gc.collect()
    gc.freeze()


def _run_part(part: tuple[Sequence[int], str | None, str | None]) -> list[Verdict]:
    seeds, workload, face = part
    return [run_seed(seed, workload, face=face) for seed in seeds]
