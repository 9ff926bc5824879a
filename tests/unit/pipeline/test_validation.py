"""Mistakes in a pipeline are found before anything starts, and say what to do."""

import pytest

from headrace import Computation, InvalidPipeline, Pipeline, sinks, sources, state, to
from headrace.model.source import Timing


class C(Computation):
    n: int = state(0)

    def process_record(self, record, ctx): ...


class Keyless(Computation):
    def process_record(self, record, ctx): ...


class Timed(Keyless):
    def process_timer(self, timer, ctx): ...


class Unencodable(Computation):
    thing: Pipeline = state(factory=lambda: None)

    def process_record(self, record, ctx): ...


def pipeline():
    p = Pipeline("p")
    p.read("in", sources.memory([], timestamp="t"))
    return p


def wire(**options):
    return lambda p: p.compute(options.pop("c", C), **{"inputs": {"in": "k"}, **options})


AT_ONCE = {
    "a bad pipeline name": (lambda p: Pipeline("../x"), r"cannot name a pipeline"),
    "an empty name": (lambda p: Pipeline(""), "cannot name"),
    "a long name": (lambda p: Pipeline("x" * 101), "at most 100"),
    "a bad stream name": (lambda p: p.read("a/b", sources.memory([])), "cannot name a stream"),
    "a name with a newline": (lambda p: p.stream("a\n"), "cannot name a stream"),
    "a bad computation name": (wire(name="../up"), "cannot name a computation"),
    "a bad output": (wire(outputs="../up"), "cannot name a stream"),
    "no text": (wire(name=5), "cannot name a computation"),
    "a source that is none": (lambda p: p.read("x", [1, 2]), "is not a source"),
    "a stream read twice": (lambda p: p.read("in", sources.memory([])), "read twice"),
    "a sink that is none": (lambda p: p.stream("in").write("out"), "is not a sink"),
    "no computation": (wire(c=len), "is not a Computation"),
    "no inputs": (wire(inputs={}), "has no inputs"),
    "some inputs keyed": (wire(inputs={"in": "k", "b": None}), "every input a key, or none"),
    "state without a key": (wire(inputs={"in": None}), "declares state, so it needs a key"),
    "timers without a key": (wire(c=Timed, inputs={"in": None}), "needs a key"),
    "an unknown late policy": (wire(late="ignore"), r'late= is "process" or "drop" or to\('),
    "an unknown error policy": (wire(errors="ignore"), r'errors= is "stop" or to\('),
    "too many slots": (wire(slots=0), "slots= is a number"),
    "no share": (wire(watermark=99), "share between 0 and 1"),
    "one output twice": (wire(outputs=["a", "a"]), "named twice"),
    "two ports one stream": (wire(outputs={"a": "s", "b": "s"}), "same stream"),
    "state that cannot be encoded": (wire(c=Unencodable), "cannot be encoded"),
    "only= no exception": (lambda p: to("dead", only="ValueError"), "only= is an exception"),
    "limit= no number": (lambda p: to("dead", limit="5"), "limit= is a number"),
    "an unknown unit": (lambda p: Timing(unit="minutes"), "unit= is one of"),
    "timestamp= no column": (lambda p: Timing(timestamp=5), "timestamp= is a column"),
}


@pytest.mark.parametrize("mistake", AT_ONCE)
def test_a_mistake_that_one_call_shows_is_refused_by_that_call(mistake):
    act, reason = AT_ONCE[mistake]
    with pytest.raises(InvalidPipeline, match=reason):
        act(pipeline())


def test_the_same_computation_twice_needs_a_name():
    p = pipeline()
    p.compute(C, inputs={"in": "k"})
    with pytest.raises(InvalidPipeline, match="'C' is there twice"):
        p.compute(C, inputs={"in": "k"})


def _cycle(p):
    p.compute(Keyless, inputs={"in": "k", "b": "k"}, outputs="a", name="A")
    p.compute(Keyless, inputs={"a": "k"}, outputs="b", name="B")


def _keyless_cycle(p):
    p.compute(Keyless, inputs={"in": None, "b": None}, outputs="a", name="A")
    p.compute(Keyless, inputs={"a": None}, outputs="b", name="B")


def _keyless_feedback(p):
    p.stream("b", feedback=True)
    _keyless_cycle(p)


def _letters_in_a_circle(p):
    p.compute(Keyless, inputs={"in": "k", "dead": "k"}, name="A", errors=to("dead"))


def _same_path(p):
    p.stream("in").write(sinks.jsonl("out/x")).write(sinks.jsonl("out/x"))


WHOLE = {
    "nothing is read": (lambda p: p.catalog.injectors.clear(), "reads nothing"),
    "an unknown input": (
        wire(inputs={"inn": "k"}),
        "reads stream 'inn', which nothing produces.*in",
    ),
    "a sink on an unknown stream": (
        lambda p: p.stream("outt").write(sinks.memory()),
        "writes stream 'outt', which nothing produces",
    ),
    "two sinks on one path": (_same_path, "both write to"),
    "read and produced": (wire(outputs="in"), "is read and also produced"),
    "an undeclared cycle": (_cycle, r"A, B feed each other in a cycle.*feedback=True"),
    "itself": (wire(c=Keyless, inputs={"in": "k", "a": "k"}, outputs="a"), "in a cycle"),
    "a keyless cycle": (_keyless_cycle, "in a cycle"),
    "letters in a circle": (_letters_in_a_circle, "in a cycle"),
    "keyless feedback": (_keyless_feedback, "without a key; feedback waits under a key"),
    "feedback that is read": (lambda p: p.stream("in", feedback=True), "cannot be feedback"),
    "feedback of no producer": (lambda p: p.stream("x", feedback=True), "nothing produces it"),
    "one name for two": (wire(name="in"), "names a computation and a stream"),
}


@pytest.mark.parametrize("mistake", WHOLE)
def test_a_mistake_of_the_whole_is_found_by_validate(mistake):
    act, reason = WHOLE[mistake]
    p = pipeline()
    act(p)
    with pytest.raises(InvalidPipeline, match=reason):
        p.validate()


def test_an_alias_must_be_free():
    p = pipeline()
    p.compute(Keyless, inputs={"in": "k"}, name="Old")
    p.compute(Keyless, inputs={"in": "k"}, name="New", aliases=["Old"])
    with pytest.raises(InvalidPipeline, match="which still exists"):
        p.validate()


def test_what_is_right_passes():
    p = pipeline()
    p.stream("back", feedback=True)
    p.compute(Keyless, inputs={"in": "k", "back": ("a", "b")}, outputs=["out", "back"], name="A")
    p.compute(C, inputs={"out": ()}, outputs="sums", late=to("late"), errors=to("dead"))
    p.stream("sums").write(sinks.memory()).write(sinks.memory())
    p.stream("dead").write(sinks.memory())
    p.validate()
