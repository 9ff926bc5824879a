"""Whole runs with their checkpoint on a server: what comes out is what a disk gives.

Drivers die at every failpoint and at random moments, two lead at once; servers die, hang, and lose
answers. `make test-servers` runs these. They need no Spark; those on Spark are in tests/spark.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.reference.exchange import exchange as plain_exchange
from tests.servers.proxy import Proxy
from tests.servers.stores import chosen, kill_server, server_of
from tests.spark.pipelines import make_trades, write_trades
from tests.spark.support import FAILPOINTS, bag, contents, rows, state_of
from tests.spark.test_kills import SEED, follow, start, undisturbed

pytestmark = [
    pytest.mark.skipif("HEADRACE_SERVERS" not in os.environ, reason="make test-servers runs it"),
    pytest.mark.slow,
    pytest.mark.timeout(900),
]
S3 = [kind for kind in chosen() if kind in ("ministack", "versitygw")]
ON_FILES = [kind for kind in chosen() if kind != "ministack"]
"""Servers that know their objects after they were killed."""
FAULTS = ["lost", "cut", "500", "503", "409", "429", "lost 500", "late"]


def check_equal(where: Path, url: str, calm: Path, trades: dict[str, Any]) -> None:
    closed, payments, _ = plain_exchange(trades)
    assert bag(rows(where / "out" / "closed")) == bag(closed)
    assert bag(rows(where / "out" / "payments")) == bag(payments)
    assert contents(where / "out") == contents(calm / "out"), "byte for byte, epoch by epoch"
    assert state_of(url) == state_of(calm / "checkpoint")


def ends_well(process: Any) -> str:
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    return str(out)


@pytest.fixture
def trades(tmp_path: Path) -> dict[str, Any]:
    found = make_trades(6, count=600, disorder=1_900_000)
    write_trades(found, tmp_path / "run" / "in")
    return found


@pytest.fixture
def calm(tmp_path: Path, trades: dict[str, Any]) -> Path:
    return undisturbed(tmp_path / "calm", trades, slots=2, epoch_records=25)


@pytest.mark.parametrize("kind", chosen())
def test_killed_at_every_failpoint_it_ends_as_on_a_disk(kind: str, tmp_path: Path) -> None:
    url = server_of(kind).new_url()
    trades = make_trades(3, count=3600, disorder=1_900_000)
    write_trades(trades, tmp_path / "run" / "in")
    process = start("many_lives", tmp_path / "run", 25, SEED, url)
    out = ends_well(process)
    lives = [json.loads(line) for line in out.splitlines()]
    assert lives[-1]["how"] == "ended"
    reached = {life["failpoint"].split(":")[0] for life in lives if life["failpoint"]}
    assert reached == set(FAILPOINTS)
    assert all(life["how"] in ("died", "killed") for life in lives[:-1]), lives
    calm = undisturbed(tmp_path / "calm", trades, slots=3, epoch_records=25)
    check_equal(tmp_path / "run", url, calm, trades)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", S3)
def test_a_server_that_loses_answers_and_fails_changes_nothing(
    kind: str, seed: int, tmp_path: Path, trades: dict[str, Any], calm: Path
) -> None:
    server = server_of(kind)
    proxy, dice = Proxy(server.process.port), random.Random(seed)
    url = server.new_url()
    faulty = url.replace(f":{server.process.port}", f":{proxy.port}") + "&timeout=1s"
    armed = threading.Event()

    def fault(method: str, path: str, number: int) -> str:
        if not armed.is_set() or dice.random() > 0.2:
            return "pass"
        return "hang" if dice.random() < 0.05 else dice.choice(FAULTS)

    proxy.fault = fault
    process = start("kill_me", tmp_path / "run", 25, "--local", "--checkpoint", faulty)
    follow(process, 1)
    armed.set()
    ends_well(process)
    hit = [fate for *_, fate in proxy.seen if fate != "pass"]
    proxy.close()
    assert len(hit) > 20
    check_equal(tmp_path / "run", url, calm, trades)


@pytest.mark.parametrize("kind", ON_FILES)
def test_a_server_that_is_killed_and_comes_back_changes_nothing(
    kind: str, tmp_path: Path, trades: dict[str, Any], calm: Path
) -> None:
    server = server_of(kind)
    url = server.new_url()
    process = start("kill_me", tmp_path / "run", 25, "--local", "--checkpoint", url)
    follow(process, 3)
    kill_server(server, process.pid)
    time.sleep(3)
    assert process.poll() is None, "it waits"
    server.process.start()
    ends_well(process)
    check_equal(tmp_path / "run", url, calm, trades)


@pytest.mark.parametrize("kind", chosen())
def test_a_server_that_hangs_for_a_while_changes_nothing(
    kind: str, tmp_path: Path, trades: dict[str, Any], calm: Path
) -> None:
    server = server_of(kind)
    url = server.new_url()
    slow = url + "&timeout=2s" if kind != "hdfs" else url
    process = start("kill_me", tmp_path / "run", 25, "--local", "--checkpoint", slow)
    follow(process, 3)
    server.process.hang()
    try:
        time.sleep(6)
        assert process.poll() is None, "it waits"
    finally:
        server.process.go_on()
    ends_well(process)
    check_equal(tmp_path / "run", url, calm, trades)


@pytest.mark.parametrize("kind", chosen())
def test_of_two_drivers_one_stops_and_the_other_ends_well(
    kind: str, tmp_path: Path, trades: dict[str, Any], calm: Path
) -> None:
    url = server_of(kind).new_url()
    first = start("kill_me", tmp_path / "run", 25, "--local", "--checkpoint", url)
    follow(first, 3)
    # A second that starts slowly would find the first at its end.
    first.send_signal(signal.SIGSTOP)
    second = start("kill_me", tmp_path / "run", 25, "--local", "--checkpoint", url)
    follow(second, 1)
    first.send_signal(signal.SIGCONT)
    _, err = first.communicate(timeout=200)
    ends_well(second)
    assert first.returncode != 0 and "has taken over this checkpoint" in err
    check_equal(tmp_path / "run", url, calm, trades)
