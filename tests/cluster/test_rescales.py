"""Rescales under load, with kills in between: nothing is lost, doubled, torn or out of order."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.cluster.conftest import EXECUTORS
from tests.cluster.pipelines import records, two_levels
from tests.cluster.support import EPOCH, KEYS, check_all_once_and_in_order, check_not_torn
from tests.spark.support import write_jsonl

from headrace.bench.cluster import Cluster
from headrace.engine.spark.anchoring.anchors import Anchors

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3000)]

RESCALES = int(os.environ.get("HEADRACE_RESCALES", "4"))
"""`make chaos` asks for more."""
EVERY = 3
"""Epochs between two rescales."""
TIMEOUT_S = 1500.0


def run(where: Path, spark: SparkSession, epochs: int, on_epoch: Any) -> int:
    """Runs to the end; `on_epoch` gets the job and each epoch. Returns how many slots there are."""
    write_jsonl(where / "in" / "a.jsonl", records(epochs * EPOCH, KEYS))
    jobs: list[Any] = []

    def told(progress: Any) -> None:
        if jobs:
            on_epoch(jobs[0], progress.epoch)

    with two_levels(where).start(
        checkpoint=str(where / "checkpoint"),
        spark=spark,
        slots=2,
        epoch_records=EPOCH,
        until="end",
        on_epoch=told,
    ) as job:
        jobs.append(job)
        job.wait(TIMEOUT_S)
    check_all_once_and_in_order(where, epochs * EPOCH)
    check_not_torn(where)
    return len(job._follower.ledger.slots["One"])


def test_rescales_build_no_frames_and_no_anchors(
    spark: SparkSession, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    build = Anchors._build

    def counted(self: Anchors, tasks: int, *given: Any) -> Any:
        built.append(tasks)
        return build(self, tasks, *given)

    monkeypatch.setattr(Anchors, "_build", counted)
    chains: set[int] = set()

    def rescale(job: Any, epoch: int) -> None:
        chains.add(len(job._follower.substrate._chains))
        for at, slots in ((2, 8), (5, 3), (8, 5)):
            if epoch == at:
                job.rescale("One", slots, wait=False)
                job.rescale("Two", slots + 1, wait=False)

    assert run(where, spark, 14, rescale) == 5
    assert built == [EXECUTORS]
    assert max(chains) <= 1, "one chain of frames serves every number of slots"


def test_rescales_and_kills_under_load_lose_and_double_nothing(
    spark: SparkSession, clustered: Cluster, where: Path
) -> None:
    dice = random.Random(12)
    asked: list[int] = []

    def disturb(job: Any, epoch: int) -> None:
        if epoch % EVERY == 1 and len(asked) < RESCALES:
            asked.append(dice.randint(1, 9))
            job.rescale(dice.choice(("One", "Two")), asked[-1], wait=False)
        if epoch % (2 * EVERY) == 2:
            clustered.ready()
            os.kill(dice.choice(clustered.pids()), signal.SIGKILL)

    run(where, spark, EVERY * (RESCALES + 2), disturb)
    assert len(asked) == RESCALES
