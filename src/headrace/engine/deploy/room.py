"""Whether a cluster has room for one more application: a deploy needs two for a while (L2)."""

from __future__ import annotations

import threading
from typing import Any

from headrace.errors import SparkError

ROOM_S = 60.0
"""How long a first task may wait for an executor."""


def require_room(spark: Any, seconds: float = ROOM_S) -> None:
    """Runs one empty task in a session; SparkError if the cluster gives it no executor."""
    try:
        context = spark.sparkContext
    except Exception:
        return  # Spark Connect: the server has its executors already
    if str(context.master).startswith("local"):
        return
    tag = "headrace-room"
    refused = threading.Event()

    def cancel() -> None:
        refused.set()
        context.cancelJobsWithTag(tag)

    timer = threading.Timer(seconds, cancel)
    timer.daemon = True
    context.addJobTag(tag)
    timer.start()
    try:
        spark.range(0, 1, 1, 1).count()
    except Exception as error:
        if not refused.is_set():
            raise
        raise SparkError(
            f"the cluster {context.master} has given this application no executor for "
            f"{seconds:.0f} s: a deploy runs two applications beside each other. Limit what each "
            "may take (spark.cores.max, or dynamic allocation), or add a worker, and deploy again; "
            "the running pipeline was not disturbed"
        ) from error
    finally:
        timer.cancel()
        context.removeJobTag(tag)
