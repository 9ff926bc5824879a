"""Executors and Python workers die; only their slots move, and nothing is lost, doubled or torn."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.cluster.conftest import EXECUTORS, thorough
from tests.cluster.pipelines import gates, records
from tests.cluster.support import (
    EPOCH,
    KEYS,
    check_all_once_and_in_order,
    check_not_torn,
    ended,
    homes,
    run,
    share_at_home,
    started,
)
from tests.spark.support import rows, write_jsonl

from headrace.bench.cluster import Cluster, executor_of, wait_for
from headrace.engine.spark import substrate as substrate

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(params=["the short way", pytest.param("with readers", marks=thorough)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "with readers":
        monkeypatch.setattr("headrace.engine.starting._may_read_itself", lambda topology: False)
    yield request.param


def test_slots_stay_on_their_executor(spark: SparkSession, where: Path, way: str) -> None:
    count = 5 * EPOCH
    write_jsonl(where / "in" / "a.jsonl", records(count, KEYS))
    run(where, spark)
    found = check_all_once_and_in_order(where, count)
    shares = share_at_home(found, "one"), share_at_home(found, "two")
    print(f"{way}: at home with anchors {shares}")
    assert len({row["one"] for row in found}) == EXECUTORS, "and all of them work"
    assert shares == (1.0, 1.0)


@thorough
def test_without_anchors_slots_wander(
    spark: SparkSession, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(substrate, "Anchors", lambda *given: None)
    count = 5 * EPOCH
    write_jsonl(where / "in" / "a.jsonl", records(count, KEYS))
    run(where, spark)
    found = check_all_once_and_in_order(where, count)
    shares = share_at_home(found, "one"), share_at_home(found, "two")
    print(f"at home without anchors {shares}")
    assert max(shares) < 0.8


@pytest.mark.parametrize("killed", ["an executor", pytest.param("a Python worker", marks=thorough)])
def test_a_kill_in_the_middle_of_an_epoch_moves_only_the_slots_of_the_dead(
    spark: SparkSession, clustered: Cluster, where: Path, killed: str
) -> None:
    count = 5 * EPOCH
    write_jsonl(where / "in" / "a.jsonl", records(count, KEYS))
    epochs: list[int] = []
    _, second = gates(where)

    def told(progress: Any) -> None:
        epochs.append(progress.epoch)
        if progress.epoch == 3:
            second.close()

    thread, outcome = started(where, spark, on_epoch=told)
    worker = second.await_hooks()[0]
    dead = executor_of(worker)
    os.kill(dead if killed == "an executor" else worker, signal.SIGKILL)
    second.open()
    ended(thread, outcome)
    assert epochs[:3] == [1, 2, 3]
    found = check_all_once_and_in_order(where, count)
    check_not_torn(where)
    for level in ("one", "two"):
        for key, places in homes(found, level).items():
            before, after = places[2], places[3]  # in epochs 3 and 4
            if killed == "a Python worker" or before != dead:
                assert before == after, f"{key} moved at level {level}"
            else:
                assert after != dead
    assert any(places[0] == dead for places in homes(found, "two").values())


def test_an_executor_that_dies_between_levels_cannot_tear_an_epoch(
    spark: SparkSession, clustered: Cluster, where: Path, way: str
) -> None:
    count = 4 * EPOCH
    write_jsonl(where / "in" / "a.jsonl", records(count, KEYS))
    _, second = gates(where)
    second.close()
    # Keyed by what the dice say, so that two tries of level 1 send records to other slots, too.
    thread, outcome = started(where, spark, second="player")
    for _ in range(2):
        dead = executor_of(second.await_hooks()[0])
        # Of the others: what it made at level 1 is gone, while a consumer has already read it.
        victims = [pid for pid in clustered.pids() if pid != dead]
        os.kill(victims[0], signal.SIGKILL)
        second.open()
        wait_for(lambda: not second.closed.exists(), "the gate to open")
        second.close()
    second.open()
    ended(thread, outcome)
    ones, twos = rows(where / "out" / "ones"), rows(where / "out" / "twos")
    assert Counter(row["id"] for row in ones) == Counter(range(count))
    assert Counter(row["id"] for row in twos) == Counter(range(count))
    check_not_torn(where)
