"""One version of a pipeline on a cluster: it runs, or is deployed beside the version that runs.

    python -m tests.cluster.programs.versions run|deploy DIRECTORY URL EXECUTORS VERSION

Numbers the records of each key at two levels. Prints "epoch N" after each epoch, and how it ended.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace import Computation, Context, EpochProgress, Pipeline, Record, sinks, sources, state
from headrace.bench.cluster import Cluster


class First(Computation):
    """Numbers the records of a key."""

    seen: int = state(0)

    def __init__(self, version: int) -> None:
        self.version = version

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.seen += 1
        ctx.produce({**record.value, "nth": self.seen, "version": self.version})


class Second(Computation):
    """Numbers them again."""

    seen: int = state(0)

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.seen += 1
        ctx.produce({**record.value, "again": self.seen})


def pipeline(where: Path, version: int) -> Pipeline:
    p = Pipeline("versions")
    files = sources.jsonl(str(where / "in"), watch=True, ordered_by_name=True)
    p.read("in", files)
    p.compute(First(version), inputs={"in": "key"}, outputs="firsts")
    p.compute(Second, inputs={"firsts": "key"}, outputs="seconds")
    p.stream("seconds").write(sinks.jsonl(where / "out"))
    return p


def tell(progress: EpochProgress) -> None:
    print(f"epoch {progress.epoch}", flush=True)


def main() -> None:
    verb, where, url = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    executors, version = int(sys.argv[4]), int(sys.argv[5])

    def session() -> SparkSession:
        made = Cluster(where / "cluster", executors, "512m", url)
        builder = SparkSession.builder.master(url).appName(f"headrace-version-{version}")
        for name, value in made.settings().items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        return spark

    p, checkpoint = pipeline(where, version), str(where / "checkpoint")
    options: dict[str, Any] = {"lease": "10s", "on_epoch": tell}
    if verb == "deploy":
        job = p.deploy(checkpoint=checkpoint, spark=session, confirm_after=2, **options)
    else:
        spark = session()
        job = p.start(checkpoint=checkpoint, spark=spark, slots=executors, until=None, **options)
    print("started", flush=True)
    print(f"ended {job.wait().reason}", flush=True)


if __name__ == "__main__":
    main()
