"""The versions of Spark that are said to work do: killed and started again, on each of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from tests.install.environments import environment_with_spark, plain_needs
from tests.install.tallies import check_all_once, sale
from tests.spark.support import ROOT, SHORT_LIVED_JVM, lines_of, write_jsonl

from headrace import Checkpoint
from headrace.engine.spark.session import check_version
from headrace.errors import SparkError

VERSIONS = ("4.1.4", "4.2.1", "4.3.0")
TOO_OLD = "4.0.5"
PROGRAM = ROOT / "tests" / "install" / "programs" / "tally.py"
COUNT = 300

thorough = pytest.mark.skipif(
    not os.environ.get("HEADRACE_INSTALL"),
    reason="installs other versions of Spark: `make test-versions`, or HEADRACE_INSTALL=1",
)


def start(version: str, where: Path) -> subprocess.Popen[str]:
    python = environment_with_spark(version)
    environment = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "JAVA_TOOL_OPTIONS": SHORT_LIVED_JVM}
    return subprocess.Popen(
        [python, PROGRAM, where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment, start_new_session=True,
    )  # fmt: skip


def live(version: str, where: Path, epochs: int | None) -> list[str]:
    """A life of the driver: killed after so many epochs, or to its end."""
    process = start(version, where)
    said: list[str] = []
    for line in lines_of(process.stdout):
        said.append(line)
        if epochs is not None and sum(each.startswith("epoch") for each in said) >= epochs:
            break
    else:
        assert epochs is None and process.wait(60) == 0, process.stderr.read()[-3000:]
        return said
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return said


@thorough
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("versions", [*((v, v, v) for v in VERSIONS), VERSIONS], ids="-".join)
def test_a_stateful_pipeline_lives_through_kills(versions: tuple[str, ...], tmp_path: Path) -> None:
    """The last case continues the checkpoint of each version on the next one."""
    write_jsonl(tmp_path / "in" / "a.jsonl", map(sale, range(COUNT)))
    for version in versions[:-1]:
        live(version, tmp_path, epochs=3)
    said = live(versions[-1], tmp_path, epochs=None)
    assert said[-1] == f"done {versions[-1]}"
    assert len(said) > 3, "the last kill still hit a running pipeline"
    check_all_once(tmp_path, COUNT)
    assert Checkpoint(tmp_path / "state").verify().is_whole


@thorough
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_older_spark_is_refused_with_a_sentence(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in" / "a.jsonl", [sale(0)])
    process = start(TOO_OLD, tmp_path)
    _, error = process.communicate(timeout=600)
    assert process.returncode == 1
    assert f"this session runs Spark {TOO_OLD}, and Headrace needs Spark 4.1 or newer" in error


def test_the_versions_are_those_that_pip_may_install_and_that_the_guide_names() -> None:
    [spark] = [need for need in plain_needs() if need.startswith("pyspark")]
    low, high = re.fullmatch(r"pyspark>=(\d\.\d),<(\d\.\d)", spark).groups()
    minors = [version.rpartition(".")[0] for version in VERSIONS]
    assert low == minors[0] and high == f"4.{int(minors[-1][2:]) + 1}"
    page = (ROOT / "docs" / "guides" / "deployment.md").read_text()
    assert all(version in page for version in (*VERSIONS, TOO_OLD))


def test_a_version_is_compared_by_its_numbers() -> None:
    for good in (*VERSIONS, "4.10.0", "5.0.0-SNAPSHOT", "4.1.0.dev1"):
        check_version(good)
    for old in ("3.5.9", TOO_OLD, "4.0.0-preview1"):
        with pytest.raises(SparkError, match=re.escape(old)):
            check_version(old)
