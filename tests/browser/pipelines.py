"""A pipeline for the page: 64 slots, skew, dead letters, hostile keys and values."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from tests.unit.engine.support import follower_of

from headrace import Computation, state, to
from headrace.engine.job import Job
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.sinks import memory as memory_sink
from headrace.sources import generate
from headrace.store.disk import DiskStore
from headrace.store.location import open_store

SLOTS = 64
HOSTILE = "<img src=x onerror=alert(1)>"


class Clean(Computation):
    """Without a key."""

    def process_record(self, record: Any, ctx: Any) -> None:
        ctx.produce(record.value)


class Orders(Computation):
    count: int = state(0)
    cents: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        if record.value["cents"] == 13:
            raise ValueError(f"unlucky {HOSTILE}")
        self.count += 1
        self.cents += record.value["cents"]
        ctx.count(f"orders {HOSTILE}")
        ctx.produce({"shop": record.value["shop"], "cents": self.cents})
        time.sleep(0.0002)  # busy, so that load shows


class Shops(Computation):
    cents: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.cents = max(self.cents, record.value["cents"])
        ctx.produce({"shop": ctx.key, "cents": self.cents})


def order(n: int, dice: random.Random) -> dict[str, Any]:
    if n % 211 == 0:
        return {"customer": HOSTILE, "shop": HOSTILE, "cents": 13}
    customer = 1 if dice.random() < 0.1 else dice.randrange(500)
    cents = 13 if n % 97 == 0 else dice.randrange(100, 5_000)
    return {"customer": f"c{customer}", "shop": f"shop {customer % 9}", "cents": cents}


def shop(name: str = "shop", rate: float = 400.0) -> Topology:
    pipeline = PipelineBuilder(name)
    pipeline.read("orders", generate(order, rate=rate, paced=True, splits=2, lateness="2s"))
    pipeline.compute(Clean, inputs={"orders": None}, outputs="cleaned")
    pipeline.compute(Orders, inputs={"cleaned": "customer"}, outputs="sums", errors=to("dead"))
    pipeline.compute(Shops, inputs={"sums": "shop"}, outputs="best")
    pipeline.stream("best").write(memory_sink())
    pipeline.stream("dead").write(memory_sink())
    return pipeline.freeze()


def running(where: Path | str, *, epochs: int = 6, slots: int = SLOTS) -> Job:
    """A job on a checkpoint in a directory or at a URL, after some epochs; it needs no Spark."""
    follower = follower_of(
        shop(),
        open_store(where) if isinstance(where, str) else DiskStore(where),
        clock=lambda: time.time_ns() // 1000,
        until=None,
        slots=slots,
        epoch_records=400,
        balance="even",
        lease_s=3.0,
    )
    job = Job(follower)
    deadline = time.monotonic() + 240
    while job.status().epoch < epochs:
        if not job.running:
            job.wait()
        if time.monotonic() > deadline:
            raise TimeoutError("the pipeline does not come on")
        time.sleep(0.05)
    return job
