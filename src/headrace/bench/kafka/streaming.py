"""The peer: Structured Streaming from topic to topic, with Spark's own connector.

- The count is a native aggregate in update mode: a row for every key and micro-batch.
- `maxOffsetsPerTrigger` gives a micro-batch as many records as an epoch has.
- Its sink writes without transactions: a micro-batch that runs again is in the topic twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.bench.kafka.places import Topics
from headrace.bench.peers.streaming import facts
from headrace.bench.servers.processes import installed, needs, run

HERE = Path(__file__).parents[1] / "servers"
ROWS = "key string, id bigint"


def connector_jars(version: str) -> list[Path]:
    """The jars of the connector for a version of Spark; CannotHave if there is none."""

    def make(home: Path) -> None:
        run(
            needs("mvn"), "--batch-mode", "--quiet", "--file", HERE / "spark-kafka-pom.xml",
            "dependency:copy-dependencies", "-DincludeScope=runtime",
            f"-DoutputDirectory={home / 'lib'}", f"-Dspark={version}",
        )  # fmt: skip

    jars = (installed(f"spark-kafka-{version}", make) / "lib").glob("*.jar")
    # Spark brings its own Scala library.
    return sorted(jar for jar in jars if not jar.name.startswith("scala-library"))


def backlog(
    spark: SparkSession, topics: Topics, where: Path, epoch_records: int
) -> list[tuple[float, int]]:
    """Counts what the topic has: the seconds and the records of each micro-batch."""
    writer = _query(spark, topics, where / "backlog", "earliest", epoch_records)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [batch for batch in facts(query) if batch.records]
    return [(batch.duration_ms / 1000, batch.records) for batch in batches]


@contextmanager
def trickling(spark: SparkSession, topics: Topics, where: Path) -> Iterator[StreamingQuery]:
    """A query of a new checkpoint over what comes from now on."""
    start = json.dumps({topics.source: {str(n): end for n, end in topics.ends().items()}})
    query = _query(spark, topics, where / "trickle", start).start()
    try:
        yield query
    finally:
        query.stop()


def _query(
    spark: SparkSession, topics: Topics, checkpoint: Path, start: str, records: int | None = None
) -> DataStreamWriter:
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", topics.servers)
        .option("subscribe", topics.source)
        .option("startingOffsets", start)
    )
    if records is not None:
        reader = reader.option("maxOffsetsPerTrigger", records)
    row: Any = F.from_json(F.col("value").cast("string"), ROWS)
    counts = (
        reader.load()
        .select(row.alias("row"))
        .groupBy("row.key")
        .agg(F.count("*").alias("count"), F.max("row.id").alias("id"))
    )
    return (
        counts.select("key", F.to_json(F.struct("key", "count", "id")).alias("value"))
        .writeStream.format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", topics.servers)
        .option("topic", topics.sink)
        .option("checkpointLocation", str(checkpoint))
    )
