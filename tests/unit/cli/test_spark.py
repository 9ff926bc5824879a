"""The settings of a command's Spark session, without starting one."""

import importlib
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.cli.spark import (
    JAVA_OPTIONS,
    PACKAGES,
    merged,
    require_nothing_submitted_twice,
    settings_for,
    use_py_files,
)
from headrace.engine.spark.jvm_noise import LOG_NAME, write_log_settings
from headrace.engine.spark.session import default_master, is_submitted, reason_in
from headrace.errors import HeadraceError


def test_the_default_master_retries_tasks() -> None:
    assert default_master().startswith("local[")
    assert default_master().endswith(",4]")


def test_a_local_session_stays_on_this_machine_and_a_cluster_finds_its_own_addresses() -> None:
    local = settings_for("local[2,4]", Path("/x/log4j2.properties"))
    cluster = settings_for("spark://host:7077", Path("/x/log4j2.properties"))
    assert local["spark.driver.host"] == local["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.host" not in cluster
    assert cluster["spark.network.timeout"] == "30s", "silent executors are given up early"
    assert cluster["spark.network.timeoutInterval"] == "10s", "Spark refuses more than the timeout"
    assert "spark.network.timeout" not in local
    assert local["spark.driver.extraJavaOptions"].endswith("file:/x/log4j2.properties")


def test_the_log_goes_to_a_file_beside_its_settings(tmp_path: Path) -> None:
    text = write_log_settings(tmp_path).read_text()
    assert f"fileName = {tmp_path.as_posix()}/{LOG_NAME}" in text
    assert "{{" not in text


def test_a_java_stack_is_reduced_to_itsreason_in() -> None:
    thread = 'Exception in thread "main" org.apache.spark.SparkException: Master must be good'
    assert reason_in([thread, "\tat org.apache.spark"]) == "Master must be good"
    py4j = ["An error occurred while calling x.", ": java.lang.Exception: no port", "\tat y"]
    assert reason_in(py4j) == "no port"
    assert reason_in(["", "plain words"]) == "plain words"
    assert reason_in([]) == "it did not say why"


def test_a_cluster_on_this_machine_is_reached_by_loopback() -> None:
    near = settings_for("spark://127.0.0.1:7077", Path("/x/log4j2.properties"))
    assert near["spark.driver.host"] == "127.0.0.1"
    assert near["spark.network.timeout"] == "30s"


def test_what_is_given_wins_and_options_of_the_jvm_are_added() -> None:
    ours = {JAVA_OPTIONS: "-Dlog=x", "spark.ui.enabled": "false"}
    given = {"spark.ui.enabled": "true", JAVA_OPTIONS: "-Da=b", PACKAGES: "a:b:1"}
    assert merged(ours, given, ["c:d:2"]) == {
        JAVA_OPTIONS: "-Dlog=x -Da=b",
        "spark.ui.enabled": "true",
        PACKAGES: "a:b:1,c:d:2",
    }
    assert merged(ours, {}, []) == ours


def test_cluster_deploy_mode_is_explained() -> None:
    with pytest.raises(HeadraceError, match="this process is the driver") as error:
        merged({}, {"spark.submit.deployMode": "cluster"}, [])
    assert "spark-submit --deploy-mode cluster" in str(error.value)
    assert merged({}, {"spark.submit.deployMode": "client"}, [])


def test_under_spark_submit_its_own_options_come_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_submitted()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert is_submitted()
    require_nothing_submitted_twice(None, [])
    with pytest.raises(HeadraceError, match="give --master to spark-submit"):
        require_nothing_submitted_twice("local[1]", [])
    with pytest.raises(HeadraceError, match="give --packages to spark-submit"):
        require_nothing_submitted_twice(None, ["a:b:1"])


def test_files_for_workers_can_be_imported_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as made:
        made.writestr("in_a_zip_file.py", "VALUE = 7")
    use_py_files([str(tmp_path / "parts.zip")])
    assert importlib.import_module("in_a_zip_file").VALUE == 7
    for wrong, words in (("no.zip", "no such file"), ("a.whl", "has to be installed")):
        if wrong == "a.whl":
            (tmp_path / wrong).touch()
        with pytest.raises(HeadraceError, match=words):
            use_py_files([str(tmp_path / wrong)])


@pytest.mark.parametrize("text", ["spark.a", "a=b", "=x", "spark.master=local", "password=hunter2"])
def test_what_is_no_setting_is_refused_without_its_value(text: str) -> None:
    command = ["run", "a:b", "--checkpoint", "x", "--conf", text]
    answer = CliRunner().invoke(cli, command, prog_name="headrace")
    assert answer.exit_code == 2
    assert "hunter2" not in answer.output
