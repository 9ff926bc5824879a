"""How a master and a worker of Spark's standalone mode are started on this machine.

PySpark from pip has the classes, and no scripts that start them. Everything listens on 127.0.0.1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that does little spends most of its time on compiling code for hours."""


def daemon_command(kind: str, *arguments: str, page: int = 0) -> list[str]:
    """The command of a "master" or a "worker"; its page is at any free port if none is given."""
    package = f"org.apache.spark.deploy.{kind}.{kind.capitalize()}"
    command = [str(_home() / "bin" / "spark-class"), package, "--host", "127.0.0.1"]
    return [*command, "--webui-port", str(page), *arguments]


def daemon_environment(directory: Path, java_options: str) -> dict[str, str]:
    """The environment of both; executors keep their local files below `directory`."""
    return {
        **os.environ,
        "SPARK_HOME": str(_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED} {java_options}",
        "SPARK_LOCAL_DIRS": str(directory),
        "PYSPARK_PYTHON": sys.executable,
    }


def _home() -> Path:
    return Path(pyspark.__file__).parent
