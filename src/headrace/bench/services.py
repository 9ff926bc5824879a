"""What causal services cost: one pipeline in three variants.

Every record asks for the time, a random number and a unique id, and adds its value to its
key's count; one in `ONE_IN` also calls a service that takes about `WORK_US` microseconds. The
answers are produced and written to Parquet files.

- `exactly-once`: through `ctx`, the service's answer logged with the commit.
- `exactly-once-bare`: the same code with `time`, `random` and `uuid` of the standard
  library, and the service called as a function. Nothing is logged; a rerun of an epoch
  would give other results.
- `at-most-once`: as bare, in a pipeline with that guarantee.
"""

from __future__ import annotations

import hashlib
import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from pyspark.sql import SparkSession

from headrace import Computation, EpochProgress, Pipeline, service, sinks, sources, state
from headrace.bench.frame.session import bench_session
from headrace.bench.frame.system import (
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    GUARANTEES,
    SERVICES,
    Measurement,
    Task,
)
from headrace.bench.ours import EpochFiles, counts_in
from headrace.bench.turns import Pass, Turn, run_by_turns

ONE_IN = 10
"""One record in this many asks the service."""

WORK_US = 50
_ROUNDS = 100
"""Hashes in a row: about WORK_US on a present machine; the notes contain the measured time."""


@service(log="with the commit")
def ask(number: int) -> int:
    """A service that does some work and returns a number."""
    data = b"%d" % number
    for _ in range(_ROUNDS):
        data = hashlib.sha256(data).digest()
    return data[0]


class Causal(Computation):
    """Through `ctx`: the same on every retry and replay."""

    count: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        """Calls the services for one record and adds its value."""
        value = record.value
        now, dice, name = ctx.now(), ctx.random.random(), ctx.uuid()
        answer = ctx.call(ask, value["value"]) if not value["value"] % ONE_IN else 0
        self.count += value["value"]
        ctx.produce({"now": now, "dice": dice, "id": name.hex, "answer": answer})


class Bare(Computation):
    """The same without `ctx`: a rerun gives other results."""

    count: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        """Calls the services for one record and adds its value."""
        value = record.value
        now, dice, name = time.time_ns() // 1000, random.random(), uuid.uuid4()
        answer = ask(value["value"]) if not value["value"] % ONE_IN else 0
        self.count += value["value"]
        ctx.produce({"now": now, "dice": dice, "id": name.hex, "answer": answer})


def pipeline(task: Task, name: str) -> Pipeline:
    """The pipeline of one of the three variants."""
    files = sources.parquet(str(task.input_dir), ordered_by_name=True, timestamp="ts")
    p = Pipeline("overhead", guarantee=AT_MOST_ONCE if name == AT_MOST_ONCE else "exactly-once")
    p.read("records", EpochFiles(task.workload, files))
    p.compute(
        Causal if name == EXACTLY_ONCE else Bare,
        inputs={"records": "key"},
        outputs="results",
        name="count",
    )
    p.stream("results").write(sinks.parquet(str(task.scratch_dir / name / "out")))
    return p


class ServiceCalls:
    """The three variants, which take turns epoch by epoch in one Spark session."""

    name = SERVICES

    def run(self, task: Task) -> Measurement:
        """All epochs of all three; the first variant's measurement has the others with it."""
        with bench_session(task, SERVICES) as spark:
            turns = run_by_turns({name: self._variant(task, name, spark) for name in GUARANTEES})
        measured = {name: self._measured(task, name, turns[name]) for name in GUARANTEES}
        return replace(measured.pop(EXACTLY_ONCE), others=measured)

    def _variant(self, task: Task, name: str, spark: SparkSession) -> Callable[[Pass], None]:
        p = pipeline(task, name)

        def run(end_epoch: Pass) -> None:
            def on_epoch(progress: EpochProgress) -> None:
                if progress.records:
                    end_epoch()

            p.run(
                checkpoint=_checkpoint(task, name),
                spark=spark,
                until="caught_up",
                slots=task.workload.slots,
                on_epoch=on_epoch,
            )

        return run

    def _measured(self, task: Task, name: str, turns: Sequence[Turn]) -> Measurement:
        workload = task.workload
        counted = turns[workload.first_measured_epoch - 1 : workload.last_epoch]
        return Measurement(
            epoch_ms=tuple(turn.ms for turn in counted),
            more={"cpu_ms": sum(turn.cpu_ms for turn in counted)},
            records=workload.measured_records,
            counts=counts_in(_checkpoint(task, name)),
            notes={
                "per record": "time, random number, unique id, one count, one production",
                "service": f"1 record in {ONE_IN}; it takes {_service_us():.0f} us here",
                "turns": "the three variants run one epoch each in turn, in one Spark session",
            },
        )


def _checkpoint(task: Task, name: str) -> str:
    return str(task.scratch_dir / name / "checkpoint")


def _service_us() -> float:
    start = perf_counter()
    for number in range(200):
        ask(number)
    return (perf_counter() - start) / 200 * 1e6


SERVICE_CALLS = ServiceCalls()
