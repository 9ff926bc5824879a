"""A standby goes on where a leader was killed, paused or stopped; outputs are as if nothing was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.spark.pipelines import exchange, make_trades, trades_in, write_trades
from tests.spark.support import contents, environment, run_local, state_of

TRADES = make_trades(9, count=1000, disorder=1_900_000)
DEADLINE_S = 280


class Program:
    """A process, and the lines it has said."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.spark.programs.stand_by", *map(str, arguments)]
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(line.rstrip("\n"))

    def until(self, beginning: str, times: int = 1) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while sum(beginning in line for line in self.lines) < times:
            assert time.monotonic() < deadline, self.lines[-20:]
            assert self.process.poll() is None or self._reader.is_alive(), self.lines[-20:]
            time.sleep(0.02)

    def ends(self) -> int:
        code = self.process.wait(DEADLINE_S)
        self._reader.join(10)
        return code


@contextmanager
def programs(*arguments: tuple[object, ...]) -> Iterator[list[Program]]:
    started: list[Program] = []
    try:
        for each in arguments:
            started.append(Program(*each))
            started[-1].until("ready")
            if "--standby" not in each:
                started[-1].until("epoch", 2)
        yield started
    finally:
        for program in started:
            if program.process.poll() is None:
                os.kill(program.process.pid, signal.SIGKILL)
            program.process.wait()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("calm")
    write_trades(TRADES, where / "in")
    pipeline = exchange(trades_in(where / "in"), where / "out")
    run_local(pipeline, where / "checkpoint", slots=2, epoch_records=25)
    return where


def check_as_if_nothing_had_happened(where: Path, calm: Path) -> None:
    assert contents(where / "out") == contents(calm / "out")
    assert state_of(where / "checkpoint") == state_of(calm / "checkpoint")


def generations(where: Path) -> list[int]:
    """Of the log's entries, in order."""
    entries = sorted((where / "checkpoint" / "log").glob("*/*"))
    return [json.loads(path.read_bytes().split(b"\n")[1])["generation"] for path in entries]


def test_a_standby_goes_on_where_the_leader_was_killed(tmp_path: Path, calm: Path) -> None:
    write_trades(TRADES, tmp_path / "in")
    with programs((tmp_path, "--pace", 0.4), (tmp_path, "--standby")) as (leader, standby):
        standby.until("leader generation 1 is alive")
        leader.process.send_signal(signal.SIGKILL)
        standby.until("leading as generation 2")
        assert standby.ends() == 0
        assert standby.lines[-1] == "done end"
    check_as_if_nothing_had_happened(tmp_path, calm)


def test_a_leader_that_was_paused_wakes_up_fenced_and_has_written_nothing(
    tmp_path: Path, calm: Path
) -> None:
    write_trades(TRADES, tmp_path / "in")
    slow, standing_by = (tmp_path, "--pace", 0.4), (tmp_path, "--pace", 0.05, "--standby")
    with programs(slow, standing_by) as (leader, standby):
        standby.until("leader generation 1 is alive")
        leader.process.send_signal(signal.SIGSTOP)
        standby.until("leading as generation 2")
        standby.until("epoch", 3)
        leader.process.send_signal(signal.SIGCONT)
        assert leader.ends() == 1
        assert leader.lines[-1] == "error Fenced"
        assert standby.ends() == 0, standby.lines
    found = generations(tmp_path)
    assert found == sorted(found) and set(found) == {1, 2}
    check_as_if_nothing_had_happened(tmp_path, calm)


def test_a_leader_that_is_stopped_hands_over_without_waiting_for_its_lease(
    tmp_path: Path, calm: Path
) -> None:
    write_trades(TRADES, tmp_path / "in")
    slow = (tmp_path, "--pace", 0.4, "--lease", 500)
    with programs(slow, (tmp_path, "--lease", 500, "--standby")) as (leader, standby):
        standby.until("leader generation 1 is alive")
        leader.process.send_signal(signal.SIGTERM)
        assert leader.ends() == 0 and leader.lines[-1] == "done stopped"
        assert standby.ends() == 0 and standby.lines[-1] == "done end"
    check_as_if_nothing_had_happened(tmp_path, calm)


def test_a_standby_of_a_leader_that_reaches_the_end_says_so_and_ends(
    tmp_path: Path, calm: Path
) -> None:
    write_trades(TRADES, tmp_path / "in")
    with programs((tmp_path, "--pace", 0.02), (tmp_path, "--standby")) as (leader, standby):
        assert leader.ends() == 0
        assert standby.ends() == 0
        assert any("leader generation 1 has ended (end)" in line for line in standby.lines)
        assert standby.lines[-1] == "done not_needed"
    check_as_if_nothing_had_happened(tmp_path, calm)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_warm_standby_on_spark_goes_on_where_the_leader_was_killed(tmp_path: Path) -> None:
    few = make_trades(10, count=200, disorder=1_900_000)
    calm = tmp_path / "calm"
    write_trades(few, tmp_path / "in")
    pipeline = exchange(trades_in(tmp_path / "in"), calm / "out")
    run_local(pipeline, calm / "checkpoint", slots=2, epoch_records=25)
    leading = (tmp_path, "--spark", "--pace", 10, "--lease", 3)
    with programs(leading, (tmp_path, "--spark", "--lease", 3, "--standby")) as (leader, standby):
        standby.until("leader generation 1 is alive")
        leader.process.send_signal(signal.SIGKILL)
        standby.until("leading as generation 2")
        assert standby.ends() == 0, standby.lines[-20:]
        assert standby.lines[-1] == "done end"
    check_as_if_nothing_had_happened(tmp_path, calm)
