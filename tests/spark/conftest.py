"""One Spark for all tests here: local, quiet, with tasks retried as on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import environment


def start_spark(
    scratch: Path, master: str = "local[2,4]", *, workers: Mapping[str, str] | None = None
) -> SparkSession:
    """The session; `workers`: the environment of Python workers, if they need their own."""
    os.environ.update(environment())
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master)
    for name, value in (workers or {}).items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    session = (
        builder.appName("headrace-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(scratch))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="session")
def spark_scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("spark")
    if (active := SparkSession.getActiveSession()) is not None:
        active.stop()


@pytest.fixture
def spark(spark_scratch: Path) -> SparkSession:
    """The one session; started again if another test has stopped it."""
    return start_spark(spark_scratch)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with a session of their own come last: they stop everybody's."""
    items.sort(key=lambda item: "test_structured_source" in item.nodeid)
