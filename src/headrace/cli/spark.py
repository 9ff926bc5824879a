"""The Spark session of a command: local and quiet by default.

`--master` chooses a cluster; without it Spark runs on this machine, on all its cores, with tasks
retried as on a cluster (plain `local[N]` never retries). `--conf` wins over settings of ours. Under
`spark-submit`, what it was given holds.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.engine.spark.java import check_java
from headrace.engine.spark.jvm_noise import LOG_NAME, write_log_settings
from headrace.engine.spark.session import (
    LOOPBACK,
    NO_CLUSTER_MODE,
    NO_PAGES,
    default_master,
    is_submitted,
    start_session,
)
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JAVA_OPTIONS = "spark.driver.extraJavaOptions"
PACKAGES = "spark.jars.packages"


@contextmanager
def spark_session(
    name: str,
    master: str | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    packages: Sequence[str] = (),
    py_files: Sequence[str] = (),
) -> Iterator[SparkSession]:
    """A session for one command. Spark's log is kept only if it may explain a failure."""
    submitted = is_submitted()
    if submitted:
        require_nothing_submitted_twice(master, packages)
    else:
        check_java()
    directory = Path(tempfile.mkdtemp(prefix="headrace-spark-"))
    chosen = None if submitted else master or default_master()
    settings = {} if chosen is None else settings_for(chosen, write_log_settings(directory))
    settings = merged(settings, conf or {}, packages)
    try:
        spark = start_session(f"headrace-{name}", chosen, settings)
        for path in py_files:
            spark.sparkContext.addPyFile(path)
    except BaseException:
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
    if master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:")):
        settings |= LOOPBACK
    if not master.startswith("local"):
        # A hung executor is given up after 30 s instead of two minutes.
        settings["spark.executor.heartbeatInterval"] = "5s"
        settings["spark.network.timeout"] = "30s"
        # How often Spark checks; it refuses to start if that is longer than the timeout.
        settings["spark.network.timeoutInterval"] = "10s"
    return settings


def merged(
    ours: Mapping[str, str], conf: Mapping[str, str], packages: Sequence[str]
) -> dict[str, str]:
    """Our settings and those that were given, which win; options of the JVM are added to ours."""
    found = {**ours, **conf}
    if JAVA_OPTIONS in ours and JAVA_OPTIONS in conf:
        found[JAVA_OPTIONS] = f"{ours[JAVA_OPTIONS]} {conf[JAVA_OPTIONS]}"
    if packages:
        also = [conf[PACKAGES]] if PACKAGES in conf else []
        found[PACKAGES] = ",".join([*also, *packages])
    if found.get("spark.submit.deployMode") == "cluster":
        raise HeadraceError(f"spark.submit.deployMode=cluster: {NO_CLUSTER_MODE}")
    return found


def require_nothing_submitted_twice(master: str | None, packages: Sequence[str]) -> None:
    """HeadraceError where an option comes too late: the JVM of `spark-submit` runs already."""
    for option, given in (("--master", master), ("--packages", ",".join(packages))):
        if given:
            raise HeadraceError(
                f"{option} {given}: spark-submit has started this program, and Spark runs "
                f"already; give {option} to spark-submit, before the name of the program"
            )


def use_py_files(paths: Sequence[str]) -> None:
    """Lets this process import from files that workers will get; the pipeline may lie in one."""
    for path in paths:
        if not Path(path).is_file():
            raise HeadraceError(
                f"--py-files {path}: there is no such file. Name .py, .zip or .egg files that lie "
                "on this machine; Spark brings them to its workers"
            )
        if not path.endswith((".py", ".zip", ".egg")):
            raise HeadraceError(
                f"--py-files {path}: Python imports from .py, .zip and .egg files. A wheel has to "
                "be installed where the workers run"
            )
        place = Path(path).resolve()
        found = str(place.parent if place.suffix == ".py" else place)
        if found not in sys.path:
            sys.path.insert(0, found)
