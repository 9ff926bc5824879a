"""The job whose recovery is measured, as a pipeline of ours and as Spark's own query.

Both read JSON lines from `in`, count per key, keep the number of the last file in which a key
occurred, and make every change visible under `out` by one rename. The directory comes from the
environment, because `headrace run` takes only a module and a name.

    python -m headrace.bench.recovery.job URL      Spark's own query on that cluster
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import Computation, Context, Pipeline, Record, sinks, sources, state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIRECTORY = "HEADRACE_RECOVERY_DIRECTORY"


class CountPerKey(Computation):
    """Counts the records of a key."""

    count: int = state(0)
    last: int = state(0)

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.count += 1
        self.last = max(self.last, record.value["file"])
        ctx.produce({"key": ctx.key, "count": self.count, "file": self.last})


def pipeline() -> Pipeline:
    """The job as a pipeline."""
    where = Path(os.environ[DIRECTORY])
    p = Pipeline("recovery")
    source = sources.jsonl(str(where / "in" / "*.jsonl"), watch=True, timestamp="at", lateness="1h")
    p.read("records", source)
    p.compute(CountPerKey, inputs={"records": "key"}, outputs="counts")
    p.stream("counts").write(sinks.jsonl(where / "out"))
    return p


def main() -> None:
    """The job as a Structured Streaming query, until it is stopped."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import count, max

    where = Path(os.environ[DIRECTORY])
    spark = SparkSession.builder.master(sys.argv[1]).appName("recovery").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    records = spark.readStream.schema("key string, file bigint, at bigint").json(str(where / "in"))
    counts = records.groupBy("key").agg(count("*").alias("count"), max("file").alias("file"))
    deliver_until_stopped(counts, "update", where)


def deliver_until_stopped(rows: DataFrame, mode: str, where: Path) -> None:
    """Makes each micro-batch of a query visible under `out` once, by one rename."""

    def deliver(new: DataFrame, batch: int) -> None:
        aside = where / f".out-{batch}"
        new.write.mode("overwrite").json(str(aside))
        place = where / "out" / f"epoch={batch:012d}"
        if not place.exists():  # otherwise the micro-batch was delivered before a crash
            aside.rename(place)

    (where / "out").mkdir(exist_ok=True)
    query = (
        rows.writeStream.outputMode(mode)
        .option("checkpointLocation", str(where / "checkpoint"))
        .foreachBatch(deliver)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
