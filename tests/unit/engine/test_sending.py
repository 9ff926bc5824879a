"""What cannot reach workers is named: the step and the variable; the harness finds it too."""

import threading

import pytest

from headrace import Computation, InvalidPipeline, Pipeline, sinks, sources, state
from headrace.engine.spark.shipping.shipment import pickled, require_picklable
from headrace.testing import Harness

LOCK = threading.Lock()


def guarded(value):
    with LOCK:
        return value


def by_way(value):
    return guarded(value)


class Plain(Computation):
    count: int = state(0)

    def process_record(self, record, ctx):
        self.count += 1
        ctx.produce(self.count)


class Locked(Plain):
    def __init__(self):
        self.client = threading.Lock()


class Global(Plain):
    def process_record(self, record, ctx):
        with LOCK:
            self.count += 1


def stepped(function):
    p = Pipeline("t")
    p.read("c", sources.memory([])).map(function).write(sinks.memory())
    return p


def computed(computation, key="k"):
    p = Pipeline("t")
    p.read("c", sources.memory([]))
    p.compute(computation, inputs={"c": key}, outputs="out", name="C")
    return p


def closure():
    lock = threading.Lock()

    def around(value):
        with lock:
            return value

    return around


def timed():
    p = Pipeline("t")
    p.read("c", sources.memory([], timestamp=closure())).write(sinks.memory())
    return p


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda: stepped(closure()), "step 'c.map', its function uses 'lock': "),
        (lambda: stepped(guarded), "step 'c.map', its function uses 'LOCK': "),
        (lambda: stepped(by_way), "step 'c.map', its function uses 'guarded', which uses 'LOCK': "),
        (lambda: computed(Locked), "computation 'C', its attribute 'client': "),
        (lambda: computed(Global), "computation 'C', its method process_record uses 'LOCK': "),
        (lambda: computed(Plain, closure()), "computation 'C', its key of 'c' uses 'lock': "),
        (timed, "the source of 'c', its function uses 'lock': "),
    ],
)
def test_what_cannot_be_pickled_is_named(made, named):
    for attempt in (pickled, lambda topology: require_picklable(topology.graph)):
        with pytest.raises(InvalidPipeline) as caught:
            attempt(made().freeze())
        assert f"pipeline 't' cannot be sent to workers: {named}" in str(caught.value)
        assert "cannot pickle '_thread.lock' object" in str(caught.value)
        assert "setup()" in str(caught.value)


def test_the_harness_finds_what_spark_would_refuse():
    with (
        pytest.raises(InvalidPipeline, match="its function uses 'lock'"),
        Harness(stepped(closure())) as h,
    ):
        h.send("c", 1)


def test_the_harness_can_be_told_to_take_what_cannot_travel():
    with Harness(stepped(closure()), picklable=False) as h:
        h.send("c", 1)
        assert h.read("c.map") == [1]


class Opening(Plain):
    def setup(self):
        self.client = threading.Lock()

    def process_record(self, record, ctx):
        with self.client:
            super().process_record(record, ctx)


def test_what_setup_opens_stays_behind_when_the_pipeline_travels_again():
    p = computed(Opening)
    for _ in range(2):
        with Harness(p) as h:
            h.send("c", {"k": "a"})
            assert h.read("out") == [1]
    assert pickled(p.freeze())


def test_a_pipeline_that_can_travel_is_taken():
    with Harness(computed(Plain)) as h:
        h.send("c", {"k": "a"})
        assert h.read("out") == [1]
