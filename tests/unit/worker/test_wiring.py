"""Shapes of graphs: several inputs and outputs, diamonds, depths, keyless chains."""

import pytest
from tests.unit.pipelines import at, one

from headrace import Computation, Pipeline, UserCodeError, sources, state
from headrace.testing import CRASH, Harness


class Join(Computation):
    left: int = state(0)
    right: int = state(0)

    def process_record(self, record, ctx):
        if record.stream == "left":
            self.left += record.value["n"]
        else:
            self.right += record.value["n"]
        ctx.produce([ctx.key, self.left, self.right])


class Split(Computation):
    def process_record(self, record, ctx):
        n = record.value["n"]
        ctx.produce(record.value, to="even" if n % 2 == 0 else "odd")


class Add(Computation):
    def __init__(self, n):
        self.amount = n

    def process_record(self, record, ctx):
        ctx.produce({**record.value, "n": record.value["n"] + self.amount})


class Sum(Computation):
    total: int = state(0)

    def process_record(self, record, ctx):
        self.total += record.value["n"]
        ctx.produce({"k": ctx.key if ctx.key else "all", "n": self.total, "from": record.stream})


class Anything(Computation):
    def process_record(self, record, ctx):
        exec(record.value["do"], {"ctx": ctx, "self": self})


def read(p, *names):
    for name in names:
        p.read(name, sources.memory([], timestamp="t"))
    return p


def test_each_input_has_a_key_of_its_own():
    p = read(Pipeline("join"), "left", "right")
    p.compute(Join, inputs={"left": "id", "right": lambda v: v["who"].lower()}, outputs="out")
    with Harness(p) as h:
        h.send("left", {"id": "a", "n": 1, "t": 1})
        h.send("right", {"who": "A", "n": 5, "t": 1}, {"who": "B", "n": 7, "t": 1})
        assert h.read("out") == [["a", 1, 0], ["a", 1, 5], ["b", 0, 7]]


def test_within_an_epoch_inputs_come_in_their_order():
    p = read(Pipeline("join"), "right", "left")
    p.compute(Join, inputs={"left": "k", "right": "k"}, outputs="out")
    with Harness(p) as h:
        h._sources["right"].send(at(1, n=5))
        h.send("left", at(1, n=1))
        assert h.read("out") == [["a", 1, 0], ["a", 1, 5]]


def test_several_outputs_are_named_when_producing():
    for outputs in (["even", "odd"], {"even": "out.even", "odd": "out.odd"}):
        with Harness(one(Split, outputs=outputs)) as h:
            h.send("in", at(1, n=1), at(2, n=2), at(3, n=3))
            names = list(outputs.values()) if isinstance(outputs, dict) else outputs
            assert [[v["n"] for v in h.read(name)] for name in names] == [[2], [1, 3]]


@pytest.mark.parametrize(
    ("outputs", "do", "reason"),
    [
        (["a", "b"], "ctx.produce(1)", r"needs to=; outputs are 'a', 'b'"),
        (["a", "b"], "ctx.produce(1, to='c')", "no output 'c'"),
        ("a", "ctx.produce(1, to='c')", "no output 'c'"),
        ((), "ctx.produce(1)", "has no outputs="),
        ("a", "ctx.produce(object())", "cannot be encoded"),
        ("a", "ctx.produce({2**64: 1})", "cannot be encoded"),
        ("a", "ctx.produce(1, timestamp='soon')", "microseconds"),
    ],
)
@pytest.mark.parametrize("key", ["k", None])
def test_a_wrong_production_is_a_readable_error(outputs, do, reason, key):
    with Harness(one(Anything, outputs=outputs, key=key)) as h:
        h.send("in", at(1, do=do))
        with pytest.raises(UserCodeError, match=reason) as error:
            h.settle()
        assert "'C'" in str(error.value)


def test_a_stream_may_be_read_by_many_each_with_its_own_key():
    p = read(Pipeline("fan"), "in")
    p.compute(Sum, inputs={"in": "k"}, outputs="by_k", name="K")
    p.compute(Sum, inputs={"in": "c"}, outputs="by_c", name="C")
    p.compute(Sum, inputs={"in": ()}, outputs="all", name="All")
    with Harness(p, slots=3) as h:
        h.send("in", at(1, "a", c="x", n=1), at(2, "b", c="x", n=2), at(3, "a", c="y", n=4))
        assert sorted((r["k"], r["n"]) for r in h.read("by_k")) == [("a", 1), ("a", 5), ("b", 2)]
        assert sorted((r["k"], r["n"]) for r in h.read("by_c")) == [("x", 1), ("x", 3), ("y", 4)]
        assert [r["n"] for r in h.read("all")] == [1, 3, 7]


def test_several_may_produce_to_one_stream():
    p = read(Pipeline("in"), "a", "b")
    p.compute(Add(10), inputs={"a": "k"}, outputs="both", name="A")
    p.compute(Add(20), inputs={"b": None}, outputs="both", name="B")
    p.compute(Sum, inputs={"both": ()}, outputs="out")
    with Harness(p) as h:
        h.send("a", at(1, n=1))
        h.send("b", at(2, n=2))
        assert h.read("out")[-1]["n"] == 33
        assert h.watermarks()["Sum"] == 1


def diamond():
    p = read(Pipeline("diamond"), "in")
    p.compute(Add(1), inputs={"in": "k"}, outputs="left", name="L")
    p.compute(Add(2), inputs={"in": "k"}, outputs="right", name="R")
    p.compute(Add(100), inputs={"right": "k"}, outputs="deep", name="D")
    # Fed from the source, from depth 1 and from depth 2.
    p.compute(Sum, inputs={"in": (), "left": (), "deep": ()}, outputs="out")
    return p


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("cut", [1, 3, 100])
def test_a_diamond_fed_from_different_depths_gets_everything_once(slots, cut):
    values = [at(t, k, n=t) for t in range(1, 8) for k in "abc"]
    with Harness(diamond(), slots=slots, epoch_records=cut) as h:
        h.send("in", *values[:10], CRASH, *values[10:])
        total = sum(3 * v["n"] + 1 + 102 for v in values)
        assert h.read("out")[-1]["n"] == total
        assert len(h.read("out")) == 3 * len(values)
        assert h.counts["late"] == 0


def test_keyless_computations_chain_behind_sources_and_keyed_ones():
    p = read(Pipeline("chain"), "in")
    p.compute(Add(1), inputs={"in": None}, outputs="one", name="One")
    p.compute(Add(1), inputs={"one": None}, outputs="two", name="Two")
    p.compute(Sum, inputs={"two": "k"}, outputs="sums")
    p.compute(Add(1000), inputs={"sums": None, "one": None}, outputs="out", name="Behind")
    with Harness(p, slots=3) as h:
        h.send("in", at(1, "a", n=1), at(2, "b", n=2), at(3, "a", n=3))
        assert sorted(r["n"] for r in h.read("out")) == [1002, 1003, 1003, 1004, 1004, 1008]
        assert h.watermarks() == {"One": 3, "Two": 3, "Sum": 3, "Behind": 3}


def test_a_keyless_computation_has_neither_key_nor_timers_nor_state():
    with Harness(one(Anything, key=None)) as h:
        h.send("in", at(1, do="ctx.produce(ctx.key)"))
        assert h.read("out") == [None]
    for do in ("ctx.set_timer(at=5)", "ctx.hold(5)", "ctx.forget()", "ctx.cancel_timer()"):
        with Harness(one(Anything, key=None)) as h:
            h.send("in", at(1, do=do))
            with pytest.raises(UserCodeError, match="has no key"):
                h.settle()


def test_a_keyless_computation_keeps_nothing_on_its_object():
    with Harness(one(Anything, key=None)) as h:
        h.send("in", at(1, do="self.count = 1"))
        with pytest.raises(UserCodeError, match="assigned count in a hook, but has no key"):
            h.settle()


def test_changing_a_value_in_place_concerns_nobody_else():
    class Spoil(Computation):
        def process_record(self, record, ctx):
            record.value["n"] = -1
            ctx.produce(record.value)

    p = read(Pipeline("spoil"), "in")
    p.compute(Spoil, inputs={"in": None}, outputs="one", name="One")
    p.compute(Spoil, inputs={"in": "k"}, outputs="two", name="Two")
    p.compute(Add(0), inputs={"in": None}, outputs="three", name="Three")
    with Harness(p) as h:
        h.send("in", at(1, n=5))
        assert [h.read(name)[0]["n"] for name in ("one", "two", "three")] == [-1, -1, 5]


def test_weak_productions_are_delivered_before_the_commit_and_again_after_a_crash():
    p = one(Sum, strong=False)
    p.compute(Sum, inputs={"out": ()}, outputs="total", name="Total")
    with Harness(p) as h:
        h.send("in", at(1, n=1))
        h.crash(at="before-commit-write")
        # The sink saw the attempt that died and the one that counted; state saw one.
        assert [r["n"] for r in h.read("out")] == [1, 1]
        assert [r["n"] for r in h.read("total")] == [1]
        assert h.state("C", "a").total == 1


def test_strong_productions_are_delivered_once():
    with Harness(one(Sum)) as h:
        h.send("in", at(1, n=1))
        for name in ("before-commit-write", "after-commit-write", "before-delivery"):
            h.crash(at=name)
        h.send("in", at(2, n=1))
        h.crash(at="after-high-water")
        assert [r["n"] for r in h.read("out")] == [1, 2]
