"""Executors and Python workers die; only their slots move, and nothing is lost, doubled or torn."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.cluster.conftest import EXECUTORS
from tests.cluster.pipelines import gates, records, two_levels
from tests.spark.support import rows, write_jsonl

from headrace.bench.cluster import Cluster, executor_of, wait_for
from headrace.engine import spark as substrate

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(420)]

KEYS = 24
EPOCH = KEYS
"""One record of each key in every epoch."""


def homes(found: list[dict[str, Any]], level: str) -> dict[str, list[int]]:
    """Key -> the executors on which its hooks ran, in order."""
    seen: dict[str, list[int]] = defaultdict(list)
    for row in sorted(found, key=lambda row: row["id"]):
        seen[row["key"]].append(row[level])
    return seen


def share_at_home(found: list[dict[str, Any]], level: str) -> float:
    """How many hooks ran where the same key's hook had run before."""
    moves = [one == other for places in homes(found, level).values()
             for one, other in pairwise(places)]  # fmt: skip
    return sum(moves) / len(moves)


def check_all_once_and_in_order(where: Path, count: int) -> list[dict[str, Any]]:
    ones, twos = rows(where / "out" / "ones"), rows(where / "out" / "twos")
    assert Counter(row["id"] for row in ones) == Counter(range(count))
    assert Counter(row["id"] for row in twos) == Counter(range(count))
    by_key = defaultdict(list)
    for row in twos:
        by_key[row["key"]].append((row["nth"], row["id"]))
    for arrived in by_key.values():
        assert arrived == sorted(arrived)
        assert [nth for nth, _ in arrived] == list(range(1, len(arrived) + 1))
    return twos


def check_not_torn(where: Path) -> None:
    """What level 1 published is what level 2 added up, epoch by epoch."""
    first = sorted((where / "out" / "ones").glob("epoch=*"))
    assert first, "nothing was published"
    scores: Counter[Any] = Counter()
    for directory in first:
        rolled = rows_of(directory)
        kept = rows_of(where / "out" / "twos" / directory.name)
        told = {row["id"]: (row["points"], row["player"], row["one"]) for row in rolled}
        assert told == {row["id"]: (row["points"], row["player"], row["one"]) for row in kept}
        for row in kept:
            scores[row["key2"]] += row["points"]
            assert row["score"] == scores[row["key2"]], f"{directory.name}: {row}"


def rows_of(directory: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(directory.glob("*")) for line in path.open(encoding="utf-8")]
    return [json.loads(line) for line in lines]


@pytest.fixture(params=["the short way", "with readers"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "with readers":
        monkeypatch.setattr("headrace.engine.pipeline.SHORT_RECORDS_MAX", 0)
    yield request.param


def run(where: Path, spark: SparkSession, **options: Any) -> Any:
    options = {"slots": EXECUTORS, "epoch_records": EPOCH, "until": "end", **options}
    return two_levels(where, second=options.pop("second", "key")).run(
        checkpoint=str(where / "checkpoint"), spark=spark, **options
    )


def test_slots_stay_on_their_executor(spark: SparkSession, where: Path, way: str) -> None:
    count = 5 * EPOCH
    write_jsonl(where / "in" / "a.jsonl", records(count, KEYS))
    run(where, spark)
    found = check_all_once_and_in_order(where, count)
    shares = share_at_home(found, "one"), share_at_home(found, "two")
    print(f"{way}: at home with anchors {shares}")
    assert len({row["one"] for row in found}) == EXECUTORS, "and all of them work"
    assert shares == (1.0, 1.0)


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


def started(where: Path, spark: SparkSession, **options: Any) -> tuple[threading.Thread, list[Any]]:
    """A run in a thread of its own, and where its outcome will lie."""
    outcome: list[Any] = []

    def go() -> None:
        try:
            outcome.append(run(where, spark, **options))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    return thread, outcome


def ended(thread: threading.Thread, outcome: list[Any]) -> None:
    thread.join(300)
    assert outcome, "it is still running"
    if isinstance(outcome[0], BaseException):
        raise outcome[0]


@pytest.mark.parametrize("killed", ["an executor", "a Python worker"])
def test_a_kill_in_the_middle_of_an_epoch_moves_only_the_slots_of_the_dead(
    spark: SparkSession, clustered: Cluster, where: Path, killed: str
) -> None:
    count = 6 * EPOCH
    write_jsonl(where / "in" / "a.jsonl", records(count, KEYS))
    epochs: list[int] = []
    _, second = gates(where)

    def told(progress: Any) -> None:
        epochs.append(progress.epoch)
        if progress.epoch == 3:
            second.close()

    thread, outcome = started(where, spark, on_epoch=told)
    worker = second.await_hook()
    dead = executor_of(worker)
    os.kill(dead if killed == "an executor" else worker, signal.SIGKILL)
    second.open()
    ended(thread, outcome)
    assert epochs[:3] == [1, 2, 3]
    found = check_all_once_and_in_order(where, count)
    check_not_torn(where)
    for level in ("one", "two"):
        for key, places in homes(found, level).items():
            before, after = places[2], places[4]
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
        dead = executor_of(second.await_hook())
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
