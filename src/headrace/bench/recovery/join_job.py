"""Nexmark's joins as jobs whose recovery is measured: a pipeline of ours, and Spark's own query.

Both read JSON lines from `in` and make new rows visible under `out` by one rename. The directory
and the query come from the environment, because `headrace run` takes only a module and a name.

    python -m headrace.bench.recovery.join_job URL      Spark's own query on that cluster
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headrace import Pipeline, sinks, sources
from headrace.bench.recovery.job import DIRECTORY, deliver_until_stopped
from headrace.workloads.nexmark import registry
from headrace.workloads.nexmark.events.reader import read_foreign
from headrace.workloads.nexmark.streams import Auction

QUERY = "HEADRACE_RECOVERY_QUERY"


def pipeline() -> Pipeline:
    """The query as a pipeline."""
    where = Path(os.environ[DIRECTORY])
    source = sources.jsonl(str(where / "in" / "*.jsonl"), watch=True, timestamp="date_time")

    def auction(p: Pipeline) -> Auction:
        return Auction.of_events(p, read_foreign(p, source))

    return registry.pipeline(os.environ[QUERY], auction, sinks.jsonl(where / "out"))


def main() -> None:
    """The query of Structured Streaming, until it is stopped."""
    from pyspark.sql import SparkSession

    from headrace.bench.nexmark.spark_native import EVENTS_DDL, rows_of

    where = Path(os.environ[DIRECTORY])
    spark = SparkSession.builder.master(sys.argv[1]).appName("recovery").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    events = spark.readStream.schema(EVENTS_DDL).json(str(where / "in"))
    deliver_until_stopped(rows_of(os.environ[QUERY], events), "append", where)


if __name__ == "__main__":
    main()
