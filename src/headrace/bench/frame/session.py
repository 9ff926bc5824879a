"""The Spark session on which a system is measured.

One function makes it for all, so that peers and Headrace get the same cores, the same heap and the
same disk. The settings are those that a careful user would choose on such a machine. With the
default of 200 shuffle partitions alone, every peer would look many times slower than it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.bench.frame.system import Task

DRIVER_MEMORY = "4g"


@contextmanager
def bench_session(
    task: Task, name: str, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Run Spark with `task.workload.slots` cores and all its files under the scratch."""
    with local_session(task.workload.slots, task.scratch_dir, name, settings) as spark:
        yield spark


@contextmanager
def local_session(
    cores: int,
    scratch: Path,
    name: str,
    settings: Mapping[str, str] | None = None,
    *,
    failures: int = 1,
) -> Iterator[SparkSession]:
    """Run Spark with some cores of this machine and all its files under `scratch`.

    A task may fail `failures` times less one before its job does.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(f"local[{cores},{failures}]")
        .appName(f"headrace-bench-{name}")
        .config("spark.driver.memory", DRIVER_MEMORY)
        .config("spark.local.dir", str(scratch / "spark-local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(cores))
    )
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
