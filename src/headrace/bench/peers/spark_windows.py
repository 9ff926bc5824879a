"""Native Structured Streaming over windows: no Python in the data path.

Windowed counts are a built-in aggregate with a watermark in append mode, combined before
the shuffle; the top ten are a second aggregate over the closed windows, which Spark
chains since 3.5. Rows leave through Spark's own Parquet sink, once, when their window has
closed, as ours do. The rest of the set-up is that of `peers.streaming`.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow.dataset import dataset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.bench.frame.session import bench_session
from headrace.bench.frame.system import WINDOWS_NATIVE, Measurement, Task
from headrace.bench.peers.streaming import INPUT_DDL, append_to_parquet, facts, measured_epoch_ms
from headrace.bench.workload import TOP, window_us, windowed_counts


class SparkWindows:
    """The two windowed queries as native Spark aggregates."""

    def run(self, task: Task) -> Measurement:
        """Run the query over every file, then read its progress and its rows."""
        kept = {"spark.sql.streaming.numRecentProgressUpdates": str(task.workload.last_epoch + 10)}
        with bench_session(task, WINDOWS_NATIVE, kept) as spark:
            records = (
                spark.readStream.schema(INPUT_DDL)
                .option("maxFilesPerTrigger", 1)
                .parquet(str(task.input_dir))
            )
            query = append_to_parquet(_rows(records, task), task)
            query.awaitTermination()
            epoch_ms = measured_epoch_ms(facts(query), task.workload)
        return Measurement(
            epoch_ms=epoch_ms,
            records=task.workload.measured_records,
            counts=_delivered(task),
            notes={"trigger": "availableNow", "output": "append, Parquet"},
        )


def _rows(records: DataFrame, task: Task) -> DataFrame:
    size = f"{window_us(task.workload)} microseconds"
    counts = (
        records.select("key", F.timestamp_micros("ts").alias("at"))
        .withWatermark("at", "0 seconds")
        .groupBy(F.window("at", size).alias("window"), "key")
        .count()
    )
    if task.workload.query == "top-k":
        best = F.struct((-F.col("count")).alias("less"), "key")
        counts = (
            counts.groupBy(F.window(F.window_time("window"), size).alias("window"))
            .agg(F.slice(F.sort_array(F.collect_list(best)), 1, TOP).alias("best"))
            .select("window", F.explode("best").alias("row"))
            .select("window", F.col("row.key").alias("key"), (-F.col("row.less")).alias("count"))
        )
    return counts.select("key", F.unix_micros(F.col("window.start")).alias("start"), "count")


def _delivered(task: Task) -> pa.Table:
    rows = dataset(
        str(task.scratch_dir / "delivered"), format="parquet", exclude_invalid_files=True
    )
    table = rows.to_table()
    return windowed_counts(task.workload, table["key"], table["start"], table["count"])


SPARK_WINDOWS = SparkWindows()
