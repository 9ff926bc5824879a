"""One life of a driver on a cluster, to be killed from outside.

    python -m tests.cluster.programs.life DIRECTORY URL EXECUTORS EPOCH_RECORDS

Counts per key at two levels. Prints "ready", then "epoch N RECORDS" after each epoch, and "done".
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

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.seen += 1
        ctx.produce({**record.value, "nth": self.seen})


class Second(Computation):
    """Numbers them again under another key, and says which came before."""

    seen: int = state(0)
    last: dict[str, int] = state()

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.seen += 1
        key, nth = record.value["key"], record.value["nth"]
        row = {**record.value, "group": ctx.key, "of_group": self.seen}
        ctx.produce({**row, "after": self.last.get(key, 0)})
        self.last[key] = nth


def pipeline(where: Path) -> Pipeline:
    p = Pipeline("lives")
    p.read("in", sources.jsonl(str(where / "in" / "*.jsonl"), timestamp="at", lateness="1h"))
    p.compute(First, inputs={"in": "key"}, outputs="firsts")
    p.compute(Second, inputs={"firsts": lambda value: value["key"][-1]}, outputs="seconds")
    p.stream("seconds").write(sinks.jsonl(where / "out"))
    return p


def tell(progress: EpochProgress) -> None:
    print(f"epoch {progress.epoch} {progress.records}", flush=True)


def main() -> None:
    where, url = Path(sys.argv[1]), sys.argv[2]
    executors, epoch_records = int(sys.argv[3]), int(sys.argv[4])
    made = Cluster(where / "cluster", executors, "512m", url)
    builder = SparkSession.builder.master(url).appName("headrace-life")
    for name, value in made.settings().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print("ready", flush=True)
    pipeline(where).run(
        checkpoint=str(where / "checkpoint"),
        spark=spark,
        slots=executors,
        epoch_records=epoch_records,
        replicas=1,
        on_epoch=tell,
    )
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
