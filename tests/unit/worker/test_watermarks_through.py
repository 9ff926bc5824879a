"""Watermarks through a pipeline: lateness, policies, holds, percentiles."""

import random

import pytest
from tests.unit.pipelines import at, one

from headrace import Computation, Pipeline, sources, state, to
from headrace.model.values.time import END
from headrace.testing import Harness


class Late(Computation):
    def process_record(self, record, ctx):
        ctx.produce([record.timestamp, record.late, ctx.watermark])


class Hold(Computation):
    def process_record(self, record, ctx):
        if record.value.get("hold") is not None:
            ctx.hold(record.value["hold"])
        if record.value.get("release"):
            ctx.release()
        ctx.produce(record.value)


class Window(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.set_timer(at=(record.timestamp // 10 + 1) * 10)

    def process_timer(self, timer, ctx):
        ctx.produce(
            {"k": ctx.key, "n": self.n, "end": timer.timestamp}, timestamp=timer.timestamp - 1
        )
        self.n = 0


def test_late_means_behind_the_watermark_that_the_previous_epoch_committed():
    with Harness(one(Late)) as h:
        # In one epoch, whatever the order, nothing is late.
        h.send("in", at(100), at(1), at(50))
        h.send("in", at(99), at(100))
        assert h.read("out") == [
            [100, False, 0],
            [1, False, 0],
            [50, False, 0],
            [99, True, 100],
            [100, False, 100],
        ]
        assert h.counts["late"] == 1


@pytest.mark.parametrize("key", ["k", None])
def test_late_records_are_dropped_and_counted_if_asked(key):
    with Harness(one(Late, key=key, late="drop")) as h:
        h.send("in", at(100))
        h.send("in", at(99), at(101), at(98, "b"), at(100))
        assert [t for t, _, _ in h.read("out")] == [100, 101, 100]
        assert h.counts["late"] == 2


@pytest.mark.parametrize("key", ["k", None])
def test_late_records_go_aside_as_they_are_if_asked(key):
    p = one(Late, key=key, late=to("late"))
    p.compute(Late, inputs={"late": None}, outputs="seen", name="L")
    with Harness(p) as h:
        h.send("in", at(100))
        h.send("in", at(99, x=1), at(101))
        assert h.records("late") == [(at(99, x=1), 99)]
        assert [t for t, _, _ in h.read("seen")] == [99]


def test_lateness_keeps_the_watermark_back():
    with Harness(one(Late, timing={"lateness": "20us"})) as h:
        h.send("in", at(100))
        h.send("in", at(80), at(79))
        assert [late for _, late, _ in h.read("out")] == [False, False, True]
        assert h.watermarks() == {"C": 80}


def test_a_computation_waits_for_the_slowest_of_its_inputs():
    p = Pipeline("two")
    p.read("a", sources.memory([], timestamp="t"))
    p.read("b", sources.memory([], timestamp="t"))
    p.compute(Late, inputs={"a": "k", "b": "k"}, outputs="out")
    with Harness(p) as h:
        h.send("a", at(100))
        assert h.watermark == 0
        h.send("b", at(30))
        assert h.watermark == 30
        h.send("b", at(200))
        assert h.watermark == 100


def test_a_silent_source_keeps_up_when_time_passes():
    p = Pipeline("two")
    p.read("a", sources.memory([], timestamp="t"))
    p.read("b", sources.memory([], timestamp="t"))
    p.compute(Late, inputs={"a": "k", "b": "k"}, outputs="out")
    with Harness(p) as h:
        h.send("a", at(5))
        h.advance("100us")
        assert h.watermark == 105
        h.send("b", at(105))
        assert h.counts["late"] == 0


def test_holds_reach_every_computation_below():
    p = Pipeline("deep")
    p.read("in", sources.memory([], timestamp="t"))
    p.compute(Hold, inputs={"in": "k"}, outputs="one")
    p.compute(Late, inputs={"one": None}, outputs="two", name="Keyless")
    p.compute(Window, inputs={"one": "k"}, outputs="three", name="Deep")
    p.compute(Late, inputs={"three": "k"}, outputs="four", name="Deeper")
    with Harness(p) as h:
        h.send("in", at(5, hold=7), at(100, "b"))
        held = {"Hold": 100, "Keyless": 7, "Deep": 7, "Deeper": 7}
        assert h.watermarks() == held
        h.send("in", at(110, "b"))
        assert h.watermarks() == {**held, "Hold": 110}
        h.send("in", at(120, release=True))
        assert set(h.watermarks().values()) == {120}


def test_a_watermark_never_goes_back():
    rng = random.Random(5)
    with Harness(one(Window, timing={"lateness": "10us"}), epoch_records=3) as h:
        reached = 0
        for _ in range(20):
            h.send("in", *(at(rng.randrange(500), rng.choice("abc")) for _ in range(4)))
            assert h.watermark >= reached
            reached = h.watermark
        h.end()
        assert h.watermark == END


def test_the_end_passes_every_hold():
    with Harness(one(Hold)) as h:
        h.send("in", at(5, hold=7))
        h.end()
        assert h._open().ledger.outs["C"] == END


def test_a_percentile_watermark_runs_ahead_and_the_stragglers_are_late_by_choice():
    values = [at(1000 + i, n=i) for i in range(99)]
    for share, expected in ((None, 100), (0.9, 1000)):
        p = one(Late, timing={"lateness": "900us"}, watermark=share)
        with Harness(p) as h:
            h.send("in", *values[:1], at(1000), *values[1:])
            mark = h.watermarks()["C"]
            assert mark >= expected
            h.send("in", at(mark - 1), at(mark))
            assert [late for _, late, _ in h.read("out")][-2:] == [True, False]


def test_a_percentile_watermark_concerns_its_computation_alone():
    p = one(Late, timing={"lateness": "900us"}, watermark=0.5)
    p.compute(Late, inputs={"in": "k"}, outputs="other", name="Other")
    with Harness(p) as h:
        h.send("in", *(at(1000 + i) for i in range(100)))
        assert h.watermarks() == {"C": 1050, "Other": 199}
        h.send("in", at(300))
        assert h.watermarks() == {"C": 1050, "Other": 199}
