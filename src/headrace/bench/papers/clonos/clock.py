"""Clonos' section 4.2 (a cached clock needs fewer determinants) and 7.5 (the in-flight log)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from headrace.bench.frame.rounds import Say
from headrace.bench.papers.local.engine import LocalRun
from headrace.bench.papers.local.serving import itself
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.causal.packing import unpack_determinants
from headrace.engine.history.shards import decode_body
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.log import paths
from headrace.log.entry import COMMIT
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.services import service
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.entries import CommitBody
from headrace.sources.in_memory import memory

CALLS = 2_000
RECORDS = 10
LESS = 100.0


@service(log="with the commit")
def ask_clock(number: int) -> int:
    """The clock of the machine, asked outside: each answer is a determinant of its own."""
    return time.time_ns() // 1000


class AskNow(Computation):
    """Asks `ctx.now()` in a tight loop."""

    asked: int = state(0)
    last: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Asks often."""
        for _ in range(CALLS):
            self.last = ctx.now()
        self.asked += CALLS


class AskOutside(Computation):
    """Asks the machine's clock in a tight loop; every answer is logged."""

    asked: int = state(0)
    last: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Asks often."""
        for number in range(CALLS):
            self.last = ctx.call(ask_clock, number)
        self.asked += CALLS


def measure(say: Say) -> Points:
    """Determinants and bytes of the log: a clock that follows from the plan, and a logged one."""
    found = {"now": _run(AskNow), "logged": _run(AskOutside), "nothing": _run(AskNow, calls=False)}
    for name, each in found.items():
        say(f"{name}: {each}")
    right = all(found[name]["asked"] == CALLS * RECORDS for name in ("now", "logged"))
    return {"clocks": found, "right": right}


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """A hundred times fewer determinants, and no bytes for them."""
    clocks = points["clocks"]
    few, many = (clocks[name]["determinants"] for name in ("now", "logged"))
    shape = Judgement().at_least("logged calls for one of ctx.now()", many / max(few, 1), LESS)
    more = clocks["logged"]["log_bytes"] - clocks["nothing"]["log_bytes"]
    ours = clocks["now"]["log_bytes"] - clocks["nothing"]["log_bytes"]
    return shape.at_least(
        "bytes that they add to the log, as a ratio,", more / max(ours, 1), LESS
    ).verdict()


def _run(computation: type[Computation], *, calls: bool = True) -> dict[str, int]:
    """One epoch over some records. Without calls: what the log has anyway."""
    pipeline = PipelineBuilder("clock")
    pipeline.read("numbers", memory(list(range(RECORDS)), timestamps=range(RECORDS)))
    chosen = computation if calls else AskNothing
    pipeline.compute(chosen, inputs={"numbers": itself}, outputs="unused", name="ask")
    run = LocalRun(pipeline, threads=1, slots=1, epoch_records=RECORDS)
    run.read(RECORDS)
    driver = run.driver
    kept = [fields for _, fields in Checkpoint(run.store).scan("ask")]
    size = sum(len(run.store.read(paths.log_entry(at))) for at in range(1, driver.log.position + 1))
    answers = 0
    for position in range(1, driver.log.position + 1):
        entry = driver.log.read(position)
        if entry is not None and entry.kind == COMMIT:
            commit = decode_body(position, entry, CommitBody).commit
            answers += sum(len(unpack_determinants(p)) for p in commit.determinants.values())
    run.close()
    return {
        "asked": sum(each["asked"] for each in kept),
        "determinants": answers,
        "log_bytes": size,
    }


class AskNothing(Computation):
    """The same state without a question."""

    asked: int = state(0)
    last: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Asks nothing."""
        self.asked += CALLS
        self.last = 1_700_000_000_000_000


NOT_APPLICABLE = (
    "not applicable: Spark's shuffle files are the in-flight log, so its size is no setting of ours"
)


def measure_nothing(say: Say) -> Points:
    """There is nothing to run."""
    say(NOT_APPLICABLE)
    return {"not_applicable": NOT_APPLICABLE}


def judge_nothing(points: Mapping[str, Any]) -> ShapeVerdict:
    """There is no log of ours whose size could matter, so the shape is not the paper's."""
    return Judgement().claim("there is an in-flight log of our own", "log_mb" in points).verdict()


CLONOS_42 = PaperRow(
    "clonos-4.2",
    "a cached clock: determinants down 100 x",
    f"without Spark: `ctx.now()` {CALLS:,} times for each record, beside a clock whose answers "
    "are logged",
    "at least 100 x",
    measure,
    judge,
)
CLONOS_75 = PaperRow(
    "clonos-7.5",
    "in-flight log: worse below 50 MB, no gain above 80 MB",
    NOT_APPLICABLE,
    "say so",
    measure_nothing,
    judge_nothing,
    note=NOT_APPLICABLE,
    applies=False,
)
