"""The exchange as a program of its own, to be killed from outside: on Spark, or without it.

    python -m tests.spark.programs.kill_me DIRECTORY EPOCH_RECORDS [--local] [--checkpoint URL]
        [--files URL]

Reads DIRECTORY/in, writes DIRECTORY/out, keeps its state in DIRECTORY/checkpoint; with --files it
reads and writes below that URL. Prints "ready"
before it starts and "epoch N" after each epoch, "done" at the end, and exits with 0.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.spark.pipelines import exchange, inside, trades_in
from tests.spark.support import IN_PLACE, run_local

from headrace import EpochProgress
from headrace.failpoints import arm_from_environment
from headrace.plan.listener import EpochCallback
from headrace.store.location import checkpoint_store


def tell(progress: EpochProgress) -> None:
    print(f"epoch {progress.epoch}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("epoch_records", type=int)
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--until", default="end")
    parser.add_argument("--checkpoint", help="a URL; DIRECTORY/checkpoint if not given")
    parser.add_argument("--files", help="a URL, below which it reads in/ and writes out/")
    given = parser.parse_args()
    where: Path = given.directory
    checkpoint = given.checkpoint or str(where / "checkpoint")
    files = given.files or where
    pipeline = exchange(trades_in(inside(files, "in")), inside(files, "out"))
    options = {
        "slots": given.slots, "epoch_records": given.epoch_records, "on_epoch": tell,
        "until": None if given.until == "never" else given.until,
    }  # fmt: skip
    if given.local:
        arm_from_environment()
        print("ready", flush=True)
        options["listeners"] = (EpochCallback(options.pop("on_epoch")),)
        summary = run_local(pipeline, checkpoint_store(checkpoint), give_up_s=None, **options)
    else:
        from tests.spark.conftest import start_spark

        scratch = where / "spark"
        scratch.mkdir(exist_ok=True)
        spark = start_spark(scratch)
        print("ready", flush=True)
        summary = pipeline.run(checkpoint=checkpoint, spark=spark, **options, **IN_PLACE)
        spark.stop()
    print(f"done {summary.reason}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
