"""The weaker guarantee levels: at-least-once loses nothing, at-most-once shows nothing twice.

Both workloads count the records of a key and show each record with its count. At-least-once may
show a row of an epoch several times, but its counts are exact. At-most-once may skip records and
leave rows undelivered, but must report every one of them.
"""

from __future__ import annotations

from collections import Counter
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


class Tally(Computation):
    """Counts, and shows the count."""

    count: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.count += 1
        ctx.produce({"id": record.value["id"], "count": self.count})


class AtLeastOnce:
    """The workload that may show a row twice."""

    name = "at-least-once"

    def __init__(self, random: Random) -> None:
        def record(i: int, at: int) -> dict[str, int]:
            return {"id": i, "key": i % 4, "at": at}

        self.count = random.randint(8, 22)
        self.records = {"in": stamped(random, self.count, record)}

    def pipeline(self) -> PipelineBuilder:
        """One level."""
        p = PipelineBuilder(self.name, guarantee=self.name)
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        p.read("in", SimulatedSource(timing, self.records["in"]))
        p.compute(Tally, inputs={"in": "key"}, outputs="tallies")
        p.stream("tallies").write(Memory())
        return p

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """Does nothing: a single epoch has no check of its own."""

    def check(self, outcome: SimulationOutcome) -> None:
        """Every record counts once, and each committed epoch is shown completely at least once."""
        made = [hook.what["id"] for hooks in outcome.hooks for hook in hooks]
        if sorted(made) != list(range(self.count)):
            raise Violation(f"records that counted: {sorted(made)} of {self.count}")
        _check_counts(outcome, made)
        shown = outcome.weak["tallies"]
        for epoch, hooks in enumerate(outcome.hooks, 1):
            expected = sorted(hook.what["id"] for hook in hooks)
            found = [sorted(value["id"] for value, _ in rows) for rows in shown.get(epoch, [])]
            if expected and expected not in found:
                raise Violation(f"epoch {epoch} made {expected}, shown were only {found}")


class AtMostOnce(AtLeastOnce):
    """The workload that may lose a row."""

    name = "at-most-once"

    def check(self, outcome: SimulationOutcome) -> None:
        """Every record is counted or skipped, no row is shown twice (`Deliveries`: the rest)."""
        made = [hook.what["id"] for hooks in outcome.hooks for hook in hooks]
        skipped: list[int] = []
        for plan, void in outcome.voids:
            if not void.get("skipped"):
                continue
            lost = [
                record["id"]
                for read in (read for task in plan["reads"] for read in task)
                for record in self.records[read["stream"]][read["split"]][
                    read["range"]["start"] : read["range"]["end"]
                ]
            ]
            if void["records"] != len(lost):
                raise Violation(f"{len(lost)} records were skipped, {void['records']} counted")
            skipped += lost
        if sorted(made + skipped) != list(range(self.count)):
            raise Violation(
                f"of {self.count} records {sorted(made)} counted and {sorted(skipped)} were skipped"
            )
        _check_counts(outcome, made)
        shown = [v["id"] for rows in outcome.outputs["tallies"].values() for v, _ in rows]
        twice = sorted(name for name, times in Counter(shown).items() if times > 1)
        if twice:
            raise Violation(f"shown twice: {twice}")


def _check_counts(outcome: SimulationOutcome, made: list[int]) -> None:
    found = {key: s["count"] for key, s in outcome.checkpoint.scan("Tally")}
    expected = dict(Counter(name % 4 for name in made))
    if found != expected:
        raise Violation(f"counts are {found}, should be {expected}")
