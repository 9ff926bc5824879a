"""A Spark session for those who bring none: this machine, all cores, tasks retried, little said."""

from __future__ import annotations

import os
import sys
from typing import Any

from headrace.engine.java import check_java
from headrace.engine.quiet import filtered_stderr


def local_session() -> Any:
    """The active session, or a new one on this machine."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_java()
    # Workers must run this very Python, also where the virtual environment is not activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Otherwise Spark looks the host's name up, and warns about what it finds.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{os.cpu_count() or 2},4]")
        .appName("headrace")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    with filtered_stderr():
        return builder.getOrCreate()
