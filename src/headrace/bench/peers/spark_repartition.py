"""Structured Streaming that is resized: stop the query, repartition its state, start it again.

The number of state partitions of a query is fixed by its checkpoint. Since Spark 4.2 a command can
rewrite the state of a stopped query for another number (`StreamingCheckpointManager.repartition`,
experimental; RocksDB only). The query is Spark's own count, which is the cheapest; so nothing but
the state store is in the way. It is stopped when it has processed all files that are there, and
nothing else runs in its Spark session.

Micro-batches take all files that are there, so that what has waited is processed at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.bench.elastic.steady import SIZES, SteadyFeed, pauses, visible_files
from headrace.bench.frame.session import bench_session
from headrace.bench.frame.system import SPARK_REPARTITION, Measurement, Task
from headrace.bench.peers.spark_native import SPARK_NATIVE
from headrace.bench.peers.spark_tws import ROCKSDB_SETTINGS
from headrace.bench.peers.streaming import INPUT_DDL
from headrace.bench.workload import COUNTS_SCHEMA
from headrace.errors import HeadraceError


class _Resized:
    """The query, over its lives."""

    def __init__(self, spark: SparkSession, task: Task, directory: Path) -> None:
        self._spark, self._task, self._directory = spark, task, directory
        self._checkpoint = str(task.scratch_dir / "checkpoint")
        self._steps: dict[int, tuple[int, float, float]] = {}
        """Micro-batch -> records, when it ended (seconds since 1970), milliseconds."""
        self._query = self._start()

    def _start(self) -> StreamingQuery:
        records = self._spark.readStream.schema(INPUT_DDL).parquet(str(self._directory))
        return (
            SPARK_NATIVE.changes(records, self._task.workload)
            .writeStream.outputMode("update")
            .option("checkpointLocation", self._checkpoint)
            .format("noop")
            .start()
        )

    def caught_up(self, epoch: int) -> None:
        """Waits until all files that are there are processed."""
        self._query.processAllAvailable()

    def resize(self, partitions: int) -> None:
        """Stops the query between two micro-batches, rewrites its state, and starts it again."""
        self._query.processAllAvailable()
        self.stop()
        manager: Any = getattr(self._spark, "_streamingCheckpointManager", None)
        if manager is None:
            raise HeadraceError("this version of Spark cannot repartition the state of a query")
        # A micro-batch that the stop has interrupted is run again: nothing of it was delivered.
        manager.repartition(self._checkpoint, partitions, enforce_exactly_once_sink=False)
        self._query = self._start()

    def stop(self) -> None:
        """Stops the query and keeps what it said about its micro-batches."""
        self._query.stop()
        for entry in self._query.recentProgress:
            took_ms = float(entry.durationMs["triggerExecution"])
            began = datetime.fromisoformat(entry.timestamp).timestamp()
            if entry.numInputRows:
                ended = began + took_ms / 1_000
                self._steps[entry.batchId] = (entry.numInputRows, ended, took_ms)

    def steps(self) -> list[tuple[int, float, float]]:
        """Every micro-batch with records, in order."""
        return [self._steps[batch] for batch in sorted(self._steps)]

    def counts(self) -> pa.Table:
        """The counts in the state of the last micro-batch."""
        rows = self._spark.read.format("statestore").load(self._checkpoint)
        rows = rows.selectExpr("key.key", "value.*").toDF("key", "count")
        return rows.toArrow().cast(COUNTS_SCHEMA)


@dataclass(frozen=True)
class SparkRepartition:
    """Structured Streaming; a resize is a stop, a rewrite of the state, and a start."""

    name: str = SPARK_REPARTITION

    def run(self, task: Task) -> Measurement:
        """All files, with every resize."""
        workload, directory = task.workload, task.scratch_dir / "in"
        feed = SteadyFeed(workload, task.input_dir, directory)
        settings = {
            **ROCKSDB_SETTINGS,
            "spark.sql.streaming.numRecentProgressUpdates": str(workload.last_epoch * 10),
            "spark.sql.shuffle.partitions": str(SIZES[0]),
        }
        with bench_session(task, self.name, settings) as spark:
            query = _Resized(spark, task, directory)
            interval_s = feed.warm_up(query.caught_up)
            feed.steadily(interval_s, query.resize, query.caught_up)
            query.stop()
            counts = query.counts()
        steps = query.steps()
        visible = visible_files(workload, [(records, when) for records, when, _ in steps])
        found = pauses(workload, feed.written, visible)
        begins = feed.written[workload.first_measured_epoch]
        return Measurement(
            epoch_ms=tuple(took for _, when, took in steps if when >= begins),
            records=workload.measured_records,
            counts=counts,
            more=found.numbers(),
            notes={
                "partitions": " -> ".join(map(str, SIZES)),
                "interval_s": f"{interval_s:.3f}",
                "pauses_ms": ", ".join(f"{pause:.1f}" for pause in found.pause_ms),
                **settings,
            },
        )


SPARK_REPARTITIONED = SparkRepartition()
