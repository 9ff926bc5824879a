"""An epoch on Spark: one job, windows closed at any depth, tasks that die, code that fails."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import bag, rows, run_local, state_of, write_jsonl

from headrace import (
    SECOND,
    Computation,
    Context,
    EpochProgress,
    Pipeline,
    Record,
    Timer,
    UserCodeError,
    replay,
    sinks,
    sources,
    state,
)
from headrace.limits import LIMITS
from headrace.log import paths

pytestmark = pytest.mark.spark


class Window(Computation, ordered=True):
    """Adds up what falls into a second, and passes it on as that second's last instant."""

    sums: dict[int, int] = state()

    def process_record(self, record: Record[dict[str, int]], ctx: Context) -> None:
        second = record.timestamp // SECOND
        self.sums[second] = self.sums.get(second, 0) + record.value["n"]
        ctx.set_timer(second, at=(second + 1) * SECOND)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        row = {"second": timer.tag, "n": self.sums.pop(timer.tag), "key": ctx.key // 4}
        ctx.produce(row, timestamp=timer.timestamp - 1)


def windows(levels: int, records: list[dict[str, int]]) -> tuple[Pipeline, Any]:
    p = Pipeline(f"windows {levels} deep")
    p.read("0", sources.memory(records, timestamp="ts"))
    for level in range(1, levels + 1):
        p.compute(Window, name=f"W{level}", inputs={str(level - 1): "key"}, outputs=str(level))
    sink = sinks.memory()
    p.stream(str(levels)).write(sink)
    return p, sink


PER_EPOCH = 30
TICKS = [
    {"ts": number * 70_000, "n": number, "key": number % 16} for number in range(8 * PER_EPOCH)
]


@pytest.mark.parametrize("levels", [1, 3])
def test_a_window_closes_in_the_epoch_in_which_its_source_passed_it_and_each_epoch_is_one_job(
    spark: SparkSession, tmp_path: Path, levels: int
) -> None:
    group = f"windows-{levels}"
    jobs: list[int] = []
    tracker = spark.sparkContext.statusTracker()

    def count_jobs(progress: EpochProgress) -> None:
        jobs.append(len(tracker.getJobIdsForGroup(group)))

    pipeline, sink = windows(levels, TICKS)
    spark.sparkContext.setJobGroup(group, group)
    try:
        pipeline.run(
            checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2, until="caught_up",
            epoch_records=PER_EPOCH, on_epoch=count_jobs,
        )  # fmt: skip
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    closed_in: dict[int, int] = {}
    for epoch, found in sink.epochs.items():
        for row in found:
            assert closed_in.setdefault(row["second"], epoch) == epoch
    passed_in: dict[int, int] = {}
    for epoch in range(1, 9):
        watermark = TICKS[epoch * PER_EPOCH - 1]["ts"]
        for second in range(watermark // SECOND):
            passed_in.setdefault(second, epoch)
    assert closed_in == passed_in
    assert len(set(closed_in.values())) >= 7, "windows closed in many epochs"
    assert len(jobs) == 8
    assert [after - before for before, after in pairwise(jobs)] == [1] * 7
    for epoch in range(1, 9):
        found = replay(pipeline, checkpoint=str(tmp_path / "checkpoint"), epoch=epoch)
        assert found.equal, found.differences


class Total(Computation):
    """Sums up numbers."""

    total: int = state(0)

    def process_record(self, record: Record[dict[str, int]], ctx: Context) -> None:
        self.total += record.value["n"]
        ctx.produce({"key": ctx.key, "total": self.total})


def test_many_slots_are_sent_in_parts_and_workers_put_them_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = [{"n": n, "key": n % 150} for n in range(600)]
    pipeline, sink = Pipeline("many slots"), sinks.memory()
    pipeline.read("numbers", sources.memory(values))
    pipeline.compute(Total, inputs={"numbers": "key"}, outputs="totals")
    pipeline.stream("totals").write(sink)
    checkpoint = tmp_path / "checkpoint"
    pipeline.run(
        checkpoint=str(checkpoint), spark=spark, slots=LIMITS.order_slots_min,
        until="caught_up", epoch_records=150,
    )  # fmt: skip
    last = {row["key"]: row["total"] for row in sink.epochs[4]}
    assert last == {key: sum(range(key, 600, 150)) for key in range(150)}
    parts = [name for name in os.listdir(checkpoint / paths.WORK) if paths.is_order_part(name)]
    assert sorted(int(name.split("-")[0]) for name in parts) == [2, 3, 4]


# Tasks that die, code that fails.


class Frail(Computation):
    """Sums; on one record it kills its worker, once."""

    total: int = state(0)

    def __init__(self, *, flag: str) -> None:
        self.flag = flag

    def process_record(self, record: Record[dict[str, int]], ctx: Context) -> None:
        self.total += record.value["n"]
        ctx.produce({"key": ctx.key, "total": self.total})
        if record.value["n"] == 77 and not os.path.exists(self.flag):
            with open(self.flag, "w") as file:
                file.write(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)


NUMBERS = [{"n": n, "key": n % 7} for n in range(200)]


def sums(values: list[dict[str, int]]) -> list[dict[str, int]]:
    totals: dict[int, int] = {}
    found = []
    for value in values:
        totals[value["key"]] = totals.get(value["key"], 0) + value["n"]
        found.append({"key": value["key"], "total": totals[value["key"]]})
    return found


def test_a_python_worker_that_is_killed_is_replaced_and_its_records_count_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    flag = tmp_path / "died"
    p = Pipeline("frail")
    p.read("numbers", sources.memory(NUMBERS))
    p.compute(Frail(flag=str(flag)), inputs={"numbers": "key"}, outputs="sums")
    p.stream("sums").write(sinks.jsonl(tmp_path / "out"))
    summary = p.run(checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=3, epoch_records=50)
    assert int(flag.read_text()) != os.getpid(), "it was a worker that died, not the driver"
    assert bag(rows(tmp_path / "out")) == bag(sums(NUMBERS))
    assert summary.epochs == 5, "no epoch was given up"


def faulty() -> type[Computation]:
    class Summed(Computation):
        total: int = state(0)

        def process_record(self, record: Record[dict[str, int]], ctx: Context) -> None:
            self.total += record.value["n"]
            ctx.produce({"key": ctx.key, "total": 10 // (record.value["n"] - 130)})

    return Summed


def mended() -> type[Computation]:
    class Summed(Computation):
        total: int = state(0)

        def process_record(self, record: Record[dict[str, int]], ctx: Context) -> None:
            self.total += record.value["n"]
            ctx.produce({"key": ctx.key, "total": self.total})

    return Summed


def summed(computation: type[Computation], where: Path) -> Pipeline:
    p = Pipeline("summed")
    source = sources.jsonl(str(write_jsonl(where / "in" / "numbers.jsonl", NUMBERS)))
    p.read("numbers", source)
    p.compute(computation, inputs={"numbers": "key"}, outputs="sums")
    p.stream("sums").write(sinks.jsonl(where / "out"))
    return p


@pytest.mark.parametrize("on_spark", [True, False], ids=["spark", "local"])
def test_a_fault_in_user_code_names_the_record_and_once_mended_the_run_goes_on_from_there(
    spark: SparkSession, tmp_path: Path, on_spark: bool
) -> None:
    options: dict[str, Any] = {"slots": 2, "epoch_records": 50}
    checkpoint = tmp_path / "checkpoint"

    def run(computation: type[Computation]) -> Any:
        pipeline = summed(computation, tmp_path)
        if on_spark:
            return pipeline.run(checkpoint=str(checkpoint), spark=spark, **options)
        return run_local(pipeline, checkpoint, **options)

    with pytest.raises(UserCodeError) as failure:
        run(faulty())
    said = str(failure.value)
    assert "'Summed'" in said and "key 4" in said and "{'n': 130, 'key': 4}" in said, said
    assert "ZeroDivisionError" in said and "ctx.produce" in said, "the line that failed is shown"
    before = {k: v["total"] for k, v in state_of(checkpoint)["Summed"].items()}
    assert before == {key: sum(n for n in range(100) if n % 7 == key) for key in range(7)}
    with pytest.raises(UserCodeError):
        run(faulty())  # Trying again without a change gives the same error, and no harm.
    summary = run(mended())
    assert summary.records == 100, "it went on from where it was"
    totals = {k: v["total"] for k, v in state_of(checkpoint)["Summed"].items()}
    assert totals == {key: sum(n for n in range(200) if n % 7 == key) for key in range(7)}
    told = rows(tmp_path / "out")
    assert len(told) == len(NUMBERS)
    assert bag(told[100:]) == bag(sums(NUMBERS)[100:])


def versioned(number: int) -> type[Computation]:
    class Versioned(Computation):
        seen: int = state(0)

        def process_record(self, record: Record[dict[str, int]], ctx: Context) -> None:
            self.seen += 1
            ctx.produce({"key": ctx.key, "seen": self.seen, "version": number})

    return Versioned


def test_new_code_runs_for_every_key_though_workers_hold_objects_of_the_old(
    spark: SparkSession, tmp_path: Path
) -> None:
    keys, times = 40, 5
    for version in (1, 2, 3):
        # A key is touched in one epoch only, so whichever worker did it still holds its object.
        values = [{"n": n, "key": n // times} for n in range(keys * times)]
        write_jsonl(tmp_path / "in" / f"{version}.jsonl", values)
        p = Pipeline("versions")
        p.read("numbers", sources.jsonl(str(tmp_path / "in")))
        p.compute(versioned(version), inputs={"numbers": "key"}, outputs="seen")
        p.stream("seen").write(sinks.jsonl(tmp_path / f"out-{version}"), name=f"out-{version}")
        p.run(checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=3, epoch_records=20,
              until="caught_up")  # fmt: skip
        told = rows(tmp_path / f"out-{version}")
        assert len(told) == keys * times
        assert {row["version"] for row in told} == {version}
        assert max(row["seen"] for row in told) == version * times, "and state is carried over"
