"""The Spark session of a command: local and quiet unless told otherwise.

`--master` chooses a cluster; without it Spark runs on this machine, on all its cores, with tasks
retried as on a cluster (plain `local[N]` never retries).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.engine.java import check_java
from headrace.engine.quiet import LOG_NAME, filtered_stderr, write_log_settings
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_TRIES = 4


@contextmanager
def spark_session(name: str, master: str | None = None) -> Iterator[SparkSession]:
    """A session for one command. Spark's log is kept only where it may explain a failure."""
    check_java()
    directory = Path(tempfile.mkdtemp(prefix="headrace-spark-"))
    spark = _start(name, master or default_master(), directory)
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
        spark.stop()
        if not keep_log:
            shutil.rmtree(directory, ignore_errors=True)


def default_master() -> str:
    """All cores of this machine."""
    return f"local[{os.cpu_count() or 1},{TASK_TRIES}]"


def settings_for(master: str, log_settings: Path) -> dict[str, str]:
    """What a session of ours sets; never more than a command needs."""
    log_option = f"-Dlog4j2.configurationFile=file:{log_settings.as_posix()}"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": log_option,
    }
    if master.startswith("local"):
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    else:
        # An executor that hangs is given up after 30 s instead of two minutes.
        settings["spark.executor.heartbeatInterval"] = "5s"
        settings["spark.network.timeout"] = "30s"
        # How often Spark looks; it refuses to start where that is longer than the timeout.
        settings["spark.network.timeoutInterval"] = "10s"
    return settings


def _start(name: str, master: str, directory: Path) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        # Otherwise Spark looks the host's name up, and warns about what it finds.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    log_settings = write_log_settings(directory)
    builder = SparkSession.builder.master(master).appName(f"headrace-{name}")
    for key, value in settings_for(master, log_settings).items():
        builder = builder.config(key, value)
    said: list[str] = []
    try:
        with filtered_stderr() as start_up:
            said = start_up.lines
            return builder.getOrCreate()
    except Exception as error:  # Spark, py4j and the shell each have their own kinds.
        shutil.rmtree(directory, ignore_errors=True)
        raise HeadraceError(
            f"Spark did not start on {master!r}: {_reason([*said, *str(error).splitlines()])}"
        ) from error


def _reason(lines: list[str]) -> str:
    """The line of a Java error that says what is wrong, without its stack."""
    for line in lines:
        found = re.search(r"(?:Exception in thread \S+ |^: )(?:[\w.$]+: )?(.+)", line)
        if found:
            return found[1]
    return next((line.strip() for line in lines if line.strip()), "it did not say why")
