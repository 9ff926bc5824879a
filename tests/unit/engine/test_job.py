"""The handle of a running pipeline."""

from datetime import timedelta

import pytest
from tests.unit.engine.support import counting, follower_of

from headrace import Computation, IncompatibleState, InvalidPipeline, UserCodeError
from headrace.engine.job import Job
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.store.memory import MemoryStore


def job_of(store, topology=None, **options):
    topology = topology or counting([1, 2, 1])
    return Job(follower_of(topology, store, **options))


def test_the_state_of_a_key_can_be_asked_for_from_the_first_moment_on():
    store = MemoryStore()
    job = job_of(store)
    assert job.get("Count", "key 1") in (None, {"n": 1}, {"n": 2})
    assert job.wait("60s").reason == "end"
    assert job.get("Count", "key 1") == {"n": 2}
    assert job.get("Count", "key 9") is None


def test_a_job_that_has_not_begun_has_no_state():
    job = job_of(MemoryStore())
    job.wait(60)
    job._follower.store = MemoryStore()  # as it is before the first driver has claimed it
    assert job.get("Count", "key 1") is None


def test_a_computation_that_has_no_state_yet_has_none():
    store = MemoryStore()
    job = job_of(store, counting([]))
    job.wait(60)
    assert job.get("Count", "key 1") is None


def test_what_has_no_state_by_its_nature_is_refused():
    p = PipelineBuilder("keyless")
    p.read("in", memory([1])).map(str).named("text").write(memory_sink())
    job = job_of(MemoryStore(), p.freeze())
    job.wait(60)
    with pytest.raises(InvalidPipeline, match="'text' has no key"):
        job.get("text", 1)
    with pytest.raises(IncompatibleState, match="no computation 'Cuont'"):
        job.get("Cuont", 1)


@pytest.mark.parametrize("timeout", [60, 60.0, "1m", timedelta(minutes=1), None])
def test_a_wait_takes_seconds_or_a_duration(timeout):
    assert job_of(MemoryStore()).wait(timeout).records == 3


class Refuses(Computation):
    def process_record(self, record, ctx):
        raise ValueError("nope")


def test_a_job_that_failed_says_so_and_with_what():
    p = PipelineBuilder("failing")
    p.read("in", memory([1]))
    p.compute(Refuses, inputs={"in": str}, outputs="out")
    p.stream("out").write(memory_sink())
    job = job_of(MemoryStore(), p.freeze())
    with pytest.raises(UserCodeError, match="ValueError: nope"):
        job.wait(60)
    status = job.status()
    assert (status.phase, status.running, status.outage) == ("failed", False, None)
    assert status.error.startswith("UserCodeError: computation 'Refuses', key '1'")


def test_a_job_that_ended_has_no_error():
    job = job_of(MemoryStore())
    job.wait(60)
    assert job.status().phase == "ended"
    assert job.status().error is None


def test_a_job_that_could_not_open_its_checkpoint_failed():
    store = MemoryStore()
    job_of(store).wait(60)
    other = job_of(store, counting([1], name="another"))
    with pytest.raises(IncompatibleState):
        other.wait(60)
    assert other.status().phase == "failed"
    assert "IncompatibleState" in other.status().error
