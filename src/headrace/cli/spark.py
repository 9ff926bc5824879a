"""The Spark session of a command: local and quiet by default.

`--master` chooses a cluster; without it Spark runs on this machine, on all its cores, with tasks
retried as on a cluster (plain `local[N]` never retries).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.engine.spark.java import check_java
from headrace.engine.spark.jvm_noise import LOG_NAME, write_log_settings
from headrace.engine.spark.session import LOOPBACK, NO_PAGES, default_master, start_session
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(name: str, master: str | None = None) -> Iterator[SparkSession]:
    """A session for one command. Spark's log is kept only if it may explain a failure."""
    check_java()
    directory = Path(tempfile.mkdtemp(prefix="headrace-spark-"))
    chosen = master or default_master()
    settings = settings_for(chosen, write_log_settings(directory))
    try:
        spark = start_session(f"headrace-{name}", chosen, settings)
    except HeadraceError:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    keep_log = False
    try:
        yield spark
    except HeadraceError:
        # Our own errors say what happened; Spark's log would only repeat it at length.
        raise
    except Exception:
        keep_log = True
        print(f"Spark's log is in {directory / LOG_NAME}", file=sys.stderr)
        raise
    finally:
        try:
            spark.stop()
        except Exception:
            pass  # its JVM has ended already, and its user has reported that
        if not keep_log:
            shutil.rmtree(directory, ignore_errors=True)


def settings_for(master: str, log_settings: Path) -> dict[str, str]:
    """The settings of our sessions: no more than a command needs."""
    log_option = f"-Dlog4j2.configurationFile=file:{log_settings.as_posix()}"
    settings = {**NO_PAGES, "spark.driver.extraJavaOptions": log_option}
    if master.startswith("local"):
        settings |= LOOPBACK
    else:
        # A hung executor is given up after 30 s instead of two minutes.
        settings["spark.executor.heartbeatInterval"] = "5s"
        settings["spark.network.timeout"] = "30s"
        # How often Spark checks; it refuses to start if that is longer than the timeout.
        settings["spark.network.timeoutInterval"] = "10s"
    return settings
