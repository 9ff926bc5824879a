"""Rows with equal timestamps: they have one order, however the input was cut into epochs.

Level 1 stamps its rows with the end of a window, as windows do, so that rows of several keys and
slots have the same timestamp. Level 2 takes them in the order of time, breaks ties by their origin,
and numbers them.
"""

from __future__ import annotations

from random import Random
from typing import Any

from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.source import Timing
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sinks.memory import Memory
from headrace.testing.simulator.checkers.consumer import Row
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.contract import SimulationOutcome
from headrace.testing.simulator.workloads.records import LATENESS_US, stamped
from headrace.testing.simulator.workloads.source import SimulatedSource

WINDOW_US = 80


class NumberArrivals(Computation, ordered=True):
    """Moves every record to the end of its window."""

    seen: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.seen += 1
        ctx.produce(record.value, timestamp=window_end(record.timestamp))


class Number(Computation, ordered=True):
    """Numbers its records."""

    number: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.number += 1
        ctx.produce({"id": record.value["id"], "number": self.number, "by": ctx.key})


def window_end(at: int) -> int:
    """The last instant of its window."""
    return at // WINDOW_US * WINDOW_US + WINDOW_US - 1


class Ties:
    """The workload."""

    name = "ties"

    def __init__(self, random: Random) -> None:
        keys = random.randint(2, 7)

        def record(i: int, at: int) -> dict[str, int]:
            return {"id": i, "key": i * 5 % keys, "at": at}

        self.records = {"in": stamped(random, random.randint(8, 22), record)}
        self._input = [record for split in self.records["in"].values() for record in split]

    def pipeline(self) -> PipelineBuilder:
        """Two levels, both in the order of time."""
        p = PipelineBuilder(self.name)
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        p.read("in", SimulatedSource(timing, self.records["in"]))
        p.compute(NumberArrivals, inputs={"in": "key"}, outputs="stamped")
        p.compute(Number, inputs={"stamped": lambda v: v["id"] % 2}, outputs="numbered")
        p.stream("numbered").write(Memory())
        return p

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """Does nothing: a single epoch has no check of its own."""

    def check(self, outcome: SimulationOutcome) -> None:
        """The order is by window, then by the producing key, then as that key produced."""
        expected: dict[int, list[int]] = {}
        right = sorted(self._input, key=lambda r: (window_end(r["at"]), r["key"], r["at"]))
        for record in right:
            expected.setdefault(record["id"] % 2, []).append(record["id"])
        found: dict[int, list[int]] = {}
        for epoch in sorted(outcome.outputs["numbered"]):
            for value, _ in outcome.outputs["numbered"][epoch]:
                place = found.setdefault(value["by"], [])
                place.append(value["id"])
                if value["number"] != len(place):
                    raise Violation(f"{value} is number {len(place)} of its key")
        if found != expected:
            raise Violation(f"numbered: expected {expected}, found {found}")
        late = [hook.what for made in outcome.hooks for hook in made if hook.late]
        if late:
            raise Violation(f"late, though nothing can be: {late}")
