"""A Spark session for those who bring none: this machine, all cores, tasks retried."""

from __future__ import annotations

import os
import sys
from typing import Any


def local_session() -> Any:
    """The active session, or a new one on this machine."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # Workers must run this very Python, also where the virtual environment is not activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(f"local[{os.cpu_count() or 2},4]")
        .appName("headrace")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    return builder.getOrCreate()
