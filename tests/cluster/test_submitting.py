"""A cluster for trying out, and what runs on it: `headrace run` with its options, `spark-submit`.

The cluster is the one that `headrace cluster start` starts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from tests.cluster.conftest import thorough
from tests.cluster.programs.submitted import write_repository, write_shop
from tests.spark.support import ROOT, environment, lines_of, rows

from headrace import Checkpoint
from headrace.bench.cluster import wait_for
from headrace.cli.cluster.local_cluster import record_in
from headrace.cli.cluster.processes import family, processes
from headrace.cli.main import cli
from headrace.errors import HeadraceError

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

COUNT = 180
SUBMIT = str(Path(sys.executable).parent / "spark-submit")
LOOPBACK = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1")
REFUSED = (
    "Cluster deploy mode is currently not supported for python applications on standalone clusters."
)


def headrace(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a running cluster with two executors."""
    place = tmp_path_factory.mktemp("trying") / "cluster"
    said = headrace("cluster", "start", "--executors", "2", "--memory", "600m", "--dir", place)
    record = record_in(place)
    assert record is not None
    assert f"--master {record.url} --conf spark.executor.memory=600m" in said
    yield place
    if place.exists():
        headrace("cluster", "stop", "--dir", place)
    assert not place.exists() and not family(record.mark, processes())


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    write_shop(tmp_path)
    return tmp_path


def started(where: Path, *command: object, **more: str) -> subprocess.Popen[str]:
    """A process that finds nothing of these tests: only what it is given."""
    settings = environment(
        SHOP_COUNT=str(COUNT), SHOP_OUTPUT=str(where / "out"), SHOP_STATE=str(where / "state"),
        PYTHONPATH=str(ROOT / "src"), **more,
    )  # fmt: skip
    return subprocess.Popen(
        [str(word) for word in command], cwd=where, env=settings, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def check_all_once_on_the_cluster(where: Path, home: Path) -> list[dict[str, object]]:
    found = rows(where / "out")
    assert Counter(row["n"] for row in found) == Counter(range(COUNT))
    assert all(row["cents"] == 100 * row["n"] for row in found)
    assert all(str(row["where"]).startswith(str(home)) for row in found), "in executors, not here"
    counts = [fields["count"] for _, fields in Checkpoint(where / "state").scan("Tally")]
    assert sum(counts) == COUNT
    return found


def url_of(home: Path) -> str:
    record = record_in(home)
    assert record is not None
    return record.url


def test_run_takes_settings_packages_and_python_files(home: Path, shop: Path) -> None:
    record = record_in(home)
    assert record is not None
    members = family(record.mark, processes())
    heard = {
        found.laddr.ip.removeprefix("::ffff:")
        for each in members
        for found in psutil.Process(each.pid).net_connections("inet")
        if found.status == psutil.CONN_LISTEN
    }
    assert heard == {"127.0.0.1"}, "nobody on another machine can reach it"
    assert "2 of 2 workers, 0 executors" in headrace("cluster", "status", "--dir", home)
    conf = {**write_repository(shop), "spark.executor.memory": "512m"}
    given = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    process = started(
        shop, sys.executable, "-m", "headrace.cli.main", "run", "shop:pipeline", "--until", "end",
        "--checkpoint", "state", "--master", record.url, *given,
        "--packages", "example:tiny:1", "--py-files", "shop.zip", "--slots", 2,
    )  # fmt: skip
    said, error = process.communicate(timeout=600)
    assert process.returncode == 0, error[-3000:]
    assert "submitted: all input was read." in said
    found = check_all_once_on_the_cluster(shop, home)
    assert {tuple(row["jars"]) for row in found} == {("example_tiny-1.jar",)}, "on each executor"


@thorough
def test_a_program_under_spark_submit_goes_on_after_a_kill(home: Path, shop: Path) -> None:
    command = (
        SUBMIT, "--master", url_of(home), "--conf", "spark.executor.memory=512m", *LOOPBACK,
        "--py-files", "shop.zip", "program.py",
    )  # fmt: skip
    first = started(shop, *command)
    seen = []
    for line in lines_of(first.stdout):
        seen.append(line)
        if line == "epoch 2":
            break
    assert seen, first.stderr.read()[-3000:]
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    second = started(shop, *command)
    said, error = second.communicate(timeout=600)
    assert second.returncode == 0, error[-3000:]
    assert "epoch 1\n" not in said
    check_all_once_on_the_cluster(shop, home)


@thorough
def test_the_command_under_spark_submit(home: Path, shop: Path) -> None:
    """Its exit status is that of the command; its options of Spark belong to spark-submit."""
    submit = ROOT / "docs" / "assets" / "deploy" / "submit.py"
    own = ("run", "shop:pipeline", "--checkpoint", "state", "--until", "end")
    common = (
        SUBMIT, "--master", url_of(home), "--conf", "spark.executor.memory=512m", *LOOPBACK,
        "--py-files", "shop.zip", submit,
    )  # fmt: skip
    process = started(shop, *common, *own)
    said, error = process.communicate(timeout=600)
    assert process.returncode == 0, error[-3000:]
    assert "submitted: all input was read." in said
    check_all_once_on_the_cluster(shop, home)
    process = started(shop, *common, *own, "--master", "local[1]")
    said, _ = process.communicate(timeout=600)  # spark-submit sends a program's errors there
    assert process.returncode == 1
    assert "give --master to spark-submit, before the name of the program" in said


def test_a_standalone_cluster_takes_no_python_driver(home: Path, shop: Path) -> None:
    """What Spark says, and what the guide quotes; and what our command says instead."""
    process = started(
        shop, SUBMIT, "--master", url_of(home), "--deploy-mode", "cluster", "program.py"
    )
    said, error = process.communicate(timeout=600)
    assert process.returncode != 0
    assert REFUSED in said + error
    assert REFUSED in (ROOT / "docs" / "guides" / "deployment.md").read_text()
    process = started(
        shop, sys.executable, "-m", "headrace.cli.main", "run", "shop:pipeline", "--checkpoint",
        "state", "--py-files", "shop.zip", "--master", url_of(home),
        "--conf", "spark.submit.deployMode=cluster",
    )  # fmt: skip
    _, error = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "this process is the driver, so it cannot be sent to a cluster" in error
    assert "spark-submit --deploy-mode cluster" in error and "--standby" in error


def test_stop_leaves_nothing_though_a_pipeline_runs(home: Path, shop: Path) -> None:
    """The last test here: it ends the cluster."""
    record = record_in(home)
    assert record is not None
    process = started(
        shop, sys.executable, "-m", "headrace.cli.main", "run", "shop:pipeline", "--checkpoint",
        "state", "--py-files", "shop.zip", "--master", record.url, "--slots", 2,
        "--conf", "spark.executor.memory=512m", "--epoch-records", "1",
    )  # fmt: skip
    try:
        wait_for(lambda: list(shop.glob("out/epoch=*02")) or process.poll(), "two epochs")
        assert process.poll() is None, process.stderr.read()[-3000:]
        running = family(record.mark, processes())
        assert len(running) > 5, "master, workers, executors and their Python workers"
        assert "2 executors" in headrace("cluster", "status", "--dir", home)
        with pytest.raises(HeadraceError, match="a cluster runs already"):
            result = CliRunner().invoke(
                cli, ["--debug", "cluster", "start", "--dir", str(home)], catch_exceptions=False
            )
            assert result.exit_code == 1
        assert "has ended" in headrace("cluster", "stop", "--dir", home)
        left = {each for each in processes() if each in set(running)}
        assert left == set() and not home.exists()
        assert "no cluster was started" in headrace("cluster", "status", "--dir", home, status=1)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
