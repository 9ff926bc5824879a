"""One life of a driver from topic to topic, to be killed from outside.

    python -m tests.servers.programs.kafka_life SERVERS IN OUT CHECKPOINT MASTER EPOCH_RECORDS

Numbers the records of every key. Prints "ready", then "epoch N RECORDS" after each epoch, "done" at
the end. The master is local, or that of a cluster that `headrace.bench.cluster` made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace import Computation, Context, EpochProgress, Pipeline, Record, sinks, sources, state
from headrace.bench.cluster import Cluster

EXECUTORS = 2


class Number(Computation):
    """Numbers the records of a key, and says which came before."""

    seen: int = state(0)
    last: int = state(-1)

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.seen += 1
        ctx.produce({**record.value, "nth": self.seen, "after": self.last})
        self.last = record.value["id"]


def pipeline(servers: str, source: str, target: str) -> Pipeline:
    p = Pipeline("kafka-lives")
    p.read("in", sources.kafka(source, servers=servers, stop="latest", lateness="1h"))
    p.compute(Number, inputs={"in": "key"}, outputs="numbered")
    p.stream("numbered").write(sinks.kafka(target, servers=servers, key="key"))
    return p


def tell(progress: EpochProgress) -> None:
    print(f"epoch {progress.epoch} {progress.records}", flush=True)


def main() -> None:
    servers, source, target, checkpoint, master, epoch_records = sys.argv[1:]
    builder = SparkSession.builder.master(master).appName("headrace-kafka-life")
    settings = {"spark.ui.enabled": "false"}
    if not master.startswith("local"):
        settings = Cluster(
            Path(checkpoint).parent / "cluster", EXECUTORS, "512m", master
        ).settings()
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print("ready", flush=True)
    pipeline(servers, source, target).run(
        checkpoint=checkpoint,
        spark=spark,
        slots=EXECUTORS,
        epoch_records=int(epoch_records),
        on_epoch=tell,
    )
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
