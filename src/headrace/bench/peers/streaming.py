"""What the Structured Streaming peers share: the query around the count.

How a peer is run, and why this is its cheapest honest set-up:
- `maxFilesPerTrigger=1`: one file is one micro-batch, the peer's word for an epoch.
- `availableNow`: micro-batches follow one another without a pause, and the input
  directory is listed once, not once per micro-batch.
- Shuffle partitions equal the cores.
- User code gets whole records, as it does in Headrace, unless the workload says
  `columns="key"`: then all but the key is dropped before the shuffle. Spark cannot
  see what user code reads, so it cannot do that by itself; for the native count,
  which has no user code, it does, and both settings are the same query.
- The sink is `noop` unless the workload says `parquet`. Changed counts are
  computed and handed to a sink that does nothing, so a peer pays nothing for
  delivery; what it delivered is then read from its committed state. With
  `parquet`, `foreachBatch` writes one Parquet directory per micro-batch, because
  Spark's own Parquet sink refuses update mode; the counts are read from there.
- Checkpoints are Spark's own, on the same disk as those of all systems.

An epoch's time is `durationMs.triggerExecution` of the query's own progress: from
planning the micro-batch to its commit. Progress is read when the query has ended,
so no listener runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.bench.frame.session import bench_session
from headrace.bench.frame.system import Measurement, Task
from headrace.bench.workload import COUNTS_SCHEMA, CountWorkload
from headrace.errors import HeadraceError

INPUT_DDL = "key string, ts bigint, value bigint"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class StreamingPeer:
    """A Structured Streaming query that answers the keyed count.

    `changes` turns the stream of records into `key, count` rows of the changed keys, as the
    workload wants them counted.
    `state_variable` names the state that holds the counts for Spark's state
    reader; None for the one store of a native aggregation.
    """

    name: str
    changes: Callable[[DataFrame, CountWorkload], DataFrame]
    state_variable: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def run(self, task: Task) -> Measurement:
        """Run the query over every file, then read its progress and its counts."""
        # Every micro-batch's progress must still be there when the query has ended.
        kept = {"spark.sql.streaming.numRecentProgressUpdates": str(task.workload.last_epoch + 10)}
        with bench_session(task, self.name, {**kept, **self.settings}) as spark:
            query = self._start(spark, task)
            query.awaitTermination()
            epoch_ms = measured_epoch_ms(facts(query), task.workload)
            if task.workload.sink == "parquet":
                counts = last_delivered(_delivered(task), task.workload.last_epoch)
            else:
                counts = self._committed(spark, task)
        return Measurement(
            epoch_ms=epoch_ms,
            records=task.workload.measured_records,
            counts=counts,
            notes={"trigger": "availableNow", **self.settings},
        )

    def _start(self, spark: SparkSession, task: Task) -> StreamingQuery:
        records = (
            spark.readStream.schema(INPUT_DDL)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(task.input_dir))
        )
        if task.workload.columns == "key":
            records = records.select("key")
        writer = (
            self.changes(records, task.workload)
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(_checkpoint(task)))
            .trigger(availableNow=True)
        )
        return _to_sink(writer, task).start()

    def _committed(self, spark: SparkSession, task: Task) -> pa.Table:
        """Read the counts from the state that the last micro-batch committed."""
        reader = spark.read.format("statestore")
        if self.state_variable is not None:
            reader = reader.option("stateVarName", self.state_variable)
        rows = reader.load(str(_checkpoint(task)))
        # The one field of the state: Spark calls that of its own aggregates `count` or `sum`.
        rows = rows.selectExpr("key.key", "value.*").toDF("key", "count")
        return rows.toArrow().cast(COUNTS_SCHEMA)


@dataclass(frozen=True)
class BatchFacts:
    """What we read from one micro-batch's progress."""

    batch: int
    records: int
    duration_ms: float


def append_to_parquet(rows: DataFrame, task: Task) -> StreamingQuery:
    """Starts a query that ends when all files are read; its rows go to Spark's own Parquet sink."""
    return (
        rows.writeStream.outputMode("append")
        .format("parquet")
        .option("path", str(_delivered(task)))
        .option("checkpointLocation", str(_checkpoint(task)))
        .trigger(availableNow=True)
        .start()
    )


def measured_epoch_ms(batches: list[BatchFacts], workload: CountWorkload) -> tuple[float, ...]:
    """Pick the times of the measured micro-batches out of a query's progress.

    Refuses a query in which a micro-batch was not exactly one file: its times
    would be those of another workload.
    """
    times: dict[int, float] = {}
    for facts in batches:
        if facts.records == 0:
            continue
        # Spark counts micro-batches from 0, we count epochs from 1.
        epoch = facts.batch + 1
        held = workload.records_in(epoch)
        if facts.records != held:
            raise HeadraceError(
                f"micro-batch {facts.batch} read {facts.records} records where the file of "
                f"epoch {epoch} holds {held}; is the input directory shared with another run?"
            )
        times[epoch] = float(facts.duration_ms)
    wanted = range(workload.first_measured_epoch, workload.last_epoch + 1)
    missing = [epoch for epoch in wanted if epoch not in times]
    if missing:
        raise HeadraceError(f"the query reported no progress for epochs {missing}")
    return tuple(times[epoch] for epoch in wanted)


def last_delivered(directory: Path, last_epoch: int) -> pa.Table:
    """Read what `foreachBatch` wrote, epoch by epoch; the last count of a key wins."""
    latest: dict[str, int] = {}
    for epoch in range(1, last_epoch + 1):
        table = pq.read_table(directory / f"epoch-{epoch:06d}")
        latest.update(zip(table["key"].to_pylist(), table["count"].to_pylist(), strict=True))
    return pa.table([list(latest.keys()), list(latest.values())], schema=COUNTS_SCHEMA)


def _to_sink(writer: DataStreamWriter, task: Task) -> DataStreamWriter:
    if task.workload.sink == "noop":
        return writer.format("noop")
    directory = _delivered(task)

    def deliver(changed: DataFrame, batch: int) -> None:
        changed.write.mode("overwrite").parquet(str(directory / f"epoch-{batch + 1:06d}"))

    return writer.foreachBatch(deliver)


def _checkpoint(task: Task) -> Path:
    return task.scratch_dir / "checkpoint"


def _delivered(task: Task) -> Path:
    return task.scratch_dir / "delivered"


def facts(query: StreamingQuery) -> list[BatchFacts]:
    """Reduce Spark's progress objects to the three facts we use."""
    return [
        BatchFacts(entry.batchId, entry.numInputRows, entry.durationMs["triggerExecution"])
        for entry in query.recentProgress
    ]
