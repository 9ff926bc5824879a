"""Hooks with their own random numbers: tries differ, but what is committed must be consistent.

There is no reference for the right output. But the rows that level 1 published, the rows that level
2 received, and the state of both must agree after every epoch.
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
from headrace.testing.simulator.workloads.records import LATENESS_US, Attached, stamped
from headrace.testing.simulator.workloads.source import SimulatedSource

_dice = Random()


class Roller(Computation):
    """Rolls a die for every record, and sends the points to a player."""

    rolled: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        points, player = _dice.randint(1, 6), _dice.randint(0, 4)
        self.rolled += points
        roll = {"id": record.value["id"], "points": points, "player": player}
        ctx.produce(roll)


class Player(Computation):
    """Adds up the points."""

    total: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.total += record.value["points"]
        ctx.produce({"player": ctx.key, "total": self.total})


class DiceWorkload(Attached):
    """The workload."""

    name = "dice"
    repeats = False
    """Its hooks use random numbers of their own, so a rerun makes other output."""

    def __init__(self, random: Random) -> None:
        def record(i: int, at: int) -> dict[str, int]:
            return {"id": i, "key": i % 4, "at": at}

        _dice.seed(random.getrandbits(32))
        self.count = random.randint(8, 22)
        self.records = {"in": stamped(random, self.count, record)}
        self._rolls: dict[int, list[Any]] = {}
        self._totals: dict[int, list[Any]] = {}

    def pipeline(self) -> PipelineBuilder:
        """Two levels, both published."""
        p = PipelineBuilder(self.name)
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        p.read("in", SimulatedSource(timing, self.records["in"]))
        p.compute(Roller, inputs={"in": "key"}, outputs="rolls")
        p.compute(Player, inputs={"rolls": "player"}, outputs="totals")
        p.stream("rolls").write(Memory())
        p.stream("totals").write(Memory())
        return p

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """When both sinks show an epoch, their rows must agree."""
        mine = self._rolls if sink == "rolls" else self._totals
        mine[epoch] = [value for value, _ in rows]
        if epoch in self._rolls and epoch in self._totals and not self.waits(epoch):
            self._agree(epoch)

    def _agree(self, epoch: int) -> None:
        expected: dict[int, int] = {}
        for rolls in (self._rolls[e] for e in sorted(self._rolls) if e <= epoch):
            for roll in rolls:
                expected[roll["player"]] = expected.get(roll["player"], 0) + roll["points"]
        found: dict[int, int] = {}
        for totals in (self._totals[e] for e in sorted(self._totals) if e <= epoch):
            for total in totals:
                found[total["player"]] = total["total"]
        if expected != found:
            raise Violation(f"epoch {epoch}: rolls add up to {expected}, totals say {found}")

    def check(self, outcome: SimulationOutcome) -> None:
        """Each record rolled once, and states agree with the output."""
        rolls = [roll for rolls in self._rolls.values() for roll in rolls]
        if sorted(roll["id"] for roll in rolls) != list(range(self.count)):
            raise Violation(f"rolled for {sorted(roll['id'] for roll in rolls)} of {self.count}")
        by_key: dict[int, int] = {}
        by_player: dict[int, int] = {}
        for roll in rolls:
            by_key[roll["id"] % 4] = by_key.get(roll["id"] % 4, 0) + roll["points"]
            by_player[roll["player"]] = by_player.get(roll["player"], 0) + roll["points"]
        rollers = {key: s["rolled"] for key, s in outcome.checkpoint.scan("Roller")}
        players = {key: s["total"] for key, s in outcome.checkpoint.scan("Player")}
        if (rollers, players) != (by_key, by_player):
            raise Violation(
                f"published {by_key} and {by_player}, but the states are {rollers} and {players}"
            )
