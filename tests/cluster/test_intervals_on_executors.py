"""A checkpoint interval on executors' own disks: one is killed, and what it held is made again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.cluster.conftest import EXECUTORS
from tests.servers.kinds import Server
from tests.servers.stores import ALWAYS, server_of
from tests.spark.programs.hoard import PER_EPOCH, hoarding
from tests.spark.support import contents, state_of

from headrace.bench.cluster import Cluster, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS = 16 * PER_EPOCH


@pytest.fixture
def server() -> Server:
    return server_of(ALWAYS)


@pytest.fixture
def spark(
    clustered: Cluster, session_of: Callable[..., SparkSession], server: Server
) -> SparkSession:
    """A session whose executors have the credentials of the server."""
    given = {f"spark.executorEnv.{name}": value for name, value in server.environment.items()}
    session = session_of(**given)
    clustered.ready()
    context = session.sparkContext
    wait_for(lambda: context.defaultParallelism >= EXECUTORS, "all executors to have registered")
    return session


def run(where: Path, url: str, spark: SparkSession, **options: Any) -> None:
    hoarding(where / "out", RECORDS).run(
        checkpoint=url, spark=spark, slots=4, epoch_records=PER_EPOCH, balance="off",
        straggler_after=None, **options,
    )  # fmt: skip


def test_an_executor_is_killed_between_two_checkpoints_and_its_slots_are_made_again(
    spark: SparkSession, clustered: Cluster, server: Server, tmp_path: Path
) -> None:
    calm, killed = server.new_url(), server.new_url()
    run(tmp_path / "calm", calm, spark)
    notices: list[str] = []
    dead: list[int] = []

    def told(progress: Any) -> None:
        if progress.epoch == 7:  # the last checkpoint is that of epoch 4
            dead.append(clustered.pids()[0])
            os.kill(dead[0], signal.SIGKILL)

    run(
        tmp_path / "killed", killed, spark, checkpoint_every=4, on_epoch=told,
        on_notice=lambda notice: notices.append(notice.text),
    )  # fmt: skip
    assert dead and any("are made again" in text for text in notices), notices
    assert contents(tmp_path / "killed" / "out") == contents(tmp_path / "calm" / "out")
    assert state_of(killed) == state_of(calm)


def test_nothing_is_made_again_where_nobody_dies(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    notices: list[str] = []
    url = server.new_url()
    run(
        tmp_path / "run", url, spark, checkpoint_every=4,
        on_notice=lambda notice: notices.append(notice.text),
    )  # fmt: skip
    assert not [text for text in notices if "are made again" in text], notices
    assert state_of(url)
