"""What a run raises shows the user's frames and the message, and not a page of the engine's."""

import traceback

import pytest
from tests.unit.engine.support import counting, follower_of

from headrace import HeadraceError, Pipeline, SinkError, StoreError, sinks, sources
from headrace.engine.job import Job
from headrace.engine.spark.tracebacks import DEBUG, brief
from headrace.store.memory import MemoryStore
from headrace.worker.watching import tracebacks


def raised_by(function):
    with pytest.raises(HeadraceError) as caught:
        function()
    return caught.value


def shown(error):
    return "".join(traceback.format_exception(error))


def deep_in_the_engine():
    # Runs a function of the engine's own, so that its frame lies between.
    try:
        tracebacks.trace_of(None)
    except Exception as error:
        raise StoreError("the disk is full") from error


def test_causes_that_never_saw_code_of_the_user_are_left_out():
    whole = raised_by(deep_in_the_engine)
    assert "direct cause" in shown(whole)
    whole.__cause__.__traceback__ = whole.__cause__.__traceback__.tb_next
    error = brief(whole)
    assert error is whole
    assert shown(error) == "headrace.errors.StoreError: the disk is full\n"


def write(rows, epoch):
    raise LookupError("no such table")


def fails_in_a_sink():
    p = Pipeline("sink")
    p.read("in", sources.memory([1])).write(sinks.foreach(write))
    Job(follower_of(p.freeze())).wait(60)


def test_a_cause_keeps_the_frames_of_the_user_and_loses_those_of_the_engine(monkeypatch):
    error = raised_by(fails_in_a_sink)
    assert isinstance(error, SinkError)
    text = shown(error)
    assert "in write\n" in text and "LookupError: no such table" in text
    assert "headrace/sinks/foreach.py" not in text
    assert "headrace/engine/driver.py" not in text
    monkeypatch.setenv(DEBUG, "1")
    assert "headrace/engine/driver/driver.py" in shown(raised_by(fails_in_a_sink))


def test_a_job_raises_the_same_error_as_often_as_it_is_asked():
    store = MemoryStore()
    Job(follower_of(counting([1]), store)).wait(60)
    job = Job(follower_of(counting([1], name="another"), store))
    first, second = (shown(raised_by(lambda: job.wait(60))) for _ in range(2))
    assert second == first
    assert first.count("headrace/engine") == 1, "only the frame of wait()"


def test_errors_that_are_not_ours_are_left_as_they_are():
    try:
        raise ValueError("a mistake in the engine")
    except ValueError as error:
        before = error.__traceback__
        assert brief(error).__traceback__ is before
