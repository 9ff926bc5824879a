"""The commands reach a pipeline that runs on Spark in another process, and its standby."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.spark.programs.paced import KEYS
from tests.spark.support import environment

from headrace import Checkpoint
from headrace.cli.main import cli

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DEADLINE_S = 280


def headrace(*words: object) -> str:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def status(checkpoint: Path) -> dict[str, object]:
    return json.loads(headrace("status", checkpoint, "--json"))


@contextmanager
def running(where: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable, "-m", "headrace.cli.main", "run", "tests.spark.programs.paced:pipeline",
        "--checkpoint", str(where / "state"), "--master", "local[2]", *options,
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        env=environment(PACED_OUTPUT=str(where / "out")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until_epoch(where: Path, epoch: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if (where / "state" / "IDENTITY").exists() and Checkpoint(where / "state").epoch >= epoch:
            return
        time.sleep(0.2)
    raise AssertionError(f"epoch {epoch} did not come")


def test_a_pipeline_on_spark_is_commanded_from_another_process(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running(tmp_path) as leader, running(tmp_path, "--standby") as standby:
        until_epoch(tmp_path, 5)
        assert "pause taken: paused after epoch" in headrace("pause", state)
        paused = status(state)
        assert (paused["state"], paused["paused"]) == ("paused", True)
        time.sleep(2)
        assert status(state)["epoch"] == paused["epoch"]
        saved = headrace("savepoint", state, "here")
        assert f"here holds epoch {paused['epoch']}" in saved
        headrace("resume", state)
        until_epoch(tmp_path, int(str(paused["epoch"])) + 3)
        assert headrace("ps", state).splitlines()[1].split()[:2] == ["paced", "running"]
        assert "stop taken: stopped after epoch" in headrace("stop", state)
        assert leader.wait(60) == 0 and standby.wait(60) == 0
    with running(tmp_path, "--supervised") as supervised:
        assert supervised.wait(120) == 0
    stopped = status(state)
    assert stopped["state"] == "stopped"
    headrace("restore", state, "here", "--to", tmp_path / "copy")
    copied = Checkpoint(tmp_path / "copy")
    assert copied.epoch == paused["epoch"]
    counts = [found["count"] for _, found in copied.scan("Tally")]
    assert len(counts) == KEYS and sum(counts) == paused["records"]
    with running(tmp_path):
        until_epoch(tmp_path, int(str(stopped["epoch"])) + 2)


def test_a_run_shows_metrics_and_health_logs_json_and_ends_with_0_on_sigterm(
    tmp_path: Path,
) -> None:
    command = [
        sys.executable, "-m", "headrace.cli.main", "run", "tests.spark.programs.paced:pipeline",
        "--checkpoint", str(tmp_path / "state"), "--master", "local[2]",
        "--metrics-port", "0", "--log-format", "json",
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        env=environment(PACED_OUTPUT=str(tmp_path / "out")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        url = ""
        events = []
        while not any(event["event"] == "epoch" for event in events):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            events.append(json.loads(line))
            if events[-1].get("kind") == "metrics":
                url = events[-1]["text"].split()[2].removesuffix("/metrics,")
        assert any("Starting Spark on local[2]" in event.get("text", "") for event in events)
        with urllib.request.urlopen(f"{url}/healthz", timeout=30) as answer:
            assert json.load(answer)["phase"] == "running"
        text, counted = "", 'headrace_computation_records_total{computation="Tally"'
        deadline = time.monotonic() + 60
        while counted not in text and time.monotonic() < deadline:  # told after the line above
            with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
                text = answer.read().decode()
        assert f'{counted},pipeline="paced"}}' in text
        assert 'headrace_computation_busy_seconds_total{computation="Tally"' in text
        process.send_signal(signal.SIGTERM)
        rest, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        last = json.loads(rest.splitlines()[-1])
        assert (last["event"], last["reason"]) == ("end", "stopped")
        assert "Stopping after the current epoch" in said
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
