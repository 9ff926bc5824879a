"""Unique ids through two levels with timers: each record and each timer has its effect once.

Level 1 counts the records of a key, sets an event timer and a wall-time timer for each id, and
keeps both in its state until they fire. An event timer produces a record with a time before its
own, so the timer holds the watermark back until then. Level 2 is ordered and numbers its records.
Timestamps are unique, so there is exactly one right output.
"""

from __future__ import annotations

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
from headrace.testing.simulator.workloads.records import LATENESS_US, stamped
from headrace.testing.simulator.workloads.source import SimulatedSource

DELAY_US = 35
"""From a record to its timer."""
ECHO_US = 5
"""From a record to its timer's production; half a step, so that no two timestamps are equal."""


class First(Computation):
    """Counts, and sets timers."""

    count: int = state(0)
    waiting: Map[str, int] = state()
    on_wall: Map[str, int] = state()

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        name = record.value["id"]
        self.count += 1
        self.waiting[name] = record.timestamp
        self.on_wall[name] = 1
        at = record.timestamp
        ctx.set_timer(name, at=at + DELAY_US, hold=at + ECHO_US)
        ctx.set_timer(name, after="20s", clock="wall")
        ctx.produce({"id": name, "kind": "record"}, to="mid")

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        name = str(timer.tag)
        if timer.clock == "wall":
            del self.on_wall[name]
            ctx.produce({"id": name, "wall": True}, to="walls")
            return
        since = self.waiting.pop(name)
        row = {"id": name, "kind": "timer", "since": since}
        ctx.produce(row, to="mid", timestamp=since + ECHO_US)


class FirstInOrder(First, ordered=True):
    """`First` as an ordered computation."""


class Second(Computation, ordered=True):
    """Numbers its records."""

    number: int = state(0)
    last: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.number += 1
        self.last = record.timestamp
        ctx.produce({**record.value, "number": self.number, "at": record.timestamp})


class UnorderedIds:
    """The workload, with a level 1 that takes records as they come."""

    name = "unordered-ids"
    first: type[First] = First

    def __init__(self, random: Random) -> None:
        self.keys, self.count = random.randint(1, 6), random.randint(6, 22)
        made = stamped(
            random,
            self.count,
            lambda i, at: {"id": f"r{i}", "key": i * 7 % self.keys, "at": at},
        )
        self.records = {"in": made}
        self._input = [record for split in made.values() for record in split]

    def pipeline(self) -> PipelineBuilder:
        """Two levels."""
        p = PipelineBuilder(self.name)
        p.read("in", SimulatedSource(_timing(), self.records["in"]))
        outputs = {"mid": "mid", "walls": "walls"}
        p.compute(self.first, inputs={"in": "key"}, outputs=outputs, name="First")
        p.compute(Second, inputs={"mid": bucket}, outputs="out")
        p.stream("out").write(Memory())
        p.stream("walls").write(Memory())
        return p

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """Does nothing: a single epoch has no check of its own."""

    def check(self, outcome: SimulationOutcome) -> None:
        """Every effect is there once, in order; the state is that of the reference."""
        self._check_output(outcome)
        self._check_walls(outcome)
        self._check_state(outcome)
        self._check_hooks(outcome)
        self._check_watermarks(outcome)

    def _check_output(self, outcome: SimulationOutcome) -> None:
        expected: dict[int, list[tuple[int, str, str]]] = {}
        for record in self._input:
            for kind, at in (("record", record["at"]), ("timer", record["at"] + ECHO_US)):
                place = expected.setdefault(bucket(record), [])
                place.append((at, record["id"], kind))
        found: dict[int, list[tuple[int, str, str]]] = {}
        for epoch in sorted(outcome.outputs["out"]):
            for value, timestamp in outcome.outputs["out"][epoch]:
                place = found.setdefault(bucket(value), [])
                place.append((timestamp, value["id"], value["kind"]))
                if value["number"] != len(place):
                    raise Violation(f"{value} is number {len(place)} of its key")
                if value["kind"] == "timer" and value["since"] + ECHO_US != timestamp:
                    raise Violation(f"{value} fired at {timestamp}")
        for key, rows in expected.items():
            _compare(f"out, key {key}", sorted(rows), found.get(key, []))

    def _check_walls(self, outcome: SimulationOutcome) -> None:
        """Each wall-time timer has fired once, or is still pending."""
        fired = [value["id"] for rows in outcome.outputs["walls"].values() for value, _ in rows]
        waiting = [
            name for _, s in outcome.checkpoint.scan("First") for name in s.get("on_wall", {})
        ]
        _compare("wall-time timers", sorted(r["id"] for r in self._input), sorted(fired + waiting))

    def _check_state(self, outcome: SimulationOutcome) -> None:
        counts: dict[int, int] = {}
        numbers: dict[int, int] = {}
        for record in self._input:
            counts[record["key"]] = counts.get(record["key"], 0) + 1
            numbers[bucket(record)] = numbers.get(bucket(record), 0) + 2
        first = dict(outcome.checkpoint.scan("First"))
        _compare("First.count", counts, {key: s.get("count") for key, s in first.items()})
        left = [name for s in first.values() for name in s.get("waiting", {})]
        _compare("First.waiting", [], left)
        second = {key: s.get("number") for key, s in outcome.checkpoint.scan("Second")}
        _compare("Second.number", numbers, second)

    def _check_hooks(self, outcome: SimulationOutcome) -> None:
        """Checks the recorded hook calls: each once, and timers in order per key."""
        calls: dict[tuple[str, str], int] = {}
        last: dict[object, int] = {}
        for hook in (hook for made in outcome.hooks for hook in made):
            if hook.late:
                raise Violation(f"{hook.what} was late at {hook.computation}")
            if hook.computation != "First":
                continue
            name = hook.what if hook.kind != "record" else hook.what["id"]
            calls[hook.kind, name] = calls.get((hook.kind, name), 0) + 1
            if hook.kind == "event":
                if hook.at < last.get(hook.key, 0):
                    raise Violation(f"timer {name} of key {hook.key} fired after a later one")
                last[hook.key] = hook.at
        twice = sorted(call for call, count in calls.items() if count > 1)
        _compare("calls that ran twice", [], twice)
        once = sorted(r["id"] for r in self._input)
        _compare("records", once, sorted(name for kind, name in calls if kind == "record"))
        _compare("event timers", once, sorted(name for kind, name in calls if kind == "event"))

    def _check_watermarks(self, outcome: SimulationOutcome) -> None:
        """No watermark has passed a pending timer, or a record that has not arrived."""
        unread = {record["id"]: record["at"] for record in self._input}
        pending: dict[str, int] = {}
        for commit, made in zip(outcome.commits, outcome.hooks, strict=True):
            for hook in made:
                if hook.computation == "First" and hook.kind == "record":
                    unread.pop(hook.what["id"], None)
                    pending[hook.what["id"]] = hook.at + ECHO_US
                elif hook.computation == "First" and hook.kind == "event":
                    pending.pop(hook.what, None)
            out = commit["outs"]["First"]
            oldest = min((*pending.values(), *unread.values()), default=END)
            if out > oldest:
                raise Violation(
                    f"after epoch {commit['epoch']} First says {out}, but {oldest} is pending"
                )


class OrderedIds(UnorderedIds):
    """The workload, with a level 1 that takes records in the order of time."""

    name = "ordered-ids"
    first = FirstInOrder


def bucket(value: Any) -> int:
    """The key of level 2."""
    return int(value["id"][1:]) % 3


def _timing() -> Timing:
    return Timing(timestamp="at", lateness=f"{LATENESS_US}us")


def _compare(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise Violation(f"{what}: expected {expected}, found {found}")
