"""Ordered computations: one answer, however the input is cut, placed and shuffled."""

import itertools
import random

import pytest
from tests.unit.pipelines import at, one

from headrace import Computation, Pipeline, failpoints, sources, state, to
from headrace.testing import CRASH, Harness


class Trace(Computation, ordered=True):
    """Everything that it sees, in order."""

    seen: list[str] = state()

    def process_record(self, record, ctx):
        assert ctx.watermark == record.timestamp
        self.seen.append(f"{record.stream}{record.value.get('n', '')}@{record.timestamp}")
        ctx.set_timer(at=(record.timestamp // 10 + 1) * 10)

    def process_timer(self, timer, ctx):
        assert ctx.watermark == timer.timestamp
        ctx.produce(
            {"k": ctx.key, "end": timer.timestamp, "seen": list(self.seen)},
            timestamp=timer.timestamp - 1,
        )
        self.seen.clear()


class Pair(Computation, ordered=True):
    """Ties are its normal case: all windows of an instant carry the same timestamp."""

    ends: list[int] = state()

    def process_record(self, record, ctx):
        self.ends.append(len(record.value["seen"]))
        ctx.produce([record.value["k"], record.timestamp, list(self.ends)])


def two_deep():
    p = Pipeline("deep")
    p.read("in", sources.memory([], timestamp="t", lateness="30us"))
    p.compute(Trace, inputs={"in": "k"}, outputs="windows")
    p.compute(Pair, inputs={"windows": ()}, outputs="out")
    return p


def records(seed=1, count=60):
    rng = random.Random(seed)
    made = [at(rng.randrange(200), rng.choice("abcdef"), n=i) for i in range(count)]
    return sorted(made, key=lambda record: record["t"])


def shuffled(values, seed):
    """Out of order, but by less than the lateness."""
    rng = random.Random(seed)
    return sorted(values, key=lambda record: record["t"] + rng.randrange(29))


def run(values, *, slots=2, cut=10**6, pipeline=two_deep, crash=None):
    with Harness(pipeline(), slots=slots, epoch_records=cut) as h:
        if crash is None:
            h.send("in", *values)
        else:
            half = len(values) // 2
            h.send("in", *values[:half])
            h.crash(at=crash)
            h.send("in", *values[half:])
            h.crash(at=crash)
        h.end()
        assert h.counts["late"] == 0
        state = {key: h.state("Trace", key).seen for key in h.keys("Trace")}
        # Between keys and slots the sink's order is free; within a stream's instant it is not.
        return h.read("out"), sorted(h.read("windows"), key=str), state


def test_the_answer_does_not_depend_on_cut_or_slots():
    values = records()
    expected = run(values)
    assert len(expected[0]) > 50
    for cut, slots in itertools.product((1, 2, 7, 10**6), (1, 2, 5)):
        assert run(values, cut=cut, slots=slots) == expected, (cut, slots)


def test_the_answer_does_not_depend_on_the_order_of_arrival_but_for_ties():
    # Ties come in the order of (split, position), so distinct times make the order irrelevant.
    values = [{**record, "t": i * 3} for i, record in enumerate(records())]
    expected = run(values)
    for seed in range(4):
        assert run(shuffled(values, seed), cut=7) == expected


def test_it_is_what_plain_python_finds():
    values = [{**record, "t": i * 3} for i, record in enumerate(records())]
    expected = []
    for key, group in itertools.groupby(
        sorted(values, key=lambda r: (r["k"], r["t"])), lambda r: r["k"]
    ):
        for end, window in itertools.groupby(group, lambda r: (r["t"] // 10 + 1) * 10):
            seen = [f"in{r['n']}@{r['t']}" for r in window]
            expected.append({"k": key, "end": end, "seen": seen})
    assert run(shuffled(values, 9), cut=5)[1] == sorted(expected, key=str)


@pytest.mark.parametrize("name", failpoints.NAMES)
def test_a_crash_anywhere_changes_nothing(name):
    values = records(seed=3, count=30)
    expected = run(values, cut=8)
    assert run(values, cut=8, crash=name) == expected


def test_crashes_between_any_two_records_change_nothing():
    values = records(seed=4, count=12)
    expected = run(values)
    interrupted = [item for value in values for item in (value, CRASH)]
    with Harness(two_deep()) as h:
        h.send("in", *interrupted)
        h.end()
        assert h.read("out") == expected[0]
        assert h.crashes == len(values)


def test_records_wait_for_the_watermark_and_hold_what_follows():
    with Harness(two_deep()) as h:
        h.send("in", at(100))
        assert h.watermarks() == {"Trace": 70, "Pair": 70}
        h.send("in", at(120, "b"))
        assert h.watermarks() == {"Trace": 90, "Pair": 90}
        assert h.keys("Trace") == []
        h.send("in", at(135, "c"))
        assert h.keys("Trace") == ["a"]
        assert h.watermarks() == {"Trace": 105, "Pair": 105}


def test_a_timer_sees_exactly_the_records_before_it():
    with Harness(two_deep()) as h:
        h.send("in", at(10, n=2), at(9, n=1), at(11, n=3), at(5, n=0))
        h.end()
        assert [row["seen"] for row in h.read("windows")] == [
            ["in0@5", "in1@9"],
            ["in2@10", "in3@11"],
        ]


def test_ties_come_in_the_order_of_the_inputs_then_of_the_source():
    def both():
        p = Pipeline("both")
        p.read("y", sources.memory([], timestamp="t"))
        p.read("x", sources.memory([], timestamp="t"))
        p.compute(Trace, inputs={"x": "k", "y": "k"}, outputs="windows")
        return p

    for cut in (1, 2, 100):
        with Harness(both(), epoch_records=cut) as h:
            h.send("y", at(5, n=1), at(5, n=2))
            h.send("x", at(5, n=3), at(5, n=4), at(4, n=5))
            h.end()
            assert h.read("windows")[0]["seen"] == ["x5@4", "x3@5", "x4@5", "y1@5", "y2@5"]


def test_late_records_are_processed_at_once_and_say_so():
    class Seen(Computation, ordered=True):
        def process_record(self, record, ctx):
            ctx.produce([record.timestamp, record.late])

    with Harness(one(Seen)) as h:
        h.send("in", at(50), at(60))
        h.send("in", at(10), at(70))
        assert h.read("out") == [[50, False], [10, True], [60, False]]
        h.end()
        assert h.read("out")[-1] == [70, False]
        assert h.counts["late"] == 1


def test_ties_between_late_and_other_records_of_a_side_stream_keep_their_origin():
    p = Pipeline("aside")
    p.read("in", sources.memory([], timestamp="t"))
    p.compute(Pass, inputs={"in": "k"}, outputs="out", late=to("late"))
    p.compute(Trace, inputs={"late": ()}, outputs="windows")
    with Harness(p) as h:
        h.send("in", at(90))
        h.send("in", at(7, "b", n=1), at(7, "a", n=2), at(7, "c", n=3))
        h.end()
        assert h.read("windows")[0]["seen"] == ["late1@7", "late2@7", "late3@7"]


class Pass(Computation):
    def process_record(self, record, ctx):
        ctx.produce(record.value)


class Twice(Computation):
    def process_record(self, record, ctx):
        ctx.produce({**record.value, "n": f"{record.value['n']}a"})
        ctx.produce({**record.value, "n": f"{record.value['n']}b"})


def test_ties_through_keyless_computations_keep_the_order_of_their_causes():
    def chain():
        p = Pipeline("chain")
        p.read("in", sources.memory([], timestamp="t"))
        p.compute(Twice, inputs={"in": None}, outputs="twice")
        p.compute(Pass, inputs={"twice": None}, outputs="through")
        p.compute(Trace, inputs={"through": ()}, outputs="windows")
        return p

    answers = []
    for cut, slots in ((1, 1), (2, 3), (100, 2)):
        with Harness(chain(), epoch_records=cut, slots=slots) as h:
            h.send("in", *(at(5, n=n) for n in range(4)))
            h.end()
            answers.append(h.read("windows")[0]["seen"])
    assert answers[0] == [f"through{n}{half}@5" for n in range(4) for half in "ab"]
    assert answers[1:] == answers[:1] * 2


def test_failed_records_are_skipped_in_their_place():
    class Picky(Trace):
        def process_record(self, record, ctx):
            super().process_record(record, ctx)
            if record.value["n"] == 1:
                raise ValueError("no")

    for cut in (1, 100):
        with Harness(one(Picky, errors=to("dead")), epoch_records=cut) as h:
            h.send("in", at(1, n=0), at(2, n=1), at(3, n=2))
            h.end()
            assert [row["seen"] for row in h.read("out")] == [["in0@1", "in2@3"]]
            assert [letter["value"]["n"] for letter in h.read("dead")] == [1]
