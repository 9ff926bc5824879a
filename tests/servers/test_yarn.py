"""Cluster deploy mode on a real YARN: the driver runs inside, dies, and YARN starts it again.

Resource manager and node manager are Hadoop's own, in one JVM; containers are processes of this
machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest
from tests.cluster.programs.submitted import write_shop
from tests.spark.support import ROOT, environment, rows

from headrace import Checkpoint
from headrace.bench.servers.processes import (
    JVM_READY_S,
    CannotHave,
    installed,
    needs,
    run,
)
from headrace.cli.cluster.processes import ProcessSeen, processes

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not os.environ.get("HEADRACE_YARN"),
        reason="takes minutes: `make test-servers`, or HEADRACE_YARN=1",
    ),
]

HERE = Path(__file__).parent / "yarn"
MEGABYTES = 6000
COUNT = 240
SUBMIT = str(Path(sys.executable).parent / "spark-submit")
JARS = Path(pyspark.__file__).parent / "jars"


@pytest.fixture
def configuration(tmp_path: Path) -> Iterator[Path]:
    """The directory with the configuration of a running YARN."""
    try:
        maven, java = needs("mvn"), needs("java")

        def make(home: Path) -> None:
            run(
                maven, "--batch-mode", "--quiet", "--file", HERE / "pom.xml",
                "dependency:copy-dependencies", "-DincludeScope=runtime",
                f"-DoutputDirectory={home / 'lib'}",
            )  # fmt: skip

        home = installed("yarn-3.5.0", make)
    except CannotHave as error:
        pytest.skip(f"YARN: {error}")
    place = tmp_path / "conf"
    place.mkdir()
    with open(tmp_path / "yarn.log", "wb") as log:
        server = subprocess.Popen(
            [java, "-Xmx512m", "-cp", f"{home / 'lib'}/*", str(HERE / "MiniYarn.java"), str(place),
             str(MEGABYTES)],
            cwd=tmp_path, stdout=log, stderr=log, env=environment(), start_new_session=True,
        )  # fmt: skip
    try:
        until = time.monotonic() + JVM_READY_S
        while not (place / "yarn-site.xml").exists():
            said = (tmp_path / "yarn.log").read_text()[-2000:]
            assert server.poll() is None and time.monotonic() < until, said
            time.sleep(0.1)
        yield place
    finally:
        below = psutil.Process(server.pid).children(recursive=True)
        server.kill()
        server.wait()
        for process in below:
            if process.is_running():
                process.kill()


def drivers(where: Path) -> list[ProcessSeen]:
    """The Python processes that YARN runs as drivers of this test."""
    return [
        each
        for each in processes()
        if f"--checkpoint {where / 'state'}" in each.command
        and Path(each.command.split()[0]).name.startswith("python")
        and "submit.py" in each.command
    ]


def test_a_driver_inside_yarn_dies_and_goes_on(configuration: Path, tmp_path: Path) -> None:
    write_shop(tmp_path)
    settings = {
        "spark.yarn.jars": f"local:{JARS}/*",
        "spark.yarn.stagingDir": f"file://{tmp_path / 'staging'}",
        "spark.executor.instances": "2",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "600m",
        "spark.yarn.am.waitTime": "300s",
        "spark.yarn.submit.waitAppCompletion": "true",
    }
    for name, value in {
        "SHOP_COUNT": str(COUNT),
        "SHOP_OUTPUT": str(tmp_path / "out"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "src"),
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
    }.items():
        settings[f"spark.yarn.appMasterEnv.{name}"] = value
        settings[f"spark.executorEnv.{name}"] = value
    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    submit = ROOT / "docs" / "assets" / "deploy" / "submit.py"
    with open(tmp_path / "submit.log", "w+") as log:
        process = subprocess.Popen(
            [SUBMIT, "--master", "yarn", "--deploy-mode", "cluster", *given, "--py-files",
             str(tmp_path / "shop.zip"), str(submit), "run", "shop:pipeline", "--checkpoint",
             str(tmp_path / "state"), "--until", "end", "--supervised", "--epoch-records", "20"],
            cwd=tmp_path, env=environment(HADOOP_CONF_DIR=str(configuration)), stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            until = time.monotonic() + 900
            while not list(tmp_path.glob("out/epoch=*02")):
                assert process.poll() is None and time.monotonic() < until, tail(log.name)
                time.sleep(0.05)
            [driver] = drivers(tmp_path)
            os.kill(driver.pid, 9)
            assert process.wait(900) == 0, tail(log.name)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    found = rows(tmp_path / "out")
    assert Counter(row["n"] for row in found) == Counter(range(COUNT))
    assert all("/container_" in row["where"] for row in found), "in containers of YARN"
    checkpoint = Checkpoint(tmp_path / "state")
    assert checkpoint.epoch > 3
    assert sum(fields["count"] for _, fields in checkpoint.scan("Tally")) == COUNT


def tail(log: str) -> str:
    return Path(log).read_text()[-4000:]
