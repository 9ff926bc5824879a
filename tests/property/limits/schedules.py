"""Slots with limits at random, under rings that move: order, lateness, timers and watermarks.

The real driver, worker and state run, without Spark. A source shows some records before each
epoch; each plan has random limits and perhaps another ring. `C` sets timers and produces for `D`;
both are limited. Hooks write down what they see, and `Checks` knows what arrived when.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import numpy as np
from tests.unit.engine.support import Clock, Local

from headrace import Computation, state
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.setup import Setup
from headrace.model.source import Timing
from headrace.model.values.keys import HASH_SPACE
from headrace.model.values.time import END
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.decisions.next_step import Finish, Run
from headrace.plan.epoch import Plan
from headrace.plan.options import Options
from headrace.plan.rings.wanted import Move, Wanted
from headrace.sinks.memory import Memory
from headrace.store.memory import MemoryStore
from headrace.testing.simulator.workloads.source import SimulatedSource

KEYS = 6
EPOCHS = 24
LATENESS_US = 6


class Broken(Exception):
    """A promise is broken."""


class Seen:
    """What the hooks of a run have seen so far."""

    def __init__(self) -> None:
        self.records: list[tuple[str, Any, int, int, bool, int]] = []
        """(computation, key, id, time, late, watermark)."""
        self.timers: list[tuple[Any, int, int]] = []
        """(key, at, watermark)."""


SEEN = Seen()


class PerRecord(Computation):
    """Sets a timer for each record, and passes it on."""

    count: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        value = record.value
        seen = (record.timestamp, record.late, ctx.watermark)
        SEEN.records.append(("C", ctx.key, value["id"], *seen))
        self.count += 1
        if value["after"] and not record.late:
            ctx.set_timer(value["id"], at=record.timestamp + value["after"])
        ctx.produce({"key": ctx.key, "id": value["id"], "late": record.late})

    def process_timer(self, timer: Any, ctx: Any) -> None:
        SEEN.timers.append((ctx.key, timer.timestamp, ctx.watermark))
        ctx.produce({"key": ctx.key, "id": -1, "late": False})


class InOrder(PerRecord, ordered=True):
    """The same, in the order of time."""


class PerTable(Computation):
    """The same with tables."""

    count: int = state(0)

    def process_table(self, table: Any, ctx: Any) -> None:
        rows = table.to_pylist()
        before = ctx.watermark_before
        for row in rows:
            SEEN.records.append(("C", row["key"], row["id"], row["at"], False, before))
        counts = ctx.read().column("count").to_pylist()
        for row in rows:
            counts[row["key_index"]] += 1
        ctx.write(count=counts)
        setting = [row for row in rows if row["after"] and row["at"] >= before]
        for row in setting:
            at = [row["at"] + row["after"]]
            ctx.set_timers([row["key_index"]], at, tag=row["id"])
        ctx.produce_table(
            {
                "key": [row["key"] for row in rows],
                "id": [row["id"] for row in rows],
                "late": [row["at"] < before for row in rows],
            },
            timestamp=np.array([row["at"] for row in rows]),
        )

    def process_timers(self, table: Any, ctx: Any) -> None:
        rows = table.to_pylist()
        for row in rows:
            SEEN.timers.append((row["key"], row["timestamp"], ctx.watermark))
        ctx.produce_table(
            {
                "key": [row["key"] for row in rows],
                "id": [-1 for _ in rows],
                "late": [False for _ in rows],
            },
            timestamp=np.array([row["timestamp"] for row in rows]),
        )


class Consumer(Computation):
    """Sees what `C` produces."""

    count: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        value = record.value
        if record.late and not value["late"]:
            raise Broken(f"a row at {record.timestamp} is late downstream: {value}")
        if value["id"] >= 0:
            seen = (record.timestamp, record.late, ctx.watermark)
            SEEN.records.append(("D", ctx.key, value["id"], *seen))


KINDS: dict[str, type[Computation]] = {
    "records": PerRecord,
    "ordered": InOrder,
    "tables": PerTable,
}


class Schedule:
    """One run under a seed."""

    def __init__(self, seed: int, kind: str) -> None:
        self.random = random = Random(f"{seed} {kind}")
        self.kind = kind
        records = []
        now = 10
        for number in range(random.randrange(20, 70)):
            now += random.choice((0, 0, 1, 3, 8))
            at = max(0, now + random.randrange(-12, 8))
            after = random.randrange(1, 12) if random.random() < 0.5 else 0
            records.append({"id": number, "key": random.randrange(KEYS), "at": at, "after": after})
        self.records = records
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        self.source = SimulatedSource(timing, {"split": records})
        p = PipelineBuilder("limits")
        p.read("in", self.source)
        p.compute(KINDS[kind], inputs={"in": "key"}, outputs="out", name="C")
        p.compute(Consumer, inputs={"out": "key"}, name="D", outputs="done")
        p.stream("done").write(Memory())
        topology = p.freeze()
        topology.graph.injectors["in"].source.__dict__.update(vars(self.source))
        self.store = MemoryStore()
        setup = Setup(
            topology,
            "code",
            self.store,
            Local(topology, self.store),
            Options(slots=2, epoch_records=1000, background=False),
            clock=Clock(),
            seeds=lambda: 7,
        )
        self.source = topology.graph.injectors["in"].source
        self.driver: Driver = Follower(setup).take_over()
        self.arrived: dict[Any, list[int]] = {key: [] for key in range(KEYS)}
        self.late: dict[int, bool] = {}
        self.before: dict[Any, int] = {}
        """Key -> the highest watermark it has seen before this epoch."""
        self.carried = 0

    def run(self) -> None:
        """Runs it; raises Broken where a promise is broken."""
        global SEEN
        SEEN = Seen()
        for epoch in range(1, 1000):
            self._disturb(epoch <= EPOCHS)
            more = self.random.randrange(0, 7) if epoch <= EPOCHS else len(self.records)
            self.source.show("split", more)
            before = self.driver.ledger.ins.get("C", 0)
            seen = len(SEEN.records), len(SEEN.timers)
            step = self.driver.step()
            if isinstance(step, Run):
                self._arrive(step.plan, before)
            self._check(*seen)
            self.carried += sum(
                file.rows for files in self.driver.ledger.outbox.values() for file in files
            )
            if isinstance(step, Finish):
                self._check_end()
                return
        raise Broken("it does not end")

    def _disturb(self, wild: bool) -> None:
        random, settings, ledger = self.random, self.driver.settings, self.driver.ledger
        limited: dict[str, int] = {}
        if wild:
            for name in ledger.slots:
                if random.random() < 0.3:
                    lows = [HASH_SPACE * i // 4 for i in range(5)]
                    moves = [Move(a, b - 1, random.randrange(3)) for a, b in pairwise(lows)]
                    ledger.wanted[name] = Wanted(moves=tuple(moves))
                for slot in range(3):
                    limit = random.choice((None, None, 0, 1, 2, 5))
                    if limit is not None:
                        limited[f"{name}/{slot}"] = limit
        self.driver.settings = msgspec.structs.replace(settings, limited=limited)

    def _arrive(self, plan: Plan, before: int) -> None:
        """Notes what an epoch has read; `before` is in(e-1)."""
        for read in (read for task in plan.reads for read in task):
            for record in self.records[read.range.start : read.range.end]:
                self.arrived[record["key"]].append(record["id"])
                self.late[record["id"]] = record["at"] < before != END

    def _check(self, records: int, timers: int) -> None:
        done = {id for of, _, id, *_ in SEEN.records if of == "C"}
        for key in range(KEYS):
            mine = [r for r in SEEN.records if r[0] == "C" and r[1] == key]
            self._check_order(key, [r[2] for r in mine])
        highest = dict(self.before)
        for of, key, id, time, late, watermark in SEEN.records[records:]:
            if of != "C":
                continue
            if self.kind != "tables" and late != self.late[id]:
                raise Broken(f"record {id} at {time}: late is {late} when it runs")
            if self.kind != "ordered":
                self._rises(key, watermark, highest)
        for key, at, watermark in SEEN.timers[timers:]:
            if self.kind != "ordered":
                self._rises(key, watermark, highest)
            for id in self.arrived[key]:
                if id not in done and not self.late[id] and self.records[id]["at"] < at:
                    raise Broken(f"timer {at} of key {key} fired before record {id} that waits")
        self.before = highest

    def _check_order(self, key: int, ids: list[int]) -> None:
        if self.kind == "ordered":
            on_time = [id for id in ids if not self.late[id]]
            right = sorted(on_time, key=lambda id: (self.records[id]["at"], id))
            if on_time != right:
                raise Broken(f"key {key} saw {on_time}, in the order of time it is {right}")
        elif ids != self.arrived[key][: len(ids)]:
            raise Broken(f"key {key} saw {ids}, {self.arrived[key]} came")

    def _rises(self, key: Any, watermark: int, highest: dict[Any, int]) -> None:
        if watermark < self.before.get(key, 0):
            raise Broken(f"key {key} saw watermark {self.before[key]} and then {watermark}")
        highest[key] = max(highest.get(key, 0), watermark)

    def _check_end(self) -> None:
        for of in ("C", "D"):
            found = sorted(r[2] for r in SEEN.records if r[0] == of)
            if found != list(range(len(self.records))):
                raise Broken(f"{of} processed {found}")
        if self.driver.ledger.outbox:
            raise Broken("records wait, though the run has ended")


def complaint(seed: int, kind: str) -> str | None:
    """What is broken under a seed; None if nothing is."""
    schedule = Schedule(seed, kind)
    try:
        schedule.run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        schedule.driver.close()
    return None
