"""Floe's figure 5: peak throughput with replicas, and beside a store that is asked per record."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headrace import Computation, EpochProgress, Pipeline, sources, state
from headrace.bench.cluster import cluster
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.bench.servers.redis_server import redis_server

EXECUTORS = 3
KEYS = 5_000
RECORDS = 100_000
ASKED_RECORDS = 10_000
"""Records in an epoch, where a server is asked for each."""
EPOCHS = 9
WARM = 4
TIMES = 2.8
STANDBYS = 0.85


class CountKept(Computation):
    """Counts in its own state."""

    count: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        """Counts one record."""
        self.count += 1


class CountAsked(Computation):
    """Counts in a Redis server: one round trip for each record."""

    last: int = state(0)

    def __init__(self, url: str) -> None:
        self.url = url

    def setup(self) -> None:
        """Connects."""
        import redis

        self.client = redis.Redis.from_url(self.url)

    def process_record(self, record: Any, ctx: Any) -> None:
        """Counts one record."""
        self.last = self.client.incr(f"count {ctx.key}")


def measure(say: Say) -> Points:
    """Records per second with 0, 1 and 2 replicas, and with a round trip per record."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    found: dict[str, float] = {}
    server = redis_server(appendfsync="everysec")
    try:
        with tempfile.TemporaryDirectory(
            prefix="headrace-floe-", ignore_cleanup_errors=True
        ) as directory:
            where = Path(directory)
            for name, records in (("in", RECORDS), ("asked", ASKED_RECORDS)):
                _write(where / name, records)
            with cluster(where / "cluster", EXECUTORS) as made:
                builder = SparkSession.builder.master(made.url).appName("headrace-replicas")
                for setting, value in made.settings().items():
                    builder = builder.config(setting, value)
                spark = builder.getOrCreate()
                spark.sparkContext.setLogLevel("ERROR")
                try:
                    for replicas in (0, 1, 2):
                        took = _epochs(spark, where, "in", CountKept(), f"r{replicas}", replicas)
                        found[f"replicas {replicas}"] = round(RECORDS / took, 1)
                        say(f"{replicas} replicas: {RECORDS / took:,.0f} records/s")
                    took = _epochs(spark, where, "asked", CountAsked(server.url()), "asked", 0)
                    found["round trip per record"] = round(ASKED_RECORDS / took, 1)
                    say(f"a round trip per record: {ASKED_RECORDS / took:,.0f} records/s")
                finally:
                    spark.stop()
    finally:
        server.process.kill()
    return {"records_per_s": found}


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """Standbys cost little, and state beside the code is worth much."""
    speed = points["records_per_s"]
    ratio = speed["replicas 0"] / speed["round trip per record"]
    shape = Judgement().at_least("our own state / a round trip per record", ratio, TIMES)
    for replicas in (1, 2):
        kept = speed[f"replicas {replicas}"] / speed["replicas 0"]
        shape.at_least(f"throughput with {replicas} replicas / without", kept, STANDBYS)
    return shape.verdict()


def _epochs(
    spark: Any, where: Path, name: str, computation: Any, label: str, replicas: int
) -> float:
    """The median time of an epoch."""
    ends = [time.perf_counter()]

    def on_epoch(progress: EpochProgress) -> None:
        if progress.records:
            ends.append(time.perf_counter())

    p = Pipeline("replicas")
    p.read("records", sources.parquet(str(where / name), ordered_by_name=True))
    p.compute(computation, inputs={"records": "key"}, name="count", outputs="unused")
    records = RECORDS if name == "in" else ASKED_RECORDS
    p.run(
        checkpoint=str(where / f"state-{label}"), spark=spark, until="caught_up", slots=EXECUTORS,
        replicas=replicas, on_epoch=on_epoch, epoch_records=records,
    )  # fmt: skip
    times = [after - before for before, after in pairwise(ends)]
    return median(times[WARM:])


def _write(where: Path, records: int) -> None:
    where.mkdir()
    for epoch in range(EPOCHS):
        drawn = np.random.default_rng(epoch).integers(0, KEYS, records)
        table = pa.table({"key": pa.array([f"key-{each}" for each in drawn.tolist()])})
        pq.write_table(table, where / f"{epoch:04d}.parquet")


FLOE_5 = PaperRow(
    "floe-5",
    "peak throughput with r = 0, 1, 2 replicas: about -15 %; 2.8 x Storm with Cassandra",
    f"on a Spark cluster of this machine with {EXECUTORS} executors; stand-in for Storm with "
    "Cassandra: one round trip to a Redis server per record, on the same Spark",
    "at least 2.8 x the stand-in; at most 15 % for standbys",
    measure,
    judge,
)
