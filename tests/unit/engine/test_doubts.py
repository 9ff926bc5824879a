"""A run asks, once, about what is probably a mistake."""

import threading

import pytest
from tests.unit.engine.support import Clock, Count, counting, driver_of

from headrace.engine.loop import Conduct, run_loop
from headrace.log.store import MemoryStore
from headrace.pipeline.builder import PipelineBuilder
from headrace.sinks import memory as memory_sink
from headrace.sources import memory


def told_by(topology, store=None, **options):
    notices = []
    driver = driver_of(topology, store or MemoryStore(), open=False, **options)
    run_loop(driver, threading.Event(), Clock(), Conduct(on_notice=notices.append))
    return [notice.text for notice in notices if notice.kind == "doubt"]


def renamed(**options):
    p = PipelineBuilder("counting")
    p.read("values", memory([1, 2, 3], timestamps=range(3)))
    key = {"values": lambda value: f"key {value}"}
    p.compute(Count, inputs=key, outputs="counts", name="Tally", **options)
    p.stream("counts").write(memory_sink())
    return p.freeze()


def test_state_that_no_computation_takes_is_told_and_an_alias_takes_it():
    store = MemoryStore()
    assert told_by(counting([1, 2, 3]), store, until="caught_up") == []
    expected = (
        "the checkpoint has state of 'Count', which no computation of this pipeline takes: "
        "aliases=('Count',)?"
    )
    assert told_by(renamed(), store, until="caught_up") == [expected]
    other = MemoryStore()
    told_by(counting([1, 2, 3]), other, until="caught_up")
    assert told_by(renamed(aliases=("Count",)), other, until="caught_up") == []


def timed(values, **timing):
    p = PipelineBuilder("timed")
    given = [{"at": value} for value in values]
    p.read("c", memory(given, timestamp="at", **timing)).write(memory_sink())
    return p.freeze()


@pytest.mark.parametrize(
    ("now", "unit"), [(1_767_225_600, "s"), (1_767_225_600_000, "ms"), (1_767_225_600.5, "s")]
)
def test_timestamps_in_another_unit_are_asked_about_once(now, unit):
    values = [now + second for second in range(8)]
    expected = [f"the timestamps of 'c' are all in early 1970: is unit= right? (unit=\"{unit}\")"]
    assert told_by(timed(values)) == expected
    assert told_by(timed(values, lateness="1h")) == expected
    assert told_by(timed(values, unit=unit)) == []


@pytest.mark.parametrize(
    "values", [[1_767_225_600_000_000], [1, 2, 3], ["2026-01-01T00:00:00Z"], [0], []]
)
def test_other_timestamps_are_taken_as_they_are(values):
    assert told_by(timed(values)) == []
