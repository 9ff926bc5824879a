"""Contracts, and what a deploy may change: modes, refusals, doubts (L6 to L8)."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from headrace import Computation, Map, Pipeline, agg, sinks, sources, state, tumbling
from headrace.plan.deploy.comparison import FORWARD, RESTORE, Comparison, Facts, Meant, compare
from headrace.plan.deploy.contract import Contract, contract_of

C = Facts(with_state=frozenset({"C"}))


class Counting(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce(self.n)


class WithTypes(Computation):
    n: float = state(0.0)

    def process_record(self, record, ctx):
        ctx.produce(self.n)


class WithMore(Computation):
    n: int = state(0)
    more: Map[str, int] = state()

    def process_record(self, record, ctx):
        ctx.produce(self.n)


class Later(WithTypes, version=2):
    pass


class InOrder(Counting, ordered=True):
    pass


class Calling(Counting):
    def process_record(self, record, ctx):
        ctx.http.post("http://x", json={})


def pipeline(
    computation: Any = Counting,
    *,
    key: Any = "k",
    name: str = "C",
    build: Any = lambda p: None,
    place: str = "out/c",
    guarantee: str = "exactly-once",
    read: str = "in/*.jsonl",
    **options: Any,
) -> Contract:
    p = Pipeline("p", guarantee=guarantee)
    p.read("in", sources.jsonl(read))
    p.compute(computation, inputs={"in": key}, outputs="out", name=name, **options)
    p.stream("out").write(sinks.jsonl(place))
    build(p)
    return contract_of(p.freeze())


def changed(new: Contract, facts: Facts = C, **meant: Any) -> Comparison:
    return compare(pipeline(), new, facts, Meant(**meant))


def test_a_contract_travels_as_json() -> None:
    made = pipeline(Later, aliases="D", late="drop")
    assert msgspec.json.decode(msgspec.json.encode(made), type=Contract) == made
    assert made.computations["C"].fields == {"n": "<class 'float'>"}
    assert made.computations["C"].flags == {"late": "drop"}


def test_other_text_of_hooks_is_a_forward_deploy_without_a_word() -> None:
    class Changed(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            ctx.produce("other")

    found = changed(pipeline(Changed))
    assert (found.mode, found.refusals, found.doubts) == (FORWARD, (), ())


def test_a_new_computation_and_a_new_sink_are_forward_and_start_at_the_present() -> None:
    def more(p: Pipeline) -> None:
        p.compute(Counting, inputs={"in": "j"}, outputs="out2", name="D")
        p.stream("out2").write(sinks.jsonl("out/d"), name="other")

    found = changed(pipeline(build=more))
    assert (found.mode, found.refusals) == (FORWARD, ())
    assert found.added == ("computation D", "sink other")
    assert "D is new" in found.doubts[0] and "partial" in found.doubts[0]


def test_another_version_is_a_restore_deploy() -> None:
    found = changed(pipeline(Later))
    assert (found.mode, found.refusals) == (RESTORE, ())
    assert "version 2" in found.reasons[0]


def test_more_fields_are_a_restore_deploy() -> None:
    """The former code would not know the new field, and drop it."""
    found = changed(pipeline(WithMore))
    assert (found.mode, found.refusals) == (RESTORE, ())


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (lambda: pipeline(WithTypes), r"field 'n'.*int.*float.*raise version= to 2"),
        (lambda: pipeline(key="j"), r"key of 'in' from 'j'.*'k'.*--rekeyed C=drop"),
        (lambda: pipeline(InOrder), r"changes ordered=.*--rekeyed C=drop"),
        (lambda: pipeline(read="other/*.jsonl"), r"stream 'in'.*other.*--moved in"),
        (lambda: pipeline(Calling), None),
    ],
)
def test_what_the_new_code_would_misread_is_refused(new: Any, words: str | None) -> None:
    found = changed(new())
    if words is None:
        assert found.mode == FORWARD and not found.refusals
        return
    (refusal,) = found.refusals
    assert re.search(words, refusal), refusal
    assert "\n" not in refusal and ". " not in refusal


def test_a_lower_version_is_refused() -> None:
    found = compare(pipeline(Later), pipeline(WithTypes), C)
    assert "version=2 or higher" in found.refusals[0]


def test_without_state_nothing_can_be_misread() -> None:
    assert changed(pipeline(WithTypes), Facts()).refusals == ()
    assert changed(pipeline(key="j"), Facts()).refusals == ()


def test_a_person_says_by_name_what_is_meant() -> None:
    found = changed(pipeline(key="j"), rekeyed={"C": "drop"})
    assert found.refusals == () and found.mode == RESTORE
    assert "dropped" in found.doubts[0]
    assert changed(pipeline(read="other/*.jsonl"), moved=frozenset({"in"})).refusals == ()


def test_another_function_for_the_key_is_a_doubt() -> None:
    def first(value: Any) -> Any:
        return value["a"]

    def second(value: Any) -> Any:
        return value["b"]

    found = compare(pipeline(key=first), pipeline(key=second), C)
    assert found.refusals == () and "another text" in found.doubts[0]


def test_windows_of_another_meaning_are_refused() -> None:
    def windowed(size: str) -> Contract:
        p = Pipeline("p")
        read = p.read("in", sources.jsonl("in/*.jsonl", timestamp="t"))
        read.key_by("k").window(tumbling(size)).aggregate(n=agg.count()).named("w")
        return contract_of(p.freeze())

    facts = Facts(with_state=frozenset(windowed("1m").keyed))
    assert compare(windowed("1m"), windowed("1m"), facts).refusals == ()
    found = compare(windowed("1m"), windowed("2m"), facts)
    assert "another meaning" in found.refusals[0]


def test_a_rename_by_alias_keeps_the_state_and_is_a_restore_deploy() -> None:
    found = changed(pipeline(name="D", aliases="C"))
    assert (found.mode, found.refusals, found.renamed) == (RESTORE, (), {"C": "D"})
    assert found.added == found.removed == ()


def test_an_alias_that_two_claim_is_refused() -> None:
    def more(p: Pipeline) -> None:
        p.compute(Counting, inputs={"in": "k"}, name="E", aliases="C")

    found = changed(pipeline(name="D", aliases="C", build=more))
    assert "D and E both have the alias 'C'" in found.refusals[0]


def test_an_alias_whose_target_has_state_is_refused() -> None:
    found = changed(pipeline(name="D", aliases="C"), Facts(with_state=frozenset("CD")))
    assert "has state of its own" in found.refusals[0]


def test_what_is_removed_keeps_its_state() -> None:
    found = changed(pipeline(name="D"))
    assert (found.mode, found.removed) == (RESTORE, ("computation C",))
    assert any("stays until it is dropped" in doubt for doubt in found.doubts)


def test_a_removed_sink_is_a_restore_deploy_and_a_renamed_one_is_the_same() -> None:
    p = Pipeline("p")
    p.read("in", sources.jsonl("in/*.jsonl"))
    p.compute(Counting, inputs={"in": "k"}, outputs="out", name="C")
    p.stream("out").write(sinks.jsonl("out/c"), name="renamed")
    found = changed(contract_of(p.freeze()))
    assert (found.mode, found.added, found.removed) == (FORWARD, (), ())
    assert changed(pipeline(place="out/elsewhere")).mode == RESTORE


def test_restore_and_calls_that_must_not_repeat() -> None:
    class CallingLater(Calling, version=2):
        pass

    found = compare(pipeline(Calling), pipeline(CallingLater), C)
    assert "--calls stay" in found.refusals[0]
    found = compare(pipeline(Calling), pipeline(CallingLater), C, Meant(calls="stay"))
    assert found.refusals == ()


def test_a_renamed_caller_keeps_the_first_name_of_its_calls() -> None:
    unsettled = Facts(with_state=frozenset({"C"}), unsettled=True)
    stay = Meant(calls="stay")
    kept = pipeline(Calling, name="D", aliases="C")
    assert compare(pipeline(Calling), kept, unsettled, stay).refusals == ()
    other = pipeline(Calling, name="D", aliases=("B", "C"))
    assert "first of the aliases" in compare(pipeline(Calling), other, unsettled, stay).refusals[0]
    assert compare(pipeline(Calling), other, C, stay).refusals == ()


def test_at_most_once_is_refused_in_restore_mode() -> None:
    old, new = (pipeline(c, guarantee="at-most-once") for c in (Counting, Later))
    assert "reads no record twice" in compare(old, new, C).refusals[0]
    same = pipeline(guarantee="at-most-once")
    assert compare(old, same, C).refusals == ()


def test_a_mode_may_be_asked_for() -> None:
    assert changed(pipeline(), mode=RESTORE).mode == RESTORE
    found = changed(pipeline(Later), mode=FORWARD)
    assert "--mode forward is not possible" in found.refusals[0]


def test_a_consumer_of_feedback_that_changes_must_drain() -> None:
    def looping(key: str) -> Contract:
        p = Pipeline("p")
        p.read("in", sources.jsonl("in/*.jsonl"))
        p.compute(Counting, inputs={"in": "k"}, outputs="back", name="A")
        p.stream("back", feedback=True)
        p.compute(Counting, inputs={"back": key}, outputs="out", name="B")
        return contract_of(p.freeze())

    assert compare(looping("k"), looping("k")).drain == ()
    waiting = Facts(waiting=frozenset({("B", "back")}))
    found = compare(looping("k"), looping("j"), waiting)
    assert (found.drain, found.refusals) == (("B",), ())


def test_a_loop_that_feeds_itself_cannot_drain() -> None:
    def looping(key: str) -> Contract:
        p = Pipeline("p")
        p.read("in", sources.jsonl("in/*.jsonl"))
        p.stream("back", feedback=True)
        p.compute(Counting, inputs={"in": "k", "back": key}, outputs="back", name="A")
        return contract_of(p.freeze())

    waiting = Facts(waiting=frozenset({("A", "back")}))
    found = compare(looping("k"), looping("j"), waiting)
    assert "may never drain" in found.refusals[0]


def test_another_pipeline_is_refused() -> None:
    p = Pipeline("q")
    p.read("in", sources.jsonl("in/*.jsonl"))
    p.compute(Counting, inputs={"in": "k"}, name="C")
    assert "belongs to pipeline 'p'" in changed(contract_of(p.freeze())).refusals[0]
