"""One system under an open load: `python -m headrace.bench.latency.members CONFIG.json`.

The process runs the query over a directory that fills up. For each line on standard input, a number
of records, it waits until so many have been processed and their results are visible, and answers
with one line: the epochs since the last answer, as `[epoch, records, when visible]`.

Both systems write Parquet, one directory per epoch, and an epoch counts as visible when its
directory is complete. For Spark that is before the micro-batch is committed, which favours it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace import EpochProgress, Pipeline, Stream, sinks, sources, tumbling
from headrace.bench.frame.session import local_session
from headrace.bench.frame.system import OURS
from headrace.bench.latency.queries import WINDOWED_COUNT
from headrace.bench.ours import CountTable
from headrace.bench.peers.streaming import INPUT_DDL
from headrace.errors import HeadraceError

ANSWER = "ANSWER "
NATIVE = "spark-native"
PATIENCE_S = 600.0
# A member is stopped (SIGSTOP) while others have their turn: nothing may count that as a death.
SETTINGS = {
    "spark.network.timeout": "100000s",
    "spark.executor.heartbeatInterval": "1000s",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}


@dataclass(frozen=True)
class Config:
    """What a member is told."""

    system: str
    query: str
    window_us: int
    slots: int
    home: str
    """Where it reads (`in`) and writes (`out`, `checkpoint`)."""


Answer = list[tuple[int, int, float]]
Settle = Callable[[int], Answer]


def serve(config: Config) -> None:
    """Runs the system and answers until standard input ends."""
    home = Path(config.home)
    with local_session(config.slots, home, f"latency-{config.system}", SETTINGS) as spark:
        run = _run_ours if config.system == OURS else _run_native
        run(config, home, spark, _answer_all)


def _answer_all(settle: Settle) -> None:
    print(f"{ANSWER}[]", flush=True)  # it runs
    for line in sys.stdin:
        print(ANSWER + json.dumps(settle(int(line))), flush=True)


def _run_ours(
    config: Config, home: Path, spark: SparkSession, answer: Callable[[Settle], None]
) -> None:
    steps: list[tuple[int, int, float]] = []
    told = 0

    def on_epoch(progress: EpochProgress) -> None:
        steps.append((progress.epoch, progress.records, time.time()))

    job = pipeline_of(config, home).start(
        checkpoint=str(home / "checkpoint"), spark=spark, slots=config.slots, on_epoch=on_epoch
    )

    def settle(records: int) -> Answer:
        nonlocal told
        until = time.monotonic() + PATIENCE_S
        while sum(step[1] for step in steps) < records:
            if not job.running:
                job.wait()  # raises its error
            if time.monotonic() > until:
                raise HeadraceError(f"waited {PATIENCE_S:g} s in vain for {records:,} records")
            time.sleep(0.02)
        found = steps[told:]
        told = len(steps)
        return found

    with job:
        answer(settle)


def pipeline_of(config: Config, home: Path) -> Pipeline:
    """The query as a Headrace pipeline."""
    p = Pipeline(f"latency-{config.query}")
    windows = config.query == WINDOWED_COUNT
    source = sources.parquet(str(home / "in"), watch=True, timestamp="ts", ordered_by_name=windows)
    if windows:
        window = tumbling(timedelta(microseconds=config.window_us))
        rows: Stream[Any] = (
            p.read("records", source).key_by("key").window(window).count().named("counts")
        )
    else:
        p.read("records", source)
        p.compute(CountTable, inputs={"records": "key"}, outputs="counts", name="count")
        rows = p.stream("counts")
    rows.write(sinks.parquet(str(home / "out")), name="rows")
    return p


def _run_native(
    config: Config, home: Path, spark: SparkSession, answer: Callable[[Settle], None]
) -> None:
    visible: dict[int, float] = {}
    told = -1

    def deliver(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(home / "out" / f"{batch:09d}"))
        visible[batch] = time.time()

    records = spark.readStream.schema(INPUT_DDL).parquet(str(home / "in"))
    if config.query == WINDOWED_COUNT:
        size = f"{config.window_us} microseconds"
        rows = (
            records.select("key", F.timestamp_micros("ts").alias("at"))
            .withWatermark("at", "0 seconds")
            .groupBy(F.window("at", size).alias("window"), "key")
            .count()
            .select("key", F.unix_micros(F.col("window.start")).alias("window_start"), "count")
        )
        mode = "append"
    else:
        rows, mode = records.groupBy("key").count(), "update"
    query = (
        rows.writeStream.outputMode(mode)
        .option("checkpointLocation", str(home / "checkpoint"))
        .foreachBatch(deliver)
        .start()
    )

    def settle(records: int) -> Answer:
        nonlocal told
        until = time.monotonic() + PATIENCE_S
        while True:
            query.processAllAvailable()
            batches = {entry.batchId: entry.numInputRows for entry in query.recentProgress}
            if sum(batches.values()) >= records:
                break
            if time.monotonic() > until:
                raise HeadraceError(f"waited {PATIENCE_S:g} s in vain for {records:,} records")
            time.sleep(0.05)
        found = [(b, batches[b], visible[b]) for b in sorted(visible) if b > told and b in batches]
        told = max((b for b, _, _ in found), default=told)
        return found

    try:
        answer(settle)
    finally:
        query.stop()


def main(arguments: list[str]) -> None:
    """Reads the configuration and serves."""
    if len(arguments) != 1:
        raise SystemExit("usage: python -m headrace.bench.latency.members CONFIG.json")
    config: Any = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Config)
    serve(config)


if __name__ == "__main__":
    main(sys.argv[1:])
