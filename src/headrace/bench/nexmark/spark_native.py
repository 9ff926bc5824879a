"""The queries in Spark's own words: no Python in the data path.

q3 is an inner join of two streams that keeps both sides for ever, q8 a join of two windowed
aggregates, q11 Spark's session windows. Rows leave through Spark's Parquet sink, in append mode.
Columns that a query does not need are not read: Spark sees what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
from pyarrow.dataset import dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.bench.frame.session import bench_session
from headrace.bench.frame.system import NEXMARK_NATIVE, Measurement, Task
from headrace.bench.nexmark.answers import CATEGORY, STATES, rows_as_counts
from headrace.bench.peers.streaming import append_to_parquet, facts, measured_epoch_ms
from headrace.bench.workload import judged_until
from headrace.errors import HeadraceError
from headrace.workloads.nexmark.events.columns import EVENT_COLUMNS

EVENTS_DDL = ", ".join(
    f"{field.name} {'bigint' if field.type == pa.int64() else 'string'}" for field in EVENT_COLUMNS
)
WINDOW = "10 seconds"


def rows_of(query: str, events: DataFrame) -> DataFrame:
    """The rows of a query over a stream of events."""
    people = events.where("kind = 'person'")
    auctions = events.where("kind = 'auction'")
    if query == "q3":
        sellers = people.where(F.upper("state").isin(*STATES)).select(
            F.col("id").alias("person"), "name", "city", "state"
        )
        offers = auctions.where(F.col("category") == CATEGORY).select("id", "seller")
        joined = offers.join(sellers, F.col("seller") == F.col("person"))
        return joined.select("name", "city", "state", "id")
    if query == "q8":
        new = timed(people).groupBy(F.window("at", WINDOW), "id", "name").count()
        sold = timed(auctions).groupBy(F.window("at", WINDOW), "seller").count()
        new = new.select("window", "id", "name")
        sold = sold.select(F.col("window").alias("sold_in"), "seller")
        joined = new.join(sold, (F.col("id") == F.col("seller")) & (new.window == sold.sold_in))
        return joined.select(
            "id", "name", F.unix_micros(F.col("window.start")).alias("window_start")
        )
    if query == "q11":
        bids = timed(events.where("kind = 'bid'"))
        sessions = bids.groupBy(F.session_window("at", WINDOW).alias("session"), "bidder")
        return sessions.agg(F.count("*").alias("bid_count")).select(
            "bidder",
            "bid_count",
            F.unix_micros(F.col("session.start")).alias("start_time"),
            F.unix_micros(F.col("session.end")).alias("end_time"),
        )
    raise HeadraceError(f"spark-native does not know the query {query!r}")


def timed(events: DataFrame) -> DataFrame:
    """Events with a watermark: nothing comes late."""
    return events.withColumn("at", F.timestamp_micros("date_time")).withWatermark("at", "0 seconds")


def read_stream(spark: SparkSession, task: Task) -> DataFrame:
    """One file of events per micro-batch."""
    reader = spark.readStream.schema(EVENTS_DDL).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(task.input_dir))


def delivered(task: Task) -> pa.Table:
    """What lies in the sink, as `key, count`."""
    place = str(task.scratch_dir / "delivered")
    rows = dataset(place, format="parquet", exclude_invalid_files=True).to_table()
    return rows_as_counts(task.workload.query, rows, judged_until(task.workload))


def run_query(
    name: str,
    task: Task,
    build: Callable[[DataFrame], DataFrame],
    settings: Mapping[str, str],
    *,
    reads: int = 1,
) -> Measurement:
    """Runs a query over every file, then reads its progress and its rows.

    `reads`: how often the query reads its input; Spark counts the records of every scan.
    """
    kept = {"spark.sql.streaming.numRecentProgressUpdates": str(task.workload.last_epoch + 10)}
    with bench_session(task, name, {**kept, **settings}) as spark:
        query = append_to_parquet(build(read_stream(spark, task)), task)
        query.awaitTermination()
        batches = [replace(each, records=each.records // reads) for each in facts(query)]
        epoch_ms = measured_epoch_ms(batches, task.workload)
    return Measurement(
        epoch_ms=epoch_ms,
        records=task.workload.measured_records,
        counts=delivered(task),
        notes={"trigger": "availableNow", "output": "append, Parquet", **settings},
    )


class SparkNexmark:
    """Native Structured Streaming."""

    name = NEXMARK_NATIVE

    def run(self, task: Task) -> Measurement:
        """Run the query over every file, then read its progress and its rows."""
        query = task.workload.query
        reads = 1 if query == "q11" else 2
        return run_query(self.name, task, lambda events: rows_of(query, events), {}, reads=reads)


SPARK_NEXMARK = SparkNexmark()
