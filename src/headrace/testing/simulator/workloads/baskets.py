"""Baskets: fields and map entries that are set, deleted and forgotten; each output shows them all.

All records of a key come from one split, so their order is known, and so is every output: it shows
the whole state of its key. A value that came back, or one that was overlooked, shows at once.
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
from headrace.testing.simulator.workloads.records import LATENESS_US, Attached, stamped
from headrace.testing.simulator.workloads.source import SimulatedSource

KEYS = 6
_ACTS = ("set", "clear", "put", "put", "remove", "forget")

Shown = tuple[int, int | None, dict[str, int]]
"""How many records of its key there were, the owner, and the items."""


class Basket(Computation):
    """Does what each record says, and shows its state."""

    owner: int | None = state(None)
    items: Map[str, int] = state()

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        value = record.value
        act, item, number = value["act"], value["item"], value["number"]
        if act == "set":
            self.owner = number
        elif act == "clear":
            self.owner = None
        elif act == "put":
            self.items[item] = number
        elif act == "remove":
            self.items.pop(item, None)
        else:
            ctx.forget()
        if act == "forget":
            ctx.produce({"key": ctx.key, "number": number, "owner": None, "items": {}})
        else:
            items = dict(self.items.items())
            ctx.produce({"key": ctx.key, "number": number, "owner": self.owner, "items": items})


class Baskets(Attached):
    """The workload."""

    name = "baskets"

    def __init__(self, random: Random) -> None:
        numbers = iter(range(10_000))

        def act(i: int, at: int) -> dict[str, Any]:
            item = random.choice("abc")
            return {"act": random.choice(_ACTS), "item": item, "number": next(numbers), "at": at}

        self.records = {"acts": stamped(random, random.randint(16, 44), act)}
        for place, split in enumerate(self.records["acts"].values()):
            for record in split:
                record["key"] = f"{place}.{random.randrange(KEYS // 2)}"
        self.moments: list[tuple[int, dict[str, Shown]]] = []
        """What readers from outside have seen of the state store: (epoch, key -> state)."""

    def pipeline(self) -> PipelineBuilder:
        """One level."""
        p = PipelineBuilder(self.name)
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        p.read("acts", SimulatedSource(timing, self.records["acts"]))
        p.compute(Basket, inputs={"acts": "key"}, outputs="baskets")
        p.stream("baskets").write(Memory())
        return p

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """Each row is the state of its key after its record."""
        expected = self.expected()
        for value, _ in rows:
            found = (value["owner"], value["items"])
            if found != expected[value["number"]]:
                raise Violation(
                    f"epoch {epoch}: after record {value['number']} the key {value['key']} has "
                    f"{found}, should have {expected[value['number']]}"
                )

    def expected(self) -> dict[int, tuple[int | None, dict[str, int]]]:
        """Number of a record -> the state of its key after it."""
        found: dict[int, tuple[int | None, dict[str, int]]] = {}
        keys: dict[str, tuple[int | None, dict[str, int]]] = {}
        for split in self.records["acts"].values():
            for record in split:
                owner, items = keys.get(record["key"], (None, {}))
                items = dict(items)
                act, item, number = record["act"], record["item"], record["number"]
                if act == "set":
                    owner = number
                elif act == "clear":
                    owner = None
                elif act == "put":
                    items[item] = number
                elif act == "remove":
                    items.pop(item, None)
                else:
                    owner, items = None, {}
                keys[record["key"]] = found[number] = (owner, items)
        return found

    def check(self, outcome: SimulationOutcome) -> None:
        """The state at the end, and what readers have seen, are those of the reference."""
        (rows,) = outcome.outputs.values()
        numbers = sorted(v["number"] for epoch in rows.values() for v, _ in epoch)
        every = sorted(self.expected())
        if numbers != every:
            raise Violation(f"records {every} were sent, and {numbers} have come out")
        for epoch, seen in [*self.moments, (max(rows, default=0), _kept(outcome))]:
            right = self._at(epoch, rows)
            if seen != right:
                raise Violation(f"a reader saw {seen} as of epoch {epoch}, should be {right}")

    def _at(self, epoch: int, rows: dict[int, list[Row]]) -> dict[str, Any]:
        """The state after an epoch: of each key, what its last record until then has left."""
        expected = self.expected()
        last: dict[str, int] = {}
        for number, found in rows.items():
            for value, _ in found if number <= epoch else ():
                last[value["key"]] = max(last.get(value["key"], -1), value["number"])
        states = {key: expected[number] for key, number in last.items()}
        return {key: each for key, each in states.items() if each != (None, {})}


def _kept(outcome: SimulationOutcome) -> dict[str, Any]:
    found = outcome.checkpoint.scan("Basket")
    states = {key: (each.get("owner"), each.get("items", {})) for key, each in found}
    return {key: each for key, each in states.items() if each != (None, {})}
