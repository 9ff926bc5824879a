"""A pipeline on sessions that the program makes itself, each as a user might have it.

    python -m tests.spark.programs.own_sessions DIRECTORY BARE_PYTHON

Prints one line of JSON for each: workers with a Python that has no Headrace; workers with this
Python; a JVM that is killed while the pipeline runs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace import HeadraceError, Pipeline, sinks, sources


def counting(source: Any) -> Pipeline:
    p = Pipeline("own-session")
    p.read("in", source).key_by("a").count("n").write(sinks.memory())
    return p


def session(python: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = python
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def main(directory: Path, bare: str) -> None:
    few = sources.memory([{"a": "x"}] * 3)
    del os.environ["PYTHONPATH"]  # this process has read it; workers are not to
    spark = session(bare)
    began = time.monotonic()
    try:
        counting(few).run(checkpoint=directory / "bare", spark=spark)
    except HeadraceError as error:
        tell(kind=type(error).__name__, text=str(error), seconds=time.monotonic() - began)
    spark.stop()

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    spark = session(sys.executable)
    tell(records=counting(few).run(checkpoint=directory / "same", spark=spark).records)

    endless = sources.generate(lambda n, random: {"a": n % 3}, rate=100.0, paced=True)
    job = counting(endless).start(checkpoint=directory / "killed", spark=spark)
    while job.status().epoch < 1:
        time.sleep(0.1)
    spark.sparkContext._gateway.proc.kill()
    try:
        job.wait(60)
    except HeadraceError as error:
        tell(kind=type(error).__name__, text=str(error), phase=job.status().phase)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
