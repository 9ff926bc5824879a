"""Spark sessions of our own: tasks are retried, logs are quiet, a failed start gives its reason.

`local_session` is for users who bring no session: this machine, all cores. Commands start theirs
with their own settings. Under `spark-submit` its master and its settings hold, and none of ours.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.engine.spark.java import check_java
from headrace.engine.spark.jvm_noise import filtered_stderr
from headrace.errors import SparkError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

TASK_TRIES = 4
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
NO_PAGES = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
NO_CLUSTER_MODE = (
    "this process is the driver, so it cannot be sent to a cluster. On YARN and Kubernetes give "
    "`spark-submit --deploy-mode cluster` a program that runs the pipeline (the guide Deployment "
    "has one). A standalone cluster takes no Python driver: run it on a machine near the cluster, "
    "and a second one with --standby on another machine"
)
"""What to do where somebody asks for Spark's cluster deploy mode."""


SPARK_MIN = (4, 1)
"""4.1 has `repartitionById`, which brings every record to the task of its slot."""


def check_version(version: str) -> None:
    """SparkError for a Spark that is too old. Newer ones than were tested are let through."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < SPARK_MIN:
        raise SparkError(
            f"this session runs Spark {version}, and Headrace needs Spark 4.1 or newer: "
            "pip install 'pyspark>=4.1,<4.4', or choose a cluster with a newer Spark"
        )


def is_submitted() -> bool:
    """Whether `spark-submit` has started this program: then it has chosen master and settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def default_master() -> str:
    """All cores of this machine. Plain `local[N]` would never retry a task."""
    return f"local[{os.cpu_count() or 1},{TASK_TRIES}]"


def local_session() -> Any:
    """The active session, or a new one on this machine."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if is_submitted():
        return start_session("headrace", None, {})
    check_java()
    return start_session("headrace", default_master(), {**NO_PAGES, **LOOPBACK})


def start_session(name: str, master: str | None, settings: Mapping[str, str]) -> Any:
    """A new session, without the messages of a starting JVM.

    Without a master it is the one that `spark-submit` was given, and the name is its as well.
    """
    # Workers must run this very Python, also where the virtual environment is not activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master is not None and master.startswith("local"):
        # Otherwise Spark resolves the host's name, and warns about the result.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    before = SparkContext._active_spark_context
    where = "as spark-submit was told" if master is None else f"on {master}"
    say_progress(f"Starting Spark {where}; this takes some seconds.")
    builder = SparkSession.builder
    if master is not None:
        builder = builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    said: list[str] = []
    try:
        with filtered_stderr() as start_up:
            said = start_up.lines
            session = builder.getOrCreate()
        if SparkContext._active_spark_context is not before:
            _made.add(session.sparkContext)
        return session
    except Exception as error:  # Spark, py4j and the shell raise different types.
        reason = reason_in([*said, *str(error).splitlines()])
        hint = f" ({NO_CLUSTER_MODE})" if "Cluster deploy mode" in reason else ""
        raise SparkError(f"Spark did not start {where}: {reason}{hint}") from error


def say_progress(text: str) -> None:
    """Says on standard error what a start waits for, if a person sees it.

    That is where standard error is a terminal, or HEADRACE_PROGRESS=1 asks for it (0: never).
    Programs that show logs of level INFO get it there instead.
    """
    if _logger.isEnabledFor(logging.INFO):
        _logger.info("%s", text)
        return
    asked = os.environ.get("HEADRACE_PROGRESS", "")
    if asked == "1" or (asked != "0" and sys.stderr is not None and sys.stderr.isatty()):
        print(text, file=sys.stderr, flush=True)


_logger = logging.getLogger("headrace.run")

_made: weakref.WeakSet[Any] = weakref.WeakSet()
"""The contexts that were started here, whose workers run this Python."""


def is_ours(spark: Any) -> bool:
    """Whether a session was started here, with this Python; PYSPARK_PYTHON can name another."""
    context = spark.sparkContext
    return context in _made and context.pythonExec == sys.executable


def reason_in(lines: list[str]) -> str:
    """The line of a Java error that says what is wrong, without its stack trace."""
    for line in lines:
        found = re.search(r"(?:Exception in thread \S+ |^: )(?:[\w.$]+: )?(.+)", line)
        if found:
            return found[1]
    return next((line.strip() for line in lines if line.strip()), "it did not say why")


def context_of(spark: SparkSession) -> SparkContext | None:
    """The session's context; Spark Connect has none."""
    try:
        return spark.sparkContext
    except Exception:
        return None


def parallelism_of(spark: SparkSession) -> int:
    """How many tasks run at once."""
    context = context_of(spark)
    if context is not None:
        return max(1, int(context.defaultParallelism))
    return max(1, int(spark.conf.get("spark.default.parallelism", "2") or 2))


def has_executors(spark: SparkSession) -> bool:
    """Whether tasks run in separate processes, which may die one by one."""
    master = spark.conf.get("spark.master", None) or "local"
    return not master.startswith("local") or master.startswith("local-cluster")


def allocates(spark: SparkSession) -> bool:
    """Whether Spark adds and removes executors by itself."""
    return (spark.conf.get("spark.dynamicAllocation.enabled", None) or "false") == "true"
