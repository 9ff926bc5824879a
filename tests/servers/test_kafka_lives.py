"""From topic to topic, through crashes: a reader of committed records sees every result once.

Without Spark, a driver dies at every point of a delivery. With Spark, a driver is killed. The long
run kills drivers, executors and the broker: HEADRACE_CLUSTER=1 (`make chaos`), with
HEADRACE_KAFKA_RECORDS and HEADRACE_KILLS for its size.
"""

from __future__ import annotations

import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.servers import kafka
from tests.servers.kafka import new_topic, produce, thorough
from tests.servers.programs.kafka_life import EXECUTORS, pipeline
from tests.servers.test_lives_on_servers import Life, kill_an_executor
from tests.spark.support import environment
from tests.unit.engine.support import Crash, driver_of

from headrace import failpoints
from headrace.bench.cluster import cluster
from headrace.bench.servers.kafka_server import KafkaServer
from headrace.plan.decisions.next_step import Run
from headrace.store.memory import MemoryStore

RECORDS = int(os.environ.get("HEADRACE_KAFKA_RECORDS", "20000"))
KILLS = int(os.environ.get("HEADRACE_KILLS", "6"))
SEED = int(os.environ.get("HEADRACE_SEED", "20261117"))
KEYS = 400
PARTITIONS = 4


class KafkaLife(Life):
    """A driver in a process of its own, from topic to topic."""

    def __init__(
        self, server: KafkaServer, topics: tuple[str, str], where: Path, master: str, epoch: int
    ) -> None:
        command = [sys.executable, "-m", "tests.servers.programs.kafka_life", server.servers]
        command += [*topics, str(where / "checkpoint"), master, str(epoch)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        self._said: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._keep_errors, daemon=True).start()


def sent(server: KafkaServer, count: int) -> tuple[str, str]:
    """A topic with `count` numbered records, and an empty one."""
    source, target = new_topic(server, PARTITIONS), new_topic(server, PARTITIONS)
    keys = [f"k{n % KEYS}" for n in range(count)]
    produce(server, source, ({"id": n, "key": keys[n]} for n in range(count)), keys=keys)
    return source, target


def check(server: KafkaServer, target: str, count: int) -> None:
    """Every result once, and those of each key in order."""
    import json

    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for message in kafka.consume(server, target, PARTITIONS):
        row = json.loads(message.value())
        assert message.key() == row["key"].encode()
        found[row["key"]].append(row)
    ids = sorted(row["id"] for each in found.values() for row in each)
    assert len(ids) == count, f"{len(ids)} results of {count} records"
    assert ids == list(range(count))
    for each in found.values():
        last = -1
        for nth, row in enumerate(each, 1):
            assert (row["nth"], row["after"]) == (nth, last), row
            last = row["id"]


@pytest.mark.slow
def test_a_driver_that_dies_at_any_point_of_a_delivery_loses_and_repeats_nothing() -> None:
    server = kafka.broker(few=True)
    topics = sent(server, 1000)
    topology, store = pipeline(server.servers, *topics).freeze(), MemoryStore()

    def die() -> None:
        raise Crash

    crashes = []
    for failpoint in (
        "after-plan-write", "before-commit-write", "after-commit-write", "before-delivery",
        "before-claim", "after-claim", "after-publish", "after-high-water",
    ):  # fmt: skip
        failpoints.arm(failpoint, die)
        try:
            step_on(topology, store)
        except Crash:
            crashes.append(failpoint)
        finally:
            failpoints.disarm()
    assert len(crashes) == 8, crashes
    step_on(topology, store)
    check(server, topics[1], 1000)


def step_on(topology: Any, store: MemoryStore) -> None:
    driver = driver_of(topology, store, epoch_records=40)
    while isinstance(driver.step(), Run):
        pass
    driver.close()


@thorough
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_driver_on_spark_loses_and_repeats_nothing(tmp_path: Path) -> None:
    server = kafka.broker()
    topics = sent(server, 4000)
    life = KafkaLife(server, topics, tmp_path, "local[2]", 400)
    try:
        for _ in range(3):
            assert life.next_epoch(), life.errors[-5:]
    finally:
        life.kill()
    life = KafkaLife(server, topics, tmp_path, "local[2]", 400)
    try:
        life.end()
    finally:
        life.kill()
    check(server, topics[1], 4000)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(6000)
@pytest.mark.skipif(
    not os.environ.get("HEADRACE_CLUSTER"),
    reason="kafka: takes many minutes: `make chaos`, or HEADRACE_CLUSTER=1",
)
def test_drivers_executors_and_the_broker_are_killed_and_every_result_is_there_once(
    tmp_path: Path,
) -> None:
    dice = random.Random(SEED)
    server = kafka.broker(few=True)
    began = time.monotonic()
    topics = sent(server, RECORDS)
    kinds = ["driver", "executor", "broker"]
    planned = [*kinds, *(dice.choice([*kinds, "executor"]) for _ in range(KILLS))][:KILLS]
    dice.shuffle(planned)
    # So that every kill has an epoch to itself, and some are left when all have been.
    epoch = max(100, RECORDS * 2 // (KILLS * 3))
    with cluster(tmp_path / "cluster", EXECUTORS) as running:
        life = KafkaLife(server, topics, tmp_path, running.url, epoch)
        try:
            killed: list[str] = []
            while len(killed) < KILLS:
                what = planned[len(killed)]
                assert life.next_epoch(), f"ended before kill {len(killed) + 1}: {life.errors[-5:]}"
                time.sleep(dice.uniform(0, 1.0))
                if what == "driver":
                    life.kill()
                    life = KafkaLife(server, topics, tmp_path, running.url, epoch)
                elif what == "broker":
                    server.process.kill()
                    time.sleep(dice.uniform(0, 2.0))
                    server.restart()
                elif not kill_an_executor(running, dice):
                    continue
                killed.append(what)
                print(
                    f"{time.monotonic() - began:.0f} s: killed {what} ({len(killed)})", flush=True
                )
            left = 0
            while life.next_epoch():
                left += 1
                print(f"{time.monotonic() - began:.0f} s: epoch {left} after them", flush=True)
            life.end_of_process()
        finally:
            if life.process.poll() is None:
                life.process.send_signal(signal.SIGCONT)
            life.kill()
    check(server, topics[1], RECORDS)
    took = time.monotonic() - began
    print(f"{RECORDS:,} records, {len(killed)} kills, {took:.0f} s", flush=True)
