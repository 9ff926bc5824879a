"""Failures of a job that no further try can mend become one sentence, from the first try on."""

import sys
import threading

import pytest
from tests.unit.engine.support import counting, driver_of, follower_of, run

from headrace import SparkError, StoreError, UserCodeError
from headrace.engine.jobs.failures import ended, final_failure
from headrace.engine.leading.loop import RunControl, run_loop
from headrace.errors import SinkUnavailable
from headrace.plan.decisions.next_step import Run
from headrace.plan.decisions.transient import is_outage, part_of
from headrace.sinks import foreach
from headrace.sources import memory
from headrace.store.memory import MemoryStore
from headrace.worker.watching.watchdog import STUCK

OTHER_PYTHON = """An exception was thrown from the Python worker. Please see the stack trace below.
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has \
different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.
"""
NO_HEADRACE = """Traceback (most recent call last):
  File "worker.py", line 1
ModuleNotFoundError: No module named 'headrace'
\tat org.apache.spark.api.python.BasePythonRunner
"""
NO_PROGRAM = 'java.io.IOException: Cannot run program "/opt/venv/bin/python": error=2, No such file'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OTHER_PYTHON, "run a Python, which is Python 3.12, and this is 3.11"),
        (NO_HEADRACE, "run a Python, which has no 'headrace'"),
        (NO_HEADRACE.replace("headrace", "msgspec.json"), "run a Python, which has no 'msgspec'"),
        (NO_PROGRAM, "find no Python at /opt/venv/bin/python"),
    ],
)
def test_workers_with_another_python_are_told_with_the_way_out(text, expected):
    error = final_failure(text, None)
    assert isinstance(error, SparkError)
    assert expected in str(error)
    assert f"PYSPARK_PYTHON={sys.executable}" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "text",
    ["ExecutorLostFailure", "ModuleNotFoundError: No module named 'shop'", "Cannot run program x"],
)
def test_other_failures_are_tried_again(text):
    assert final_failure(text, None) is None


def test_what_was_final_before_still_is():
    assert isinstance(final_failure("headrace.errors.StoreError: disk full", None), StoreError)


def test_an_outage_of_a_sink_is_not_taken_for_one_of_the_checkpoint():
    text = "headrace.errors.SinkUnavailable: sink 'out': cannot write s3://b/out/x: timed out"
    error = final_failure(text, None)
    assert isinstance(error, SinkUnavailable)
    assert is_outage(error)
    assert part_of(error) == "sink"
    assert part_of(StoreError("cannot write s3://b/checkpoint/x")) == "checkpoint"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, "Spark's JVM has ended. Nothing"),
        (-9, "Spark's JVM has ended by signal 9: out of memory, perhaps. Nothing"),
        (-15, "Spark's JVM has ended by signal 15. Nothing"),
        (1, "Spark's JVM has ended with status 1. Nothing"),
    ],
)
def test_a_jvm_that_is_gone_is_told_with_what_is_known_of_its_end(status, expected):
    assert ended(status).startswith(expected)


def failing(driver, error, gone=None):
    """Has the driver's jobs fail, and counts them."""
    substrate = driver.substrate
    healthy, tries = (substrate.run, substrate.gone), []

    def fail(task):
        tries.append(task)
        raise error

    substrate.run, substrate.gone = fail, lambda: gone
    return tries, healthy


@pytest.mark.parametrize(
    ("text", "gone", "kind"),
    [(NO_HEADRACE, None, SparkError), ("Connection refused", ended(-9), SparkError)],
)
def test_such_a_job_is_tried_once_and_its_plan_stays_open(text, gone, kind):
    store = MemoryStore()
    driver = driver_of(counting([1, 2, 1]), store)
    tries, healthy = failing(driver, RuntimeError(text), gone)
    with pytest.raises(kind):
        driver.step()
    assert len(tries) == 1
    plan = driver.ledger.open_plan
    assert plan is not None
    driver.substrate.run, driver.substrate.gone = healthy
    again = driver_of(counting([1, 2, 1]), store)
    step = again.step()
    assert isinstance(step, Run) and step.plan == plan, "the very plan, with its clock and dice"
    assert run(again) >= 1


def test_a_hook_that_had_to_be_ended_voids_its_plan():
    driver = driver_of(counting([1]))
    failing(driver, RuntimeError(f"{STUCK} computation 'C', key 'k', hung"))
    with pytest.raises(UserCodeError, match="'C', key 'k', hung; its worker had to be ended"):
        driver.step()
    assert driver.ledger.open_plan is None


def test_an_outage_without_spark_is_not_waited_for():
    """What a sink says of a JVM that is gone looks like an outage that may pass."""

    def refuse(rows, epoch):
        raise ConnectionRefusedError(111, "Connection refused")

    follower = follower_of(counting([1], foreach(refuse)), give_up_s=None)
    follower.substrate.gone = lambda: ended(-9)
    with pytest.raises(SparkError, match="by signal 9"):
        run_loop(follower)


def test_a_stop_that_ended_spark_as_well_is_a_stop():
    store, stopping = MemoryStore(), threading.Event()
    follower = follower_of(counting([1, 2, 1]), store)

    def die(order):
        stopping.set()
        follower.substrate.gone = lambda: ended(-15)
        raise ConnectionResetError(104, "Connection reset by peer")

    follower.substrate.run = die
    summary = run_loop(follower, RunControl(stopping))
    assert (summary.reason, summary.epochs) == ("stopped", 0)
    assert run(driver_of(counting([1, 2, 1]), store)) >= 1, "the next start goes on"


def test_whatever_fails_because_spark_is_gone_is_told_as_that():
    source = memory([1])
    source.plan = lambda split, start, records: {}["py4j"]
    follower = follower_of(counting(source))
    follower.substrate.gone = lambda: ended(None)
    with pytest.raises(SparkError, match="Spark's JVM has ended"):
        run_loop(follower)
