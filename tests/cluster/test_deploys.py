"""Rescales and deploys under load, with kills in between: none lost, none twice, all in order.

By default a short run; HEADRACE_RESCALES and HEADRACE_DEPLOYS make it a long one (`make chaos`).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import thorough
from tests.spark.support import environment, rows

from headrace.bench.cluster import Cluster, cluster, wait_for
from headrace.engine.commands import Remote

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3000), thorough]

RESCALES = int(os.environ.get("HEADRACE_RESCALES", "4"))
DEPLOYS = int(os.environ.get("HEADRACE_DEPLOYS", "1"))
EXECUTORS = 2
KEYS = 20
PATIENCE_S = 240.0


class Version:
    """A driver with one version of the code, and what it has said."""

    def __init__(self, verb: str, where: Path, url: str, version: int) -> None:
        self.version = version
        self.lines: list[str] = []
        command = [sys.executable, "-m", "tests.cluster.programs.versions", verb, str(where), url]
        self.process = subprocess.Popen(
            [*command, str(EXECUTORS), str(version)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(),
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(line.rstrip("\n"))

    @property
    def epochs(self) -> int:
        return sum(line.startswith("epoch ") for line in self.lines)

    def goes_on(self, epochs: int = 2) -> None:
        """Waits for so many more epochs."""
        wanted = self.epochs + epochs

        def is_there() -> bool:
            assert self.process.poll() is None, self.lines[-20:]
            return self.epochs >= wanted

        wait_for(is_there, f"{epochs} epochs of version {self.version}", PATIENCE_S)


class Feed:
    """Files of one record per key, one after the other, until it is ended."""

    def __init__(self, directory: Path) -> None:
        self.files = 0
        self._directory, self._ends = directory, threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._thread.start()

    def _go(self) -> None:
        while not self._ends.wait(0.5):
            number = self.files
            records = [{"key": f"k{key}", "id": number * KEYS + key} for key in range(KEYS)]
            hidden = self._directory / f".{number:06d}"
            hidden.write_text("".join(json.dumps(record) + "\n" for record in records))
            hidden.rename(self._directory / f"{number:06d}.jsonl")
            self.files += 1

    def end(self) -> int:
        """Stops; returns how many records there are."""
        self._ends.set()
        self._thread.join()
        return self.files * KEYS


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with room for two drivers."""
    with cluster(tmp_path / "cluster", EXECUTORS, room=2) as running:
        yield running


def test_rescales_and_deploys_with_kills_lose_and_double_nothing(
    roomy: Cluster, tmp_path: Path
) -> None:
    dice = random.Random(int(os.environ.get("HEADRACE_SEED", "12")))
    (tmp_path / "in").mkdir()
    checkpoint = str(tmp_path / "checkpoint")
    feed = Feed(tmp_path / "in")
    leader = Version("run", tmp_path, roomy.url, 1)
    started = [leader]
    try:
        leader.goes_on(3)
        steps = ["rescale"] * RESCALES + ["deploy"] * DEPLOYS
        dice.shuffle(steps)
        for number, step in enumerate(steps):
            print(f"{number + 1} of {len(steps)}: {step}", flush=True)
            if step == "rescale":
                name, slots = dice.choice(("First", "Second")), dice.randint(1, 9)
                if dice.random() < 0.5:
                    os.kill(dice.choice(roomy.ready()), signal.SIGKILL)
                Remote(checkpoint).rescale(name, slots, timeout_s=PATIENCE_S)
            else:
                former, version = leader, leader.version + 1
                leader = Version("deploy", tmp_path, roomy.url, version)
                started.append(leader)
                if dice.random() < 0.5:
                    former.goes_on(2)
                    os.kill(dice.choice(roomy.pids()), signal.SIGKILL)
                wait_for(lambda it=former: it.process.poll() is not None, "a confirm", PATIENCE_S)
                assert former.process.returncode == 0, (former.lines[-9:], leader.lines[-9:])
            if dice.random() < 0.4:
                leader.process.kill()
                leader.process.wait()
                leader = Version("run", tmp_path, roomy.url, leader.version)
                started.append(leader)
            leader.goes_on()
        count = feed.end()
        wait_for(lambda: len(rows(tmp_path / "out")) >= count, "all records", PATIENCE_S)
        time.sleep(2)
        Remote(checkpoint).stop(timeout_s=PATIENCE_S)
        assert leader.process.wait(PATIENCE_S) == 0
    finally:
        feed.end()
        for each in started:
            each.process.kill()
    found = rows(tmp_path / "out")
    assert sorted(row["id"] for row in found) == list(range(count))
    by_key = defaultdict(list)
    for row in found:
        by_key[row["key"]].append(row)
    for key, seen in by_key.items():
        ids = [row["id"] for row in seen]
        assert ids == sorted(ids), f"{key} is out of order"
        assert [row["nth"] for row in seen] == list(range(1, len(seen) + 1))
        assert [row["again"] for row in seen] == list(range(1, len(seen) + 1))
        versions = [row["version"] for row in seen]
        assert versions == sorted(versions) and versions[-1] == DEPLOYS + 1
