"""Tasks with several slots each (J10): Spark keeps them at their anchors."""

from __future__ import annotations

import os
import signal
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from tests.cluster.conftest import EXECUTORS
from tests.cluster.pipelines import gates, records
from tests.cluster.support import (
    EPOCH,
    KEYS,
    check_all_once_and_in_order,
    check_not_torn,
    ended,
    homes,
    run,
    started,
)
from tests.spark.support import write_jsonl

from headrace.bench.cluster import executor_of, wait_for
from headrace.model.values.keys import encode_key, hash_key
from headrace.plan.rings.ring import Ring

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

SLOTS = 3 * EXECUTORS - 1
"""Most tasks have three slots, one has two."""


def task_of(key: str, slots: int) -> int:
    """The task to which the slot of a key is dealt; the cluster has as many tasks as cores."""
    place = Ring.even(slots).place(np.array([hash_key(encode_key(key))], np.uint64))
    return int(place[0]) % EXECUTORS


def places_of_tasks(found: list[dict[str, Any]], level: str, nth: int, slots: int) -> list[int]:
    """The executor of each task when the keys had their record number `nth`."""
    seen: dict[int, set[int]] = defaultdict(set)
    for key, places in homes(found, level).items():
        seen[task_of(key, slots)].add(places[nth])
    assert all(len(places) == 1 for places in seen.values()), f"a task ran in two places: {seen}"
    return [next(iter(seen[task])) for task in sorted(seen)]


def is_warming_up() -> bool:
    """Whether an executor that has joined is still cold: until then no task moves to it."""
    return any(thread.name == "headrace-warm-up" for thread in threading.enumerate())


def test_all_slots_of_a_task_stay_on_its_executor(spark: SparkSession, where: Path) -> None:
    epochs = 6
    write_jsonl(where / "in" / "a.jsonl", records(epochs * EPOCH, KEYS))
    run(where, spark, slots=SLOTS)
    found = check_all_once_and_in_order(where, epochs * EPOCH)
    assert len({task_of(key, SLOTS) for key in homes(found, "one")}) == EXECUTORS
    for level in ("one", "two"):
        first = places_of_tasks(found, level, 0, SLOTS)
        assert len(set(first)) == EXECUTORS, "and all of them work"
        for nth in range(1, epochs):
            assert places_of_tasks(found, level, nth, SLOTS) == first
    # All levels share an anchor.
    assert homes(found, "one") == homes(found, "two")


def test_a_death_moves_only_the_tasks_of_the_dead_and_a_new_executor_gets_its_share(
    spark: SparkSession, where: Path
) -> None:
    epochs = 9
    write_jsonl(where / "in" / "a.jsonl", records(epochs * EPOCH, KEYS))
    _, second = gates(where)

    def told(progress: Any) -> None:
        if progress.epoch == 3:
            second.close()
        if progress.epoch == 5:
            context = spark.sparkContext
            wait_for(lambda: context.defaultParallelism >= EXECUTORS, "another executor")
        if progress.epoch == 6:
            wait_for(lambda: not is_warming_up(), "a warm executor")

    thread, outcome = started(where, spark, slots=SLOTS, on_epoch=told)
    dead = executor_of(second.await_hooks(EXECUTORS)[0])
    os.kill(dead, signal.SIGKILL)
    second.open()
    ended(thread, outcome)
    found = check_all_once_and_in_order(where, epochs * EPOCH)
    check_not_torn(where)
    before, after = (places_of_tasks(found, "two", nth, SLOTS) for nth in (2, 3))
    stayed = [old == new for old, new in zip(before, after, strict=True)]
    only_the_dead = [old != dead for old in before]
    assert stayed == only_the_dead, f"tasks of {dead} moved, and others: {before}, {after}"
    last = places_of_tasks(found, "two", epochs - 1, SLOTS)
    assert len(set(last)) == EXECUTORS, "the new executor has its share"
    assert places_of_tasks(found, "two", epochs - 2, SLOTS) == last, "and the tasks stay there"
