"""The settings of a command's Spark session, without starting one."""

from pathlib import Path

from headrace.cli.spark import settings_for
from headrace.engine.spark.jvm_noise import LOG_NAME, write_log_settings
from headrace.engine.spark.session import default_master, reason_in


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
