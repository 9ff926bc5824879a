"""Keys that are changed, emptied and forgotten while their intervals move back and forth (J).

Rings change in almost every epoch, between few slots and over few intervals, so that an interval
often comes back to a slot that has had it. Any run of segments is merged. So whatever a former
ownership has left behind, in a manifest, a merge, a cache or a prefetched piece, would be seen. The
check repeats the recorded hooks on plain dictionaries: each must have seen what these hold.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.map import Map
from headrace.model.record import Record, Timer
from headrace.model.source import Timing
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sinks.memory import Memory
from headrace.testing.simulator.checkers.consumer import Row
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.contract import SimulationOutcome
from headrace.testing.simulator.drivers.workers import Hook
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.workloads.source import SimulatedSource

PUT, DROP, FORGET, SEND = "put", "drop", "forget", "send"
STEP_US = 10
_FAULTS = (
    (),
    (kinds.DRIVER_DIES,),
    (kinds.DRIVER_DIES, kinds.CODE_CHANGES),
    (kinds.SLOT_SLEEPS,),
)
"""What half of the schedules have beside rings that change."""
TAGS = "abc"


class Holdings(Computation):
    """Says what it finds, and then does what the record asks."""

    last: int = state(0)
    items: Map[str, int] = state()

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        asked = record.value
        found = {"id": asked["id"], "last": self.last, "items": dict(self.items.items())}
        ctx.produce(found, to="seen")
        if asked["op"] == PUT:
            self.last = self.items[asked["tag"]] = asked["id"]
            ctx.set_timer(asked["tag"], at=record.timestamp + asked["after"])
        elif asked["op"] == DROP:
            self.items.pop(asked["tag"], None)
            ctx.cancel_timer(asked["tag"])
        elif asked["op"] == FORGET:
            ctx.forget()
        else:
            ctx.produce({**asked, "id": -asked["id"], "key": asked["to"], "op": PUT}, to="again")

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        self.items.pop(str(timer.tag), None)
        ctx.produce({"id": None, "key": ctx.key, "tag": timer.tag}, to="seen")


class _Kept:
    """What one key holds by the reference."""

    def __init__(self) -> None:
        self.last = 0
        self.items: dict[str, int] = {}
        self.timers: dict[str, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of it."""
        return not self.last and not self.items


class Moving:
    """The workload."""

    name = "moving"

    def __init__(self, random: Random) -> None:
        self.keys = random.randint(6, 12)
        splits: dict[str, list[Any]] = {f"split-{i}": [] for i in range(random.choice((1, 2)))}
        for i in range(1, random.randint(30, 60)):
            key = random.randrange(self.keys)
            op = random.choice((PUT, PUT, PUT, DROP, FORGET, FORGET, SEND))
            record = {
                "id": i, "key": key, "op": op, "tag": random.choice(TAGS), "at": i * STEP_US,
                "after": random.randint(1, 30) * STEP_US, "to": random.randrange(self.keys),
            }  # fmt: skip
            splits[f"split-{key % len(splits)}"].append(record)
        self.records = {"in": splits}
        self._input = [record for split in splits.values() for record in split]

    def attach(self, simulation: Any) -> None:
        """Makes epochs small and lets rings change; half of the schedules have few other faults."""
        chance, tuning = simulation.chance, simulation.tuning
        dice = Random(f"{chance.seed} moving")
        simulation.epoch_records = dice.randint(2, 4)
        tuning.rings_left, tuning.moves_back = 60, True
        tuning.merges_any_run()
        longer = msgspec.structs.replace(tuning.limits, prefetch_epochs_max=dice.randint(1, 6))
        tuning.limits = simulation.system.limits = longer
        # Rings that are wanted go with the driver that wants them, so few drivers die.
        chance.budget = min(chance.budget, dice.randint(1, 4))
        if chance.kinds and dice.random() < 0.5:
            chance.kinds = frozenset(dice.choice(_FAULTS))

    def pipeline(self) -> PipelineBuilder:
        """One level, and a loop."""
        p = PipelineBuilder(self.name)
        p.read("in", SimulatedSource(Timing(timestamp="at"), self.records["in"]))
        p.stream("again", feedback=True)
        ends = {"seen": "seen", "again": "again"}
        p.compute(Holdings, inputs={"in": "key", "again": "key"}, outputs=ends, name="Cells")
        p.stream("seen").write(Memory())
        return p

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """Does nothing: a single epoch has no check of its own."""

    def check(self, outcome: SimulationOutcome) -> None:
        """Each hook saw what plain dictionaries hold, and ran once."""
        kept = {key: _Kept() for key in range(self.keys)}
        told = [value for rows in outcome.outputs["seen"].values() for value, _ in rows]
        seen = {value["id"]: value for value in told if value["id"] is not None}
        fired = 0
        ran: list[int] = []
        for hook in (hook for made in outcome.hooks for hook in made):
            if hook.kind == "record":
                ran.append(hook.what["id"])
                _check_seen(hook, kept[hook.key], seen.get(hook.what["id"]))
                _asked(hook, kept[hook.key])
            else:
                fired += 1
                _fired(hook, kept[hook.key])
        self._check_ran(ran)
        if len(told) != len(ran) + fired:
            raise Violation(f"{len(ran)} records and {fired} timers made {len(told)} rows")
        self._check_end(outcome, kept)

    def _check_ran(self, ran: list[int]) -> None:
        right = [record["id"] for record in self._input]
        right += [-record["id"] for record in self._input if record["op"] == SEND]
        if sorted(ran) != sorted(right):
            lost, more = set(right) - set(ran), [each for each in ran if ran.count(each) > 1]
            raise Violation(f"records {sorted(lost)} never ran, {sorted(more)} ran again")

    def _check_end(self, outcome: SimulationOutcome, kept: dict[int, _Kept]) -> None:
        for key, each in kept.items():
            if each.timers:
                raise Violation(f"timers {each.timers} of key {key} never fired")
        right = {k: (each.last, each.items) for k, each in kept.items() if not each.is_empty}
        stored = dict(outcome.checkpoint.scan("Cells"))
        found = {k: (s.get("last", 0), dict(s.get("items", {}))) for k, s in stored.items()}
        found = {k: each for k, each in found.items() if each != (0, {})}
        if found != right:
            raise Violation(f"the checkpoint holds {found}, should be {right}")


def _check_seen(hook: Hook, kept: _Kept, seen: dict[str, Any] | None) -> None:
    right = {"id": hook.what["id"], "last": kept.last, "items": kept.items}
    if seen != right:
        raise Violation(f"key {hook.key}: {hook.what} saw {seen}, should be {right}")


def _asked(hook: Hook, kept: _Kept) -> None:
    """What a record does."""
    asked = hook.what
    if asked["op"] == PUT:
        kept.last = kept.items[asked["tag"]] = asked["id"]
        kept.timers[asked["tag"]] = hook.at + asked["after"]
    elif asked["op"] == DROP:
        kept.items.pop(asked["tag"], None)
        kept.timers.pop(asked["tag"], None)
    elif asked["op"] == FORGET:
        kept.last, kept.items, kept.timers = 0, {}, {}


def _fired(hook: Hook, kept: _Kept) -> None:
    """What a timer does; it must be there."""
    if kept.timers.pop(hook.what, None) != hook.at:
        raise Violation(f"key {hook.key}: timer {hook.what} fired at {hook.at}, and was not set")
    kept.items.pop(hook.what, None)
