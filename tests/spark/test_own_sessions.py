"""Sessions that users bring: what is wrong with them is one sentence, and programs end."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tests.spark.support import environment

from headrace import SparkError
from headrace.engine.spark import probe

pytestmark = pytest.mark.spark


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"tests.spark.programs.{program}", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=240, check=False
    )


@pytest.mark.slow
def test_wrong_workers_and_a_killed_jvm_are_told_in_one_sentence(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    bare = str(tmp_path / "bare" / "bin" / "python")
    done = run("own_sessions", str(tmp_path), bare)
    assert done.returncode == 0, done.stderr
    wrong, right, killed = map(json.loads, done.stdout.splitlines())
    assert wrong["kind"] == "SparkError"
    assert f"run {bare}, which has no 'headrace'" in wrong["text"]
    assert f"PYSPARK_PYTHON={sys.executable} before the session is made" in wrong["text"]
    assert right == {"records": 3}
    assert killed["kind"] == "SparkError" and killed["phase"] == "failed"
    assert killed["text"].startswith("Spark's JVM has ended by signal 9: out of memory, perhaps.")
    for told in (wrong, killed):
        assert "\n" not in told["text"] and len(told["text"]) < 400
    assert "Traceback" not in done.stderr, "nobody else tells it at length"


@pytest.mark.slow
def test_a_program_on_spark_connect_ends(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="the extra `connect` is not installed")
    done = run("connected", str(tmp_path))
    assert done.returncode == 0, done.stderr
    refused, rows = done.stdout.splitlines()
    assert refused == "refused"
    assert json.loads(rows) == [{"a": "x", "n": 2}, {"a": "y", "n": 1}]


def script(path: Path, says: str) -> str:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return str(path)


def test_a_python_of_another_version_is_told_without_a_job(tmp_path: Path) -> None:
    other = script(tmp_path / "python3", "3 10 True")
    with pytest.raises(SparkError, match=f"{other}, which is Python 3.10, and this is 3") as told:
        probe._has_headrace(other)
    assert f"PYSPARK_PYTHON={sys.executable}" in str(told.value)


def test_a_python_is_asked_whether_it_has_headrace(tmp_path: Path) -> None:
    assert probe._has_headrace(sys.executable)
    version = f"{sys.version_info[0]} {sys.version_info[1]}"
    assert not probe._has_headrace(script(tmp_path / "without", f"{version} False"))
    assert not probe._has_headrace(script(tmp_path / "strange", "what?"))
    assert not probe._has_headrace(str(tmp_path / "nothing"))
