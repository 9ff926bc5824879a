"""Killed again and again, at any moment: output and state are those of an undisturbed run."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.reference.exchange import exchange as plain_exchange
from tests.spark.pipelines import exchange, make_trades, trades_in, write_trades
from tests.spark.support import (
    FAILPOINTS,
    bag,
    contents,
    environment,
    lines_of,
    rows,
    run_local,
    state_of,
)

KILLS = 10
SEED = 20_260_302


def start(program: str, *arguments: Any, **more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"tests.spark.programs.{program}", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**more)
    )


def undisturbed(where: Path, trades: dict[str, Any], **options: Any) -> Path:
    """The same run with nobody killing it."""
    write_trades(trades, where / "in")
    run_local(exchange(trades_in(where / "in"), where / "out"), where / "checkpoint", **options)
    return where


def check_equal(killed: Path, calm: Path, trades: dict[str, Any]) -> None:
    closed, payments, _ = plain_exchange(trades)
    assert bag(rows(killed / "out" / "closed")) == bag(closed)
    assert bag(rows(killed / "out" / "payments")) == bag(payments)
    assert contents(killed / "out") == contents(calm / "out"), "byte for byte, epoch by epoch"
    assert state_of(killed / "checkpoint") == state_of(calm / "checkpoint")


def test_killed_at_every_failpoint_and_at_random_moments_it_ends_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    trades = make_trades(3, count=3600, disorder=1_900_000)
    killed = tmp_path / "killed"
    write_trades(trades, killed / "in")
    process = start("many_lives", killed, 25, SEED)
    out, err = process.communicate(timeout=250)
    lives = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0, err
    assert lives[-1]["how"] == "ended", err
    early = [life for life in lives[:-1] if life["how"] not in ("died", "killed")]
    assert not early, f"it was not killed, or not in time: {early} {err}"
    assert {life["failpoint"].split(":")[0] for life in lives if life["failpoint"]} == set(
        FAILPOINTS
    )
    assert lives[-1]["epoch"] > lives[-2]["epoch"], "the last kill still hit a running pipeline"
    calm = undisturbed(tmp_path / "calm", trades, slots=3, epoch_records=25)
    check_equal(killed, calm, trades)
    shutil.rmtree(tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_driver_on_spark_killed_ten_times_in_a_row_ends_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    dice = random.Random(SEED)
    trades = make_trades(4, count=1000, disorder=1_900_000)
    killed = tmp_path / "killed"
    write_trades(trades, killed / "in")
    reached = []
    for _ in range(KILLS):
        process = start("kill_me", killed, 25)
        # After some epochs of this life, or while it still takes over, at any moment in between.
        epochs, seconds = dice.choice([0, 1, 1, 2, 3]), dice.uniform(0, 0.5)
        seen = follow(process, epochs)
        time.sleep(seconds)
        assert process.poll() is None, "it ended before it could be killed: give it more input"
        process.send_signal(signal.SIGKILL)
        process.wait()
        reached.append(seen[-1])
    assert sum(line.startswith("epoch") for line in reached) >= 5, reached
    process = start("kill_me", killed, 25)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert out.count("epoch ") >= 3, "the last kill still hit a running pipeline"
    calm = undisturbed(tmp_path / "calm", trades, slots=2, epoch_records=25)
    check_equal(killed, calm, trades)


def follow(process: subprocess.Popen[str], epochs: int) -> list[str]:
    """What the program says until it is ready and has done that many epochs."""
    seen: list[str] = []
    for line in lines_of(process.stdout):
        seen.append(line)
        if sum(each.startswith("epoch") for each in seen) >= epochs and "ready" in seen:
            return seen
    _, err = process.communicate()
    raise AssertionError(f"it ended after {seen}: {err}")
