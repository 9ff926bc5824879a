"""Declared cycles: records go round once an epoch, drain, and are never late."""

from tests.unit.pipelines import at
from tests.unit.systems import limited

from headrace import Computation, Pipeline, sources, state
from headrace.model.values.time import END
from headrace.testing import CRASH, Harness


class Countdown(Computation):
    """Sends itself n-1 until 0."""

    visits: int = state(0)

    def process_record(self, record, ctx):
        self.visits += 1
        n = record.value["n"]
        ctx.produce([ctx.key, n, record.stream, record.late], to="out")
        if n:
            ctx.produce({"k": record.value["k"], "n": n - 1}, to="back")


class Relay(Computation):
    def process_record(self, record, ctx):
        ctx.produce(record.value)


class Late(Computation):
    def process_record(self, record, ctx):
        ctx.produce([record.timestamp, record.late])


class Deadline(Computation):
    def process_record(self, record, ctx):
        if record.stream == "in":
            ctx.set_timer(record.value["t"], at=record.timestamp + 100)

    def process_timer(self, timer, ctx):
        ctx.produce({"k": ctx.key, "n": 0}, to="back", timestamp=timer.timestamp - 90)
        ctx.produce([ctx.key, timer.timestamp], to="out")


def loop(computation=Countdown):
    p = Pipeline("loop")
    p.read("in", sources.memory([], timestamp="t"))
    p.stream("back", feedback=True)
    p.compute(computation, inputs={"in": "k", "back": "k"}, outputs=["out", "back"], name="C")
    p.compute(Late, inputs={"out": ()}, outputs="after")
    return p


def long_loop():
    """in -> A -> mid -> B -> back -> A, through a keyless relay."""
    p = Pipeline("long")
    p.read("in", sources.memory([], timestamp="t"))
    p.stream("back", feedback=True)
    p.compute(Relay, inputs={"in": "k", "back": "k"}, outputs="mid", name="A")
    p.compute(Relay, inputs={"mid": None}, outputs="mid2", name="Keyless")
    p.compute(Countdown, inputs={"mid2": "k"}, outputs=["out", "back"], name="B")
    return p


def test_a_loop_goes_round_until_it_has_drained():
    with Harness(loop()) as h:
        h.send("in", at(1, n=4))
        assert [row[1:3] for row in h.read("out")] == [
            [4, "in"],
            [3, "back"],
            [2, "back"],
            [1, "back"],
            [0, "back"],
        ]
        assert h.state("C", "a").visits == 5
        assert h.epoch >= 5


def test_a_loop_survives_crashes_and_counts_every_round_once():
    with Harness(loop(), slots=3) as h:
        h.send("in", at(1, n=3), at(1, "b", n=2), CRASH, at(2, "c", n=4), CRASH)
        h.crash(at="after-commit-write")
        h.end()
        assert {k: h.state("C", k).visits for k in "abc"} == {"a": 4, "b": 3, "c": 5}


def test_feedback_records_are_never_late_and_those_below_are_on_time():
    with Harness(loop()) as h:
        h.send("in", at(10, n=3))
        h.send("in", at(1000, "b", n=2))
        h.send("in", at(2000, "b", n=0))
        h.end()
        assert not any(row[3] for row in h.read("out"))
        assert not any(late for _, late in h.read("after"))


def test_a_feedback_record_behind_the_watermark_is_delivered_at_the_watermark():
    class Behind(Computation):
        def process_record(self, record, ctx):
            if record.stream == "in":
                ctx.produce({"k": ctx.key}, to="back", timestamp=3)
            else:
                ctx.produce([record.timestamp, ctx.watermark, record.late], to="out")

    with Harness(loop(Behind)) as h:
        h.send("in", at(10))
        h.send("in", at(50))
        assert h.read("out") == [[3, 0, False], [10, 10, False]]


def test_the_watermark_of_a_loop_makes_progress_one_epoch_behind():
    with Harness(loop()) as h:
        h.send("in", at(100, n=2))
        assert h.watermarks() == {"C": 100, "Late": 100}
        h.send("in", at(200, n=0))
        assert h.watermarks() == {"C": 200, "Late": 200}


def test_a_timer_in_a_loop_does_not_make_on_time_records_late():
    with Harness(loop(Deadline)) as h:
        h.send("in", at(10))
        h.send("in", at(60))
        h.send("in", at(150))
        h.send("in", at(151))
        h.end()
        assert h.counts["late"] == 0
        assert sorted(row[1] for row in h.read("out")) == [110, 160, 250, 251]
        assert not any(late for _, late in h.read("after"))


def test_a_loop_over_several_levels_drains_and_ends():
    with Harness(long_loop(), slots=3) as h:
        h.send("in", at(1, n=3), at(2, "b", n=1))
        assert sorted(row[:2] for row in h.read("out")) == [
            ["a", 0], ["a", 1], ["a", 2], ["a", 3], ["b", 0], ["b", 1],
        ]  # fmt: skip
        assert set(h.watermarks().values()) == {2}
        h.end()
        assert set(h.watermarks().values()) == {END}


def test_a_computation_fed_by_feedback_alone_follows_what_feeds_the_cycle():
    p = Pipeline("side")
    p.read("in", sources.memory([], timestamp="t"))
    p.stream("back", feedback=True)
    p.compute(Countdown, inputs={"in": "k", "turned": "k"}, outputs=["out", "back"], name="A")
    p.stream("turned", feedback=True)
    p.compute(Relay, inputs={"back": "k"}, outputs="turned", name="B")
    with Harness(p) as h:
        h.send("in", at(5, n=3))
        assert [row[1] for row in h.read("out")] == [3, 2, 1, 0]
        h.send("in", at(50, n=0))
        assert h.watermarks() == {"A": 50, "B": 50}
        h.end()
        assert h.watermarks() == {"A": END, "B": END}


def test_a_loop_that_never_drains_is_capped_at_the_end_and_reported():
    class AtTheEnd(Computation):
        def process_record(self, record, ctx):
            if record.stream == "in":
                ctx.set_timer(at=10**6)
            else:
                ctx.produce(record.value, to="back")

        def process_timer(self, timer, ctx):
            ctx.produce({"k": ctx.key}, to="back")

    with Harness(loop(AtTheEnd)) as h:
        h._runtime.store.system = limited(final_rounds_max=5)
        h.send("in", at(1))
        assert any("never drained" in note for note in h.end().notes)
