"""One life of a driver with input, checkpoint and output in a store; to be killed from outside.

    python -m tests.servers.programs.life PIPELINE INPUT CHECKPOINT OUTPUT MASTER EPOCHS [STATE]

PIPELINE is a function of `tests.servers.pipelines`; INPUT, CHECKPOINT and OUTPUT are URLs or paths;
MASTER is `local[2]` or the URL of a cluster; EPOCHS are so many records long; STATE is where state
is kept. Prints "ready", then "epoch N RECORDS" after each
epoch, and "done" or "stopped CLASS: message".
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from tests.servers import pipelines

from headrace import EpochProgress, HeadraceError
from headrace.bench.cluster import Cluster

EXECUTORS = 3


def tell(progress: EpochProgress) -> None:
    print(f"epoch {progress.epoch} {progress.records}", flush=True)


def session(master: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("headrace-servers")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "768m")
    if not master.startswith("local"):
        for name, value in Cluster(Path(), EXECUTORS, "512m", master).settings().items():
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main() -> None:
    name, source, checkpoint, output, master, epoch_records, *state = sys.argv[1:]
    spark = session(master)
    print("ready", flush=True)
    try:
        pipelines.PIPELINES[name](source, output).run(
            checkpoint=checkpoint,
            spark=spark,
            slots=EXECUTORS,
            epoch_records=int(epoch_records),
            on_epoch=tell,
            state=state[0] if state else "segments",
        )
        print("done", flush=True)
    except HeadraceError as error:
        print(f"stopped {type(error).__name__}: {error}", flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
