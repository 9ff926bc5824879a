"""What drivers and readers may know of their schedule; they must not know the simulation itself."""

from __future__ import annotations

from typing import Protocol

from headrace.pipeline.graph.topology import Topology
from headrace.state.backend import OpenState
from headrace.store.store import Store
from headrace.testing.simulator.checkers.log_checker import LogChecker
from headrace.testing.simulator.contract import Workload
from headrace.testing.simulator.drivers.substrate import SimulatedSubstrate
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.faults.interval import WrittenState
from headrace.testing.simulator.faults.outages import Outages
from headrace.testing.simulator.faults.state_server import StateServer
from headrace.testing.simulator.machine.world import Tuning


class Scene(Protocol):
    """The disk, clocks and faults of one schedule, as drivers and readers see them."""

    workload: Workload
    chance: Chance
    tuning: Tuning
    topology: Topology
    substrate: SimulatedSubstrate
    log: LogChecker
    outages: Outages
    now: int
    """The wall clock, in microseconds since 1970."""
    code_version: int
    epoch_records: int
    written: WrittenState
    """The checkpoint intervals of drivers, and the loss of what was only written."""
    stopped: bool
    background: bool
    """Whether drivers merge and collect in threads beside their epochs."""
    lease_s: float
    opens: OpenState | None
    """Opens the state store; None where there is none."""
    state_server: StateServer | None
    learnt: dict[str, str]
    """Nonce of a request -> the verdict that its requester has learnt."""

    def uptime_s(self) -> float:
        """The monotonic clock of every process."""

    def progress(self) -> tuple[int, int]:
        """How much is in the log, and in the outputs."""

    def new_store(self) -> Store:
        """The checkpoint as a process that has just started sees it."""
