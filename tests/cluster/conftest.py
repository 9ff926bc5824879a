"""A standalone cluster with real executors, which may be killed; one session on it at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import environment

from headrace.bench.cluster import Cluster, cluster, wait_for
from headrace.engine.spark.anchoring.joining import PLACES
from headrace.engine.spark.tasks import tell_place

EXECUTORS = 4

thorough = pytest.mark.skipif(
    not os.environ.get("HEADRACE_CLUSTER"),
    reason="takes minutes of executors starting and dying: `make chaos`, or HEADRACE_CLUSTER=1",
)
"""On tests that repeat, at greater length, what others here show in little time."""


@pytest.fixture(scope="session")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    os.environ.update(environment())
    with cluster(tmp_path_factory.mktemp("cluster"), EXECUTORS) as running:
        yield running


@pytest.fixture(scope="session")
def session_of(clustered: Cluster) -> Iterator[Callable[..., SparkSession]]:
    """The session on the cluster; started anew where other settings are asked for."""
    having: list[tuple[SparkSession, dict[str, str]]] = []

    def start(**more: str) -> SparkSession:
        settings = {
            name if name.startswith("spark.") else name.replace("_", "."): value
            for name, value in more.items()
        }
        # On a busy machine an executor may need longer than the default of 3 s for the task before,
        # and Spark would run a slot elsewhere: these tests say where slots run. But a task whose
        # executor dies may wait as long, too, and that must be less than the deadline of a job.
        settings.setdefault("spark.locality.wait", "20s")
        if having:
            known, given = having[0]
            if given == settings:
                return known
            having.pop()
            known.stop()
        elif (active := SparkSession.getActiveSession()) is not None:
            active.stop()  # another directory's, which starts it again
        builder = SparkSession.builder.master(clustered.url).appName("headrace-cluster-tests")
        for name, value in clustered.settings(**settings).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        having.append((spark, settings))
        return spark

    yield start
    for spark, _ in having:
        spark.stop()


@pytest.fixture
def spark(clustered: Cluster, session_of: Callable[..., SparkSession]) -> SparkSession:
    """The session, with all of its executors there, known to it, and at work.

    On a busy machine Spark counts an executor long before it gives it a task.
    """
    session = session_of()
    clustered.ready()
    context = session.sparkContext
    wait_for(lambda: context.defaultParallelism >= EXECUTORS, "all executors to have registered")
    numbers = session.range(0, EXECUTORS, 1, EXECUTORS)

    def all_answer() -> bool:
        told = numbers.mapInArrow(tell_place, PLACES).collect()
        return len({row["executor"] for row in told}) == EXECUTORS

    wait_for(all_answer, "an answer of every executor")
    return session


@pytest.fixture
def where(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path
