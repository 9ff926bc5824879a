"""Spark's own streams as the input of a whole pipeline, with restarts."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import rows, state_of, write_jsonl

from headrace import (
    Checkpoint,
    Computation,
    Context,
    EpochProgress,
    Pipeline,
    Record,
    SourceError,
    replay,
    sinks,
    sources,
    state,
)

pytestmark = pytest.mark.spark


class Count(Computation):
    """How often a key was seen so far."""

    count: int = state(0)

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.count += 1
        ctx.produce({"key": ctx.key, "count": self.count})


def counted(frame: Any, output: Path, **options: Any) -> Pipeline:
    p = Pipeline("streamed")
    p.read("events", sources.dataframe(frame, **options))
    p.compute(Count, inputs={"events": "key"}, outputs="counts")
    p.stream("counts").write(sinks.jsonl(output))
    return p


def check(where: Path, keys: list[str]) -> None:
    expected = Counter(keys)
    told = [(row["key"], row["count"]) for row in rows(where / "out")]
    assert sorted(told) == sorted((key, n + 1) for key, c in expected.items() for n in range(c))
    counts = state_of(where / "checkpoint")["Count"]
    assert {key: fields["count"] for key, fields in counts.items()} == expected


def test_a_file_stream_is_counted_over_three_runs_and_a_stop_in_the_middle(
    spark: SparkSession, tmp_path: Path
) -> None:
    keys: list[str] = []

    def put(number: int) -> None:
        more = [f"k{(number * 7 + n) % 5}" for n in range(10)]
        keys.extend(more)
        write_jsonl(tmp_path / "in" / f"{number:03d}.json", [{"key": key} for key in more])

    def pipeline(**options: Any) -> Pipeline:
        frame = spark.readStream.schema("key string").option("maxFilesPerTrigger", 1)
        return counted(frame.json(str(tmp_path / "in")), tmp_path / "out", **options)

    where: dict[str, Any] = {"checkpoint": str(tmp_path / "checkpoint"), "spark": spark, "slots": 2}
    put(0)
    put(1)
    put(2)
    job = pipeline().start(**where)
    deadline = time.monotonic() + 60
    while job.status().records < 10:
        assert job.running and time.monotonic() < deadline
        time.sleep(0.05)
    job.stop()
    put(3)
    summary = pipeline(available_now=True).run(**where, until="end")
    assert summary.reason == "end"
    check(tmp_path, keys)
    # The spool keeps what the retained epochs have read, so that they can run again.
    checkpoint = str(tmp_path / "checkpoint")
    for epoch in range(1, Checkpoint(checkpoint).epoch + 1):
        found = replay(pipeline(available_now=True), checkpoint=checkpoint, epoch=epoch)
        assert found.equal, found.differences
    batches = tmp_path / "checkpoint" / "sources" / "events" / "batches"
    shutil.rmtree(min(path for path in batches.iterdir() if path.is_dir()))
    with pytest.raises(SourceError, match=r"epoch 1 cannot be run again.*checkpoint/sources"):
        replay(pipeline(available_now=True), checkpoint=checkpoint, epoch=1)


def test_caught_up_waits_for_micro_batches_that_are_on_their_way(
    spark: SparkSession, tmp_path: Path
) -> None:
    keys = [f"k{n % 5}" for n in range(40)]
    for part in range(4):
        rows_of_part = [{"key": key} for key in keys[part * 10 : part * 10 + 10]]
        write_jsonl(tmp_path / "in" / f"{part:03d}.json", rows_of_part)
    frame = spark.readStream.schema("key string").option("maxFilesPerTrigger", 1)
    pipeline = counted(frame.json(str(tmp_path / "in")), tmp_path / "out")
    summary = pipeline.run(
        checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2, until="caught_up"
    )
    assert (summary.reason, summary.records) == ("caught_up", 40)
    check(tmp_path, keys)


def test_a_rate_stream_goes_on_in_the_next_run_without_a_gap(
    spark: SparkSession, tmp_path: Path
) -> None:
    def pipeline() -> Pipeline:
        frame = (
            spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20)
            .option("numPartitions", 1).option("startTimestamp", 1_700_000_000_000).load()
        )  # fmt: skip
        frame = frame.selectExpr("value", "cast(value % 3 as string) as key", "timestamp as ts")
        return counted(frame, tmp_path / "out", timestamp="ts", lateness="1s", every="50ms")

    def run_until(wanted: int) -> int:
        enough = threading.Event()

        def look(progress: EpochProgress) -> None:
            if len(rows(tmp_path / "out")) >= wanted:
                enough.set()

        job = pipeline().start(
            checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2, on_epoch=look
        )
        assert enough.wait(60), job.status()
        job.stop()
        return len(rows(tmp_path / "out"))

    done = [run_until(40), run_until(100)]
    assert done[1] > done[0] >= 40
    check(tmp_path, [str(value % 3) for value in range(done[1])])
