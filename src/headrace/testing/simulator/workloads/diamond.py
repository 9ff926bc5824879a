"""A diamond with feedback: two paths to one computation, and back to the start, several rounds.

in -> Gate -> left  -> West  -> west  -> Meeting -> done
       ^   -> right -> East  -> east  ->    |
       '---------------- again -------------'
"""

from __future__ import annotations

from random import Random
from typing import Any

from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.map import Map
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


class Gate(Computation):
    """Sends a record on both paths."""

    visits: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.visits += 1
        ctx.produce(record.value, to="left")
        ctx.produce(record.value, to="right")


class Way(Computation):
    """One of the two paths."""

    passed: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.passed += 1
        ctx.produce(record.value)


class Meeting(Computation):
    """Waits for a record on both paths, then sends it into the next round, or to the output."""

    waiting: Map[int, str] = state()
    rounds: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        value = record.value
        if value["round"] not in self.waiting:
            self.waiting[value["round"]] = record.stream
            return
        if self.waiting[value["round"]] == record.stream:
            ctx.produce({"id": value["id"], "twice": record.stream}, to="done")
        del self.waiting[value["round"]]
        self.rounds += 1
        if value["round"] < value["rounds"]:
            ctx.produce({**value, "round": value["round"] + 1}, to="again")
        else:
            ctx.produce({"id": value["id"], "rounds": self.rounds}, to="done")


class Diamond:
    """The workload."""

    name = "diamond"

    def __init__(self, random: Random) -> None:
        def record(i: int, at: int) -> dict[str, int]:
            return {"id": i, "round": 1, "rounds": 1 + i % 3, "at": at}

        self.records = {"in": stamped(random, random.randint(4, 11), record)}
        self._input = [record for split in self.records["in"].values() for record in split]

    def pipeline(self) -> PipelineBuilder:
        """Three levels and a loop."""
        p = PipelineBuilder(self.name)
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        p.read("in", SimulatedSource(timing, self.records["in"]))
        p.stream("again", feedback=True)
        ways = {"left": "left", "right": "right"}
        p.compute(Gate, inputs={"in": "id", "again": "id"}, outputs=ways)
        p.compute(Way, inputs={"left": lambda v: v["id"] % 3}, outputs="west", name="West")
        p.compute(Way, inputs={"right": lambda v: v["id"] % 2}, outputs="east", name="East")
        ends = {"again": "again", "done": "done"}
        p.compute(Meeting, inputs={"west": "id", "east": "id"}, outputs=ends)
        p.stream("done").write(Memory())
        return p

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """Does nothing: a single epoch has no check of its own."""

    def check(self, outcome: SimulationOutcome) -> None:
        """Each record has made each of its rounds once, on both paths."""
        done = [value for rows in outcome.outputs["done"].values() for value, _ in rows]
        expected = [{"id": r["id"], "rounds": r["rounds"]} for r in self._input]
        found = sorted(done, key=lambda value: value["id"])
        if found != sorted(expected, key=lambda value: value["id"]):
            raise Violation(f"done: expected {expected}, found {found}")
        rounds = {r["id"]: r["rounds"] for r in self._input}
        state = {
            name: dict(outcome.checkpoint.scan(name))
            for name in ("Gate", "West", "East", "Meeting")
        }
        visits = {key: s["visits"] for key, s in state["Gate"].items()}
        met = {key: s["rounds"] for key, s in state["Meeting"].items()}
        if visits != rounds or met != rounds:
            raise Violation(f"rounds {rounds}, but visits {visits} and meetings {met}")
        if any("waiting" in s for s in state["Meeting"].values()):
            raise Violation(f"Meeting still waits: {state['Meeting']}")
        for name in ("West", "East"):
            passed = sum(s["passed"] for s in state[name].values())
            if passed != sum(rounds.values()):
                raise Violation(f"{name} was passed {passed} times, not {sum(rounds.values())}")
        late = [hook.what for made in outcome.hooks for hook in made if hook.late]
        if late:
            raise Violation(f"late, though nothing can be: {late}")
