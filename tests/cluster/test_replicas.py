"""Standbys take over without reading the store; an executor that hangs is as good as dead."""

from __future__ import annotations

import os
import signal
from itertools import combinations
from pathlib import Path
from typing import Any

import psutil
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
    started,
)
from tests.spark.support import write_jsonl

from headrace.bench.cluster import Cluster, executor_of
from headrace.engine.spark import substrate as substrate
from headrace.engine.spark.anchoring.anchors import Anchor, Anchors

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def anchor(monkeypatch: pytest.MonkeyPatch) -> list[Anchors]:
    """The anchors of the run, as it makes them."""
    made: list[Anchors] = []

    def remember(*given: Any) -> Anchors:
        made.append(Anchors(*given))
        return made[-1]

    monkeypatch.setattr(substrate, "Anchors", remember)
    return made


def pid_of(name: str, clustered: Cluster) -> int:
    """The process of the executor whose block directory has that name."""
    for worker in clustered.python_workers():
        if psutil.Process(worker).environ()["SPARK_LOCAL_DIRS"].endswith(name):
            return executor_of(worker)
    raise AssertionError(f"no executor is called {name}")


def every_second(anchor: Anchor) -> list[str]:
    """Half of the executors, such that none of them is the standby of another."""
    standby = {home: names[0] for home, names in zip(anchor.home, anchor.replicas, strict=True)}
    for chosen in combinations(standby, EXECUTORS // 2):
        if not any(standby[home] in chosen for home in chosen):
            return list(chosen)
    raise AssertionError(f"no two executors can die at once: {standby}")


@pytest.mark.parametrize("victims", [pytest.param(1, marks=thorough), EXECUTORS // 2])
def test_executors_die_at_once_and_their_replicas_take_over_while_the_store_has_no_state(
    spark: SparkSession, clustered: Cluster, where: Path, anchor: list[Anchors], victims: int
) -> None:
    count = 6 * EPOCH
    write_jsonl(where / "in" / "a.jsonl", records(count, KEYS))
    _, second = gates(where)
    state, away = where / "checkpoint" / "state", where / "away"
    hidden: list[Path] = []

    def told(progress: Any) -> None:
        if progress.epoch == 3:
            second.close()
        if progress.epoch == 4:  # it has been committed: now the store has its state again
            for path in hidden:
                (away / path.relative_to(state)).rename(path)

    # A job that is run again builds new anchors, whose executors would have to read the store.
    options = {"replicas": 1, "epoch_timeout": "5m", "on_epoch": told, "filler": 40_000}
    thread, outcome = started(where, spark, **options)
    second.await_hooks(EXECUTORS)
    known = anchor[0].current
    assert all(len(names) == 1 for names in known.replicas), known.replicas
    assert all(home not in names for home, names in zip(known.home, known.replicas, strict=True))
    pids = {name: pid_of(name, clustered) for name in known.home}
    takes_over = {pids[home]: pids[names[0]]
                  for home, names in zip(known.home, known.replicas, strict=True)}  # fmt: skip
    dead = [pids[name] for name in every_second(known)[:victims]]
    assert len(dead) == victims
    for path in sorted(state.rglob("*.arrow")):
        (away / path.relative_to(state)).parent.mkdir(parents=True, exist_ok=True)
        path.rename(away / path.relative_to(state))
        hidden.append(path)
    assert len(hidden) >= 2 * 3 * EXECUTORS, "both levels have state of three epochs"
    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    second.open()
    ended(thread, outcome)
    found = check_all_once_and_in_order(where, count)
    check_not_torn(where)
    moved = [(places[2], places[3]) for places in homes(found, "two").values()
             if places[2] in dead]  # fmt: skip
    assert {before for before, _ in moved} == set(dead)
    assert all(after == takes_over[before] for before, after in moved), (moved, takes_over)


@thorough
def test_an_executor_that_hangs_loses_its_slots_and_harms_nothing_when_it_wakes(
    spark: SparkSession, clustered: Cluster, where: Path
) -> None:
    count = 8 * EPOCH
    write_jsonl(where / "in" / "a.jsonl", records(count, KEYS))
    _, second = gates(where)
    stopped: list[int] = []
    woken: list[int] = []

    def told(progress: Any) -> None:
        if progress.epoch == 2:
            second.close()
        if progress.epoch == 5:  # epochs 3, 4 and 5 went well without it
            os.kill(stopped[0], signal.SIGCONT)
            woken.append(progress.epoch)

    try:
        thread, outcome = started(where, spark, epoch_timeout="30s", on_epoch=told)
        workers = second.await_hooks(EXECUTORS)
        stopped.append(executor_of(workers[0]))
        os.kill(stopped[0], signal.SIGSTOP)
        second.open()
        ended(thread, outcome)
    finally:
        if stopped and psutil.pid_exists(stopped[0]):
            os.kill(stopped[0], signal.SIGCONT)
    assert woken == [5]
    found = check_all_once_and_in_order(where, count)
    check_not_torn(where)
    for epoch in (2, 3, 4):  # the third, fourth and fifth record of each key
        assert all(places[epoch] != stopped[0] for places in homes(found, "two").values())
