"""Spark runs with input, checkpoint and output on a server, through kills and faults.

None lost, none doubled, all in order, and equal to a run on a disk. `make test` has no time for
them: `make test-servers`.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.servers.kinds import Server
from tests.servers.pipelines import below
from tests.servers.proxy import Proxy
from tests.servers.stores import chosen, kill_server, server_of
from tests.spark.support import environment, lines_of

import headrace
from headrace.bench.cluster import Cluster, cluster
from headrace.store.location import open_store

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(
        "HEADRACE_SERVERS" not in os.environ, reason="takes many minutes: `make test-servers`"
    ),
]

KILLS = int(os.environ.get("HEADRACE_KILLS", "10"))
SEED = int(os.environ.get("HEADRACE_SEED", "20261116"))
RECORDS = 4_000
EPOCH = 60
KEYS = 150
QUIET_S = 300.0


class Places:
    """Input, checkpoint and output of a run, in one server's store."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.input = below(base, "in")
        self.checkpoint = below(base, "checkpoint")
        self.output = below(base, "out")

    def write(self, files: dict[str, str]) -> None:
        store = open_store(self.input)
        store.make_directory("")
        for name, text in files.items():
            store.write(name, text.encode())

    def rows(self) -> list[dict[str, Any]]:
        return list(headrace.read_output(self.output).table().to_pylist())


class Life:
    """A driver in a process of its own, and what it has said so far."""

    def __init__(
        self, pipeline: str, places: Places, master: str, epoch: int = EPOCH, state: str = ""
    ) -> None:
        command = [sys.executable, "-m", "tests.servers.programs.life", pipeline]
        command += [places.input, places.checkpoint, places.output, master, str(epoch)]
        command += [state] if state else []
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        self._said: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._keep_errors, daemon=True).start()

    def _listen(self) -> None:
        for line in lines_of(self.process.stdout):
            self._said.put(line)
        self._said.put("gone")

    def _keep_errors(self) -> None:
        self.errors.extend(lines_of(self.process.stderr))

    def next_epoch(self) -> bool:
        """Waits for an epoch; False where the run has ended."""
        while True:
            line = self._said.get(timeout=QUIET_S)
            if line.startswith("epoch"):
                return True
            assert not line.startswith("stopped"), line
            if line in ("gone", "done"):
                return False

    def await_ready(self) -> None:
        """Waits until its Spark has started."""
        line = self._said.get(timeout=QUIET_S)
        assert line == "ready", f"{line}: {self.errors[-5:]}"

    def end(self) -> None:
        while self.next_epoch():
            pass
        self.end_of_process()

    def end_of_process(self) -> None:
        """Waits for the end of a run that has said that it is done."""
        assert self.process.wait(120) == 0, "\n".join(self.errors)[-3000:]

    def last_word(self) -> str:
        """What it says at its end."""
        said = ""
        while (line := self._said.get(timeout=QUIET_S)) != "gone":
            said = line
        return said

    def kill(self) -> None:
        """The driver, with its JVM, at once."""
        if self.process.poll() is None:
            for process in psutil.Process(self.process.pid).children(recursive=True):
                process.send_signal(signal.SIGKILL)
            self.process.kill()
        self.process.wait()


@pytest.fixture(params=chosen())
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    found = server_of(request.param)
    yield found
    found.process.go_on()


@pytest.fixture
def places(server: Server) -> Places:
    return Places(server.new_url())


def numbered_lines() -> dict[str, str]:
    at = 1_700_000_000_000_000
    found = {}
    for part in range(2):
        values = [{"id": i, "key": f"k{part}-{i % KEYS}", "at": at + i}
                  for i in range(part, RECORDS, 2)]  # fmt: skip
        found[f"{part}.jsonl"] = "".join(json.dumps(value) + "\n" for value in values)
    return found


def check_all_once(found: list[dict[str, Any]]) -> None:
    """Every record once, each key's in order, with the numbers that both levels gave it."""
    ids = Counter(row["id"] for row in found)
    lost = [i for i in range(RECORDS) if i not in ids]
    doubled = [i for i, times in ids.items() if times > 1]
    assert (len(lost), len(doubled)) == (0, 0), f"lost {lost[:10]}, doubled {doubled[:10]}"
    last: dict[str, int] = defaultdict(lambda: -1)
    count: Counter[str] = Counter()
    for row in found:
        count[row["key"]] += 1
        assert row["id"] > last[row["key"]], f"out of order: {row}"
        assert (row["nth"], row["after"]) == (count[row["key"]], count[row["key"]] - 1), row
        last[row["key"]] = row["id"]


def test_word_count_and_a_windowed_join_are_those_of_a_disk(places: Places, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    words = [f"w{n}" for n in range(200)]
    texts = {
        f"{n}.txt": "".join(" ".join(dice.choices(words, k=9)) + "\n" for _ in range(150))
        for n in range(3)
    }
    at = 1_700_000_000_000_000
    sides = {}
    for name in ("clicks", "views"):
        rows = [{"user": f"u{dice.randrange(20)}", name: n, "at": at + n * 100_000}
                for n in range(600)]  # fmt: skip
        sides[f"{name}-0.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
    for pipeline, files in (("word_count", texts), ("windowed_join", sides)):
        bags = []
        for base in (str(tmp_path), places.base):
            where = Places(below(base, pipeline))
            where.write(files)
            life = Life(pipeline, where, "local[2]", 200)
            try:
                life.end()
            finally:
                life.kill()
            bags.append(Counter(json.dumps(row, sort_keys=True) for row in where.rows()))
        assert bags[0] == bags[1], f"{pipeline}: another result than on a disk"
        assert bags[0], f"{pipeline}: no rows"


def test_a_driver_that_is_killed_again_and_again_loses_and_doubles_nothing(
    places: Places,
) -> None:
    dice = random.Random(SEED)
    places.write(numbered_lines())
    for _ in range(KILLS):
        life = Life("lives", places, "local[2]")
        try:
            for _ in range(dice.randint(1, 3)):
                assert life.next_epoch(), "it ended before it was killed"
            time.sleep(dice.uniform(0, 0.5))
        finally:
            life.kill()
    life = Life("lives", places, "local[2]")
    life.end()
    check_all_once(places.rows())


def test_executors_that_are_killed_lose_and_double_nothing(places: Places, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    places.write(numbered_lines())
    with cluster(tmp_path / "cluster", 3) as running:
        life = Life("lives", places, running.url)
        try:
            kills = 0
            while kills < KILLS:
                assert life.next_epoch(), f"it ended before kill {kills + 1}"
                time.sleep(dice.uniform(0, 0.5))
                kills += kill_an_executor(running, dice)
            life.end()
        finally:
            life.kill()
    check_all_once(places.rows())


def kill_an_executor(running: Cluster, dice: random.Random) -> bool:
    victims = running.pids()
    if not victims:
        return False
    try:
        os.kill(dice.choice(victims), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_of_two_drivers_at_once_one_stops_as_fenced(places: Places) -> None:
    places.write(numbered_lines())
    first = Life("lives", places, "local[1]")
    second = None
    try:
        assert first.next_epoch()
        # A Spark that starts slowly would find the first at its end.
        first.process.send_signal(signal.SIGSTOP)
        second = Life("lives", places, "local[1]")
        second.await_ready()
        first.process.send_signal(signal.SIGCONT)
        assert second.next_epoch(), "the second takes over"
        assert first.last_word().startswith("stopped Fenced"), first.errors[-5:]
        second.end()
    finally:
        first.kill()
        if second is not None:
            second.kill()
    check_all_once(places.rows())


def test_a_server_that_is_killed_and_one_that_hangs_are_waited_for(
    server: Server, places: Places
) -> None:
    if server.name == "ministack":
        pytest.skip("ministack keeps its objects in memory: a kill loses them")
    places.write(numbered_lines())
    life = Life("lives", places, "local[2]")
    try:
        assert life.next_epoch()
        kill_server(server, life.process.pid)
        time.sleep(3)
        server.process.start()
        for _ in range(3):
            assert life.next_epoch(), "\n".join(life.errors)[-3000:]
        server.process.hang()
        time.sleep(20)
        server.process.go_on()
        life.end()
    finally:
        life.kill()
    check_all_once(places.rows())


def test_errors_conflicts_throttling_and_lost_answers_lose_and_double_nothing(
    server: Server,
) -> None:
    if server.name == "hdfs":
        pytest.skip("its protocol is not HTTP: see the test that kills the server")
    dice = random.Random(SEED)
    fates = ["500", "503", "409", "429", "lost", "cut", "late", "lost 500"]
    proxy = Proxy(server.process.port)
    try:
        base = server.new_url().replace(f":{server.process.port}", f":{proxy.port}")
        places = Places(base)
        places.write(numbered_lines())
        proxy.fault = lambda method, path, number: (
            dice.choice(fates) if dice.random() < 0.12 else "pass"
        )
        life = Life("lives", places, "local[2]")
        try:
            life.end()
        finally:
            life.kill()
        proxy.fault = lambda method, path, number: "pass"
        made = Counter(fate for _, _, fate in proxy.seen)
        assert all(made[fate] for fate in fates), made
        check_all_once(places.rows())
    finally:
        proxy.close()
