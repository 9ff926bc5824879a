"""The contract of a workload, and the outcome that a simulation gives to its check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from headrace.engine.replay.checkpoint import Checkpoint
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.testing.simulator.checkers.consumer import Row
from headrace.testing.simulator.drivers.workers import Hook


class Workload(Protocol):
    """A pipeline with its input, and the check of its outcome."""

    name: str
    records: dict[str, dict[str, list[Any]]]
    """Stream -> split -> its records."""

    def pipeline(self) -> PipelineBuilder: ...
    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None: ...
    def check(self, outcome: SimulationOutcome) -> None: ...


@dataclass
class SimulationOutcome:
    """Outputs, log, state and hook calls at the end of a schedule."""

    outputs: dict[str, dict[int, list[Row]]]
    """Sink -> epoch -> its (value, timestamp) rows."""
    checkpoint: Checkpoint
    hooks: list[list[Hook]]
    """For each committed epoch, the calls of user code that made it, in order per key."""
    commits: list[dict[str, Any]]
    """The commits as the log has them, decoded from JSON."""
    voids: list[tuple[dict[str, Any], dict[str, Any]]]
    """(plan, void) of voided plans, decoded from JSON."""
    weak: dict[str, dict[int, list[list[Row]]]]
    """Sink -> epoch -> the rows of each delivery before the commit."""
