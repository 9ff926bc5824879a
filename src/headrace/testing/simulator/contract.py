"""What a simulation asks of a workload, and what it hands back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from headrace.engine.replay.checkpoint import Checkpoint
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.testing.simulator.checkers.consumer import Row
from headrace.testing.simulator.drivers.workers import Hook


class Workload(Protocol):
    """What runs in a simulation, and what must be true of it."""

    name: str
    records: dict[str, dict[str, list[Any]]]
    """Stream -> split -> its records."""

    def pipeline(self) -> PipelineBuilder: ...
    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None: ...
    def check(self, outcome: SimulationOutcome) -> None: ...


@dataclass
class SimulationOutcome:
    """What is left at the end of a schedule."""

    outputs: dict[str, dict[int, list[Row]]]
    """Sink -> epoch -> its (value, timestamp) rows."""
    checkpoint: Checkpoint
    hooks: list[list[Hook]]
    """The calls of user code that made each committed epoch, key by key in their order."""
    commits: list[dict[str, Any]]
    """The commits as the log has them, decoded from JSON."""
    voids: list[tuple[dict[str, Any], dict[str, Any]]]
    """(plan, void) of plans that were given up, the same way."""
    weak: dict[str, dict[int, list[list[Row]]]]
    """Sink -> epoch -> the rows of each delivery that came before the commit, if one came."""
