"""How a graph runs: hosts, levels, cycles, origins."""

from headrace import Computation, Pipeline, sources, to


class K(Computation):
    def process_record(self, record, ctx): ...


class Ordered(K, ordered=True):
    pass


def read(*names):
    p = Pipeline("p")
    for name in names:
        p.read(name, sources.memory([], timestamp="t"))
    return p


def test_keyless_computations_live_where_their_input_is_made():
    p = read("in")
    p.compute(K, inputs={"in": None}, outputs="a", name="Bare")
    p.compute(K, inputs={"a": "k"}, outputs="b", name="Keyed")
    p.compute(K, inputs={"a": None, "b": None}, outputs="c", name="Both")
    t = p.freeze()
    assert t.hosts == {"in": ("in",), "a": ("in",), "b": ("Keyed",), "c": ("in", "Keyed")}
    assert [n.name for n in t.fused] == ["Bare", "Both"]
    assert t.levels == [("in",), ("Keyed",)]


def test_a_level_is_one_more_than_the_deepest_that_feeds_it():
    p = read("x", "y")
    p.compute(K, inputs={"x": "k"}, outputs="a", name="A")
    p.compute(K, inputs={"a": "k", "y": "k"}, outputs="b", name="B")
    p.compute(K, inputs={"x": "k", "b": "k"}, outputs="c", name="C")
    p.compute(K, inputs={"y": "k"}, outputs="d", name="D")
    t = p.freeze()
    assert {n: t.level[n] for n in "ABCD"} == {"A": 1, "B": 2, "C": 3, "D": 1}
    assert t.fed_levels("x") == [1, 3]
    assert t.feeders(t.keyed["C"]) == ["x", "B"]


def test_feedback_counts_for_cycles_and_not_for_levels():
    p = read("in")
    p.stream("back", feedback=True)
    p.compute(K, inputs={"in": "k", "back": "k"}, outputs="mid", name="A")
    p.compute(K, inputs={"mid": "k"}, outputs=["back", "out"], name="B")
    p.compute(K, inputs={"out": "k"}, name="Below")
    t = p.freeze()
    assert t.in_cycle == {"A": frozenset("AB"), "B": frozenset("AB")}
    assert (t.level["A"], t.level["B"], t.level["Below"]) == (1, 2, 3)


def test_a_letter_about_a_key_is_made_where_the_record_was():
    p = read("in")
    p.compute(K, inputs={"in": "k"}, outputs="out", errors=to("dead"), name="A")
    assert p.freeze().hosts["dead"] == ("in", "A")


def test_only_streams_that_somebody_orders_by_carry_origins():
    p = read("x", "y", "z")
    p.compute(K, inputs={"x": None}, outputs="through", name="Bare")
    p.compute(K, inputs={"y": "k"}, outputs="out", late=to("late"), name="Keyed")
    p.compute(Ordered, inputs={"through": "k", "late": "k"}, name="O")
    p.compute(K, inputs={"z": "k"}, name="Other")
    assert p.freeze().needs_origin == {"through", "x", "late", "y"}
