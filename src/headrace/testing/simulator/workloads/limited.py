"""Slots that have limits: order, lateness and timers are as in a run without limits.

Records come out of order, and some are late. Level 1 sets a timer for each record that is not late,
and passes records on. Level 2, which in half of the runs drops what is beyond its limit, keeps what
reaches it. The check knows from the log alone when each record arrived and what was late then.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.map import Map
from headrace.model.record import Record, Timer
from headrace.model.source import Timing
from headrace.model.state import state
from headrace.model.values.time import END
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sinks.memory import Memory
from headrace.testing.simulator.checkers.consumer import Row
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.contract import SimulationOutcome
from headrace.testing.simulator.drivers.workers import Hook
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.workloads.source import SimulatedSource

LATENESS_US = 25
STEP_US = 10


class Waits(Computation):
    """Sets a timer for each record, and passes it on."""

    count: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.count += 1
        if not record.late:
            ctx.set_timer(record.value["id"], at=record.timestamp + record.value["after"])
        name, saw = record.value["id"], ctx.watermark
        ctx.produce({"id": name, "key": ctx.key, "late": record.late, "saw": saw})

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        name, saw = -1 - timer.tag, ctx.watermark
        ctx.produce({"id": name, "key": ctx.key, "late": False, "saw": saw})


class Keeps(Computation):
    """Keeps what reaches it."""

    ids: Map[int, int] = state()

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        name = record.value["id"]
        self.ids[name] = self.ids.get(name, 0) + 1
        # Attempts whose hooks saw different watermarks must not have the same output.
        ctx.produce({"id": name, "saw": record.value["saw"]})


class Limited:
    """The workload."""

    name = "limited"

    def __init__(self, random: Random) -> None:
        keys, at = random.randint(2, 6), 100
        names = [f"split-{i}" for i in range(random.choice((1, 1, 2)))]
        splits: dict[str, list[Any]] = {name: [] for name in names}
        for i in range(random.randint(10, 26)):
            at += random.choice((0, STEP_US, STEP_US, 3 * STEP_US))
            record = {
                "id": i,
                "key": random.randrange(keys),
                "at": at + random.randint(-50, 20),
                "after": random.randint(1, 60),
            }
            splits[random.choice(names)].append(record)
        self.records = {"in": splits}
        self._sheds = random.random() < 0.5

    def attach(self, simulation: Any) -> None:
        """Gives most schedules limits, and many of them rings that move."""
        chance = simulation.chance
        dice = Random(f"{chance.seed} limited slots")
        if chance.kinds and dice.random() < 0.8:
            chance.kinds |= {kinds.SLOTS_LIMITED}
            chance.kinds |= {kinds.SLOT_SLEEPS} if dice.random() < 0.4 else set()
            chance.kinds |= {kinds.RING_CHANGES} if dice.random() < 0.4 else set()
            chance.budget += 10
        simulation.tuning.limits_stay = Random(f"{chance.seed} limits stay").random() < 0.25

    def pipeline(self) -> PipelineBuilder:
        """Two levels, the first with timers."""
        p = PipelineBuilder(self.name)
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        p.read("in", SimulatedSource(timing, self.records["in"]))
        p.compute(Waits, inputs={"in": "key"}, outputs="passed")
        overload = "shed" if self._sheds else "carry"
        p.compute(Keeps, inputs={"passed": "key"}, outputs="kept", overload=overload)
        p.stream("kept").write(Memory())
        return p

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """Does nothing: a single epoch has no check of its own."""

    def check(self, outcome: SimulationOutcome) -> None:
        """Compares what hooks saw with what the log says of arrivals and watermarks."""
        arrived = dict(self._arrivals(outcome))
        late = {
            record["id"]: record["at"] < _before(outcome, "Waits", epoch)
            for epoch, record in arrived.values()
        }
        self._check_order(outcome, arrived, late)
        self._check_timers(outcome, arrived, late)
        self._check_watermarks(outcome, arrived)
        self._check_downstream(outcome)

    def _arrivals(self, outcome: SimulationOutcome) -> Iterator[tuple[int, tuple[int, Any]]]:
        """Id -> the epoch in which the record arrived, and the record; in the order of arrival."""
        before: dict[str, int] = {}
        for commit in outcome.commits:
            for split, known in sorted(commit["splits"].get("in", {}).items()):
                start, end = before.get(split, 0), known["position"]
                before[split] = end
                for record in self.records["in"][split][start:end]:
                    yield record["id"], (commit["epoch"], record)

    def _check_order(
        self, outcome: SimulationOutcome, arrived: dict[int, Any], late: dict[int, bool]
    ) -> None:
        ran: dict[int, list[int]] = {}
        for hook in _hooks(outcome, "Waits", "record"):
            ran.setdefault(hook.key, []).append(hook.what["id"])
            if hook.late != late[hook.what["id"]]:
                raise Violation(f"record {hook.what} ran as late={hook.late}, came as the opposite")
        right: dict[int, list[int]] = {}
        for name, (_, record) in arrived.items():
            right.setdefault(record["key"], []).append(name)
        if ran != right:
            raise Violation(f"records of keys arrived as {right}, and ran as {ran}")

    def _check_timers(
        self, outcome: SimulationOutcome, arrived: dict[int, Any], late: dict[int, bool]
    ) -> None:
        done: set[int] = set()
        for epoch, made in enumerate(outcome.hooks, 1):
            for hook in made:
                if hook.computation == "Waits" and hook.kind == "record":
                    done.add(hook.what["id"])
            for hook in made:
                if hook.computation != "Waits" or hook.kind != "event":
                    continue
                for name, (came, record) in arrived.items():
                    waits = came <= epoch and name not in done and not late[name]
                    if waits and record["key"] == hook.key and record["at"] < hook.at:
                        where = f"epoch {epoch}: timer {hook.at} of key {hook.key}"
                        raise Violation(f"{where} fired before {record}")

    def _check_watermarks(self, outcome: SimulationOutcome, arrived: dict[int, Any]) -> None:
        """A key without a record that waits sees the watermark of its computation."""
        ran = {
            hook.what["id"]: epoch
            for epoch, made in enumerate(outcome.hooks, 1)
            for hook in made
            if hook.computation == "Waits" and hook.kind == "record"
        }
        fired = {
            (hook.key, hook.what): epoch
            for epoch, made in enumerate(outcome.hooks, 1)
            for hook in made
            if hook.computation == "Waits" and hook.kind == "event"
        }
        for hook in _hooks(outcome, "Keeps", "record"):
            name, key, saw = hook.what["id"], hook.what["key"], hook.what["saw"]
            # A record sees the watermark after the epoch before its own, a timer that of its own.
            after = ran[name] - 1 if name >= 0 else fired[key, -1 - name]
            waits = any(
                record["key"] == key and came <= after < ran[other]
                for other, (came, record) in arrived.items()
            )
            right = outcome.commits[after - 1]["ins"]["Waits"] if after else saw
            if saw != right and not waits:
                where = f"key {key}, of which no record waited after epoch {after}"
                raise Violation(f"{where}, saw watermark {saw}, not {right}")

    def _check_downstream(self, outcome: SimulationOutcome) -> None:
        seen = list(_hooks(outcome, "Keeps", "record"))
        highest: dict[tuple[int, bool], int] = {}
        for hook in seen:
            if hook.late and not hook.what["late"]:
                raise Violation(f"{hook.what} at {hook.at} was on time, and is late downstream")
            # Records see the watermark before their epoch, timers that of their epoch.
            place, saw = (hook.key, hook.what["id"] < 0), hook.what["saw"]
            if saw < highest.get(place, 0):
                raise Violation(f"key {hook.key} saw watermark {highest[place]} and then {saw}")
            highest[place] = saw
        produced = sum(1 for _ in _hooks(outcome, "Waits", "record"))
        produced += sum(1 for _ in _hooks(outcome, "Waits", "event"))
        shed = sum(commit["counters"]["shed_of"].get("passed", 0) for commit in outcome.commits)
        if len(seen) + shed != produced or (shed and not self._sheds):
            raise Violation(f"{produced} rows were produced, {len(seen)} arrived, {shed} were shed")
        kept = {name for _, s in outcome.checkpoint.scan("Keeps") for name in s["ids"]}
        if kept != {hook.what["id"] for hook in seen}:
            raise Violation(f"kept are {sorted(kept)}, which is not what arrived")


def _before(outcome: SimulationOutcome, computation: str, epoch: int) -> int:
    """in(epoch - 1) of a computation; 0 where nothing is late."""
    if epoch == 1:
        return 0
    watermark = outcome.commits[epoch - 2]["ins"][computation]
    return 0 if watermark == END else int(watermark)


def _hooks(outcome: SimulationOutcome, computation: str, kind: str) -> Iterator[Hook]:
    for made in outcome.hooks:
        yield from (h for h in made if h.computation == computation and h.kind == kind)
