"""A lookup table that refreshes: an epoch uses one version of it, whatever dies.

No two readings of the simulated table are the same, and some fail. So a task that used another
version than its plan names shows in the published rows, or in the state.
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

KEYS = 3


class ChangingTable:
    """The table outside."""

    def __init__(self, random: Random) -> None:
        self._random = Random(random.getrandbits(32))
        self._fails = self._random.choice((0.0, 0.3))
        self.readings = 0

    def read(self) -> dict[int, dict[str, int]]:
        """A new version at each reading."""
        if self.readings and self._random.random() < self._fails:
            raise ConnectionError("the table is away")
        self.readings += 1
        return {key: {"version": self.readings} for key in range(KEYS)}


_table = ChangingTable(Random(0))


def read_table() -> dict[int, dict[str, int]]:
    """Reads the table of the running schedule."""
    return _table.read()


class KeepVersions(Computation):
    """Keeps which versions the records of a key met."""

    met: list[list[int]] = state()

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.met.append([record.value["id"], record.value["version"]])


class Refreshed:
    """The workload."""

    name = "refreshed"

    def __init__(self, random: Random) -> None:
        def record(i: int, at: int) -> dict[str, int]:
            return {"id": i, "key": i % KEYS, "at": at}

        global _table
        self.table = _table = ChangingTable(random)
        self._every = random.choice(("1us", "1ms", "1s"))
        self.count = random.randint(6, 20)
        self.records = {"in": stamped(random, self.count, record)}
        self._published: dict[int, int] = {}
        self._versions: dict[int, int] = {}

    def pipeline(self) -> PipelineBuilder:
        """A look-up, whose rows are published and kept."""
        p = PipelineBuilder(self.name)
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        read = p.read("in", SimulatedSource(timing, self.records["in"]))
        looked = read.lookup(read_table, on="key", refresh=self._every, name="looked")
        p.compute(KeepVersions, inputs={looked: "key"})
        looked.write(Memory())
        return p

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """All rows of an epoch are of one version, and each is published once."""
        for row, _ in rows:
            if row["id"] in self._published:
                raise Violation(f"{row['id']} was published twice")
            self._published[row["id"]] = row["version"]
            known = self._versions.setdefault(epoch, row["version"])
            if row["version"] != known:
                raise Violation(f"epoch {epoch} used the versions {known} and {row['version']}")

    def check(self, outcome: SimulationOutcome) -> None:
        """State and output met the same versions."""
        if sorted(self._published) != list(range(self.count)):
            raise Violation(f"published {sorted(self._published)} of {self.count}")
        kept = [tuple(met) for _, s in outcome.checkpoint.scan("KeepVersions") for met in s["met"]]
        if sorted(kept) != sorted(self._published.items()):
            raise Violation(f"{sorted(kept)} are kept, {sorted(self._published.items())} published")
        if any(version > self.table.readings for version in self._versions.values()):
            raise Violation(f"the versions {self._versions} were used, {self.table.readings} read")
