"""Workers, executors and drivers killed at random moments: none lost, none twice, all in order.

By default a short run; HEADRACE_RECORDS and HEADRACE_KILLS make it a long one (`make chaos`).
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.spark.support import environment, lines_of, rows, write_jsonl

from headrace.bench.cluster import Cluster, cluster

RECORDS = int(os.environ.get("HEADRACE_RECORDS", "6000"))
KILLS = int(os.environ.get("HEADRACE_KILLS", "3"))
SEED = int(os.environ.get("HEADRACE_SEED", "20261115"))
EXECUTORS = 3
KEYS = 400
QUIET_S = 240.0

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3000)]


class Life:
    """A driver in a process of its own, and what it has said so far."""

    def __init__(self, where: Path, url: str, epoch_records: int) -> None:
        command = [sys.executable, "-m", "tests.cluster.programs.life", str(where), url]
        self._errors = open(where / "driver.err", "ab")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command, str(EXECUTORS), str(epoch_records)],
            stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment(),
        )  # fmt: skip
        self._said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in lines_of(self.process.stdout):
            self._said.put(line)
        self._said.put("gone")

    def next(self) -> str:
        """What it says next; "gone" at its end."""
        return self._said.get(timeout=QUIET_S)

    def next_epoch(self) -> bool:
        """Waits for an epoch; False where the run has ended."""
        while (line := self.next()) not in ("gone", "done"):
            if line.startswith("epoch"):
                return True
        return False

    def kill(self) -> None:
        """The driver, with its JVM, at once: as if its machine were gone."""
        for process in [*psutil.Process(self.process.pid).children(recursive=True)]:
            process.send_signal(signal.SIGKILL)
        self.process.kill()
        self.process.wait()


def schedule(dice: random.Random) -> list[str]:
    """What to kill: every kind at least once, drivers less often as they take longest to return."""
    kinds = ["worker", "executor", "driver", "executor"]
    kinds += [dice.choice(["worker", "worker", "executor", "executor", "driver"])
              for _ in range(KILLS)]  # fmt: skip
    kinds = kinds[:KILLS]
    dice.shuffle(kinds)
    return kinds


def kill_something(dice: random.Random, running: Cluster, life: Life, what: str) -> str:
    if what == "driver":
        life.kill()
        return what
    victims = running.python_workers() if what == "worker" else running.pids()
    if not victims:
        return ""
    try:
        os.kill(dice.choice(victims), signal.SIGKILL)
    except ProcessLookupError:
        return ""
    return what


def test_records_survive_kills_of_workers_executors_and_drivers(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    at = 1_700_000_000_000_000
    for part in range(2):
        values = [{"id": i, "key": f"k{part}-{i % KEYS}", "at": at + i}
                  for i in range(part, RECORDS, 2)]  # fmt: skip
        write_jsonl(tmp_path / "in" / f"{part}.jsonl", values)
    kills: list[str] = []
    planned = schedule(dice)
    lives = 1
    # So that every kill has some epochs to itself.
    epoch_records = max(50, RECORDS * 2 // (KILLS * 5))
    with cluster(tmp_path / "cluster", EXECUTORS) as running:
        life = Life(tmp_path, running.url, epoch_records)
        try:
            while len(kills) < KILLS:
                assert life.next_epoch(), (
                    f"it ended before kill {len(kills) + 1}: {error(tmp_path)}"
                )
                time.sleep(dice.uniform(0, 1.0))
                assert life.process.poll() is None, "it ended before it could be killed"
                killed = kill_something(dice, running, life, planned[len(kills)])
                if killed:
                    kills.append(killed)
                if killed == "driver":
                    life = Life(tmp_path, running.url, epoch_records)
                    lives += 1
            assert life.next_epoch(), "the last kill hit a pipeline that still ran"
            assert life.next_epoch(), "and that went on after it"
            while life.next_epoch():
                pass
            assert life.process.wait(60) == 0, error(tmp_path)
        finally:
            if life.process.poll() is None:
                life.kill()
    found = rows(tmp_path / "out")
    outcome = judge(found)
    print(
        json.dumps({"records": RECORDS, "kills": dict(Counter(kills)), "lives": lives, **outcome})
    )
    assert outcome == {"lost": 0, "duplicated": 0, "out of order": 0}


def judge(found: list[dict[str, Any]]) -> dict[str, int]:
    """Counts what went wrong, from the output alone."""
    ids = Counter(row["id"] for row in found)
    wrong = 0
    last: dict[str, int] = defaultdict(lambda: -1)
    count: Counter[str] = Counter()
    of_group: Counter[str] = Counter()
    for row in found:
        count[row["key"]] += 1
        of_group[row["group"]] += 1
        nth = count[row["key"]]
        expected = (nth, nth - 1, of_group[row["group"]])
        told = (row["nth"], row["after"], row["of_group"])
        wrong += row["id"] <= last[row["key"]] or told != expected
        last[row["key"]] = row["id"]
    return {
        "lost": sum(i not in ids for i in range(RECORDS)),
        "duplicated": sum(times - 1 for times in ids.values()),
        "out of order": wrong,
    }


def error(where: Path) -> str:
    text = (where / "driver.err").read_text(encoding="utf-8", errors="replace")
    return text[-3000:]
