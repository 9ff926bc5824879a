"""Structured Streaming over windows; natively, with no Python in the data path.

Windowed counts are a built-in aggregate with a watermark in append mode, combined before
the shuffle; the top ten are a second aggregate over the closed windows, which Spark
chains since 3.5. Rows leave through Spark's own Parquet sink, once, when their window has
closed, as ours do. The rest of the set-up is that of `peers.streaming`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow.dataset import dataset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.bench.frame.session import bench_session
from headrace.bench.frame.system import WINDOWS_NATIVE, Measurement, Task
from headrace.bench.peers.streaming import INPUT_DDL, append_to_parquet, facts, measured_epoch_ms
from headrace.bench.workload import TOP, window_us, windowed_counts


@dataclass(frozen=True)
class WindowsPeer:
    """A query over windows in Structured Streaming.

    `rows` turns the stream of records into `key, start, count` rows of closed windows, given the
    name of the query and the size of windows in microseconds.
    """

    name: str
    rows: Callable[[DataFrame, str, int], DataFrame]
    settings: Mapping[str, str] = field(default_factory=dict)

    def run(self, task: Task) -> Measurement:
        """Run the query over every file, then read its progress and its rows."""
        kept = {"spark.sql.streaming.numRecentProgressUpdates": str(task.workload.last_epoch + 10)}
        with bench_session(task, self.name, {**kept, **self.settings}) as spark:
            records = (
                spark.readStream.schema(INPUT_DDL)
                .option("maxFilesPerTrigger", 1)
                .parquet(str(task.input_dir))
            )
            rows = self.rows(records, task.workload.query, window_us(task.workload))
            query = append_to_parquet(rows, task)
            query.awaitTermination()
            epoch_ms = measured_epoch_ms(facts(query), task.workload)
        return Measurement(
            epoch_ms=epoch_ms,
            records=task.workload.measured_records,
            counts=_delivered(task),
            notes={"trigger": "availableNow", "output": "append, Parquet", **self.settings},
        )


def timed(records: DataFrame, *columns: str) -> DataFrame:
    """These columns of the records with a watermark on their time: nothing comes late."""
    at = F.timestamp_micros("ts").alias("at")
    return records.select(*columns, at).withWatermark("at", "0 seconds")


def native_rows(records: DataFrame, query: str, size_us: int) -> DataFrame:
    """Counts of closed windows, or the ten largest of each window."""
    size = f"{size_us} microseconds"
    counts = timed(records, "key").groupBy(F.window("at", size).alias("window"), "key").count()
    if query == "top-k":
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


SPARK_WINDOWS = WindowsPeer(WINDOWS_NATIVE, native_rows)
