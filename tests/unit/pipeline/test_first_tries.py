"""What people write first, from habit or by a slip: it works, or the message says what to write."""

from __future__ import annotations

import copy
import enum
import functools
import operator
import re
import types
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow.compute as pc
import pytest

from headrace import (
    Computation,
    InvalidDuration,
    InvalidPipeline,
    InvalidRecord,
    Map,
    Pipeline,
    UserCodeError,
    agg,
    every,
    hopping,
    session,
    sinks,
    sliding,
    sources,
    state,
    to,
    tumbling,
)
from headrace.testing import Harness


def begin() -> tuple[Pipeline, Any]:
    p = Pipeline("first")
    return p, p.read("in", sources.memory([], timestamp="t"))


def row(k: Any, t: int, v: Any = 1) -> dict[str, Any]:
    return {"k": k, "t": t, "v": v}


class Counts(Computation):
    n: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.n += 1
        ctx.produce(self.n)


# One name, and several ----------------------------------------------------


def test_one_text_is_one_name() -> None:
    p, _ = begin()
    p.compute(Counts, inputs={"in": "k"}, aliases="Old")
    assert p.freeze().graph.nodes["Counts"].aliases == ("Old",)
    assert sources.memory([], expected="a.jsonl").timing.expected == ("a.jsonl",)
    assert sources.csv("x.csv", columns="abc").format.columns == ("abc",)  # type: ignore[attr-defined]
    with pytest.raises(InvalidPipeline, match="aliases= takes a name or a list of names"):
        p.compute(Counts, inputs={"in": "k"}, name="B", aliases=[Counts])  # type: ignore[list-item]


# Functions and hooks ------------------------------------------------------


async def later(*_: Any) -> None: ...


def never() -> Any:
    found = later()
    found.close()
    return found


def gives(*_: Any) -> Any:
    yield 1


class Caller:
    async def __call__(self, value: Any) -> None: ...


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.map(later), r"in.map: its function is async.*ctx.http, or ctx.call"),
        (lambda s: s.map(Caller()), "in.map: its function is async"),
        (lambda s: s.flat_map(later), "in.flat_map: its function is async"),
        (lambda s: s.filter(functools.partial(later, 1)), "in.filter: its function is async"),
        (lambda s: s.key_by(later), "in.key_by: its function is async"),
        (lambda s: s.key_by(k=later), "in.key_by: its function is async"),
        (lambda s: s.key_by("k").reduce(later, 0), "in.reduce: its function is async"),
        (lambda s: s.split(a=later), "in.split: a=: its function is async"),
        (lambda s: s.map_table(later), "in.map_table: its function is async"),
        (lambda s: sinks.foreach(later), "foreach: its function is async"),
        (lambda s: sources.memory([], timestamp=later), "timestamp=: its function is async"),
        (lambda s: sources.memory([], id=lambda: 1), r"id= calls its function as f\(value\)"),
        (lambda s: agg.fold(0, lambda a: a, max), r"agg.fold: add calls .* f\(state, value\)"),
        (lambda s: agg.fold(0, max, later), "agg.fold: merge: its function is async"),
        (lambda s: agg.fold(0, max, max, 5), "agg.fold: result takes a function"),
        (lambda s: s.map(gives), "in.map: its function is a generator: use flat_map"),
        (lambda s: s.filter(gives), "in.filter: its function is a generator: return"),
        (lambda s: s.key_by("k").reduce(gives, 0), "in.reduce: its function is a generator"),
        (lambda s: s.map(lambda v, ctx: v), r"f\(value\), but it is .* \(v, ctx\); for ctx write"),
        (lambda s: s.filter(lambda: True), r"f\(value\), but it is written with \(\)"),
        (lambda s: s.key_by("k").reduce(lambda v: v, 0), r"as f\(value, state\), .*with \(v\)"),
        (lambda s: s.key_by(lambda: 1), r"in.key_by calls its function as f\(value\)"),
        (lambda s: s.split(a=5), r"in.split: a= takes a function, f\(value\), not 5"),
        (lambda s: sinks.foreach(lambda rows: None), r"foreach calls its function as f\(rows, epo"),
    ],
)
def test_a_function_that_would_be_called_in_vain_is_refused(build: Any, reason: str) -> None:
    _, s = begin()
    with pytest.raises(InvalidPipeline, match=reason):
        build(s)


def wrapping(function: Any) -> Any:
    @functools.wraps(function)
    def one(value: Any) -> Any:
        return function(value, 1)

    return one


@pytest.mark.parametrize(
    "function",
    [str, len, dict, operator.itemgetter("k"), dict.copy, np.shape, max, lambda *a: 1,
     lambda v, more=1: v, functools.partial(lambda a, v: v, 1), wrapping(lambda v, ctx: v),
     functools.partial(dict, a=1), msgspec.json.encode, Decimal],
)  # fmt: skip
def test_whatever_can_be_called_with_a_value_is_a_function(function: Any) -> None:
    _, s = begin()
    s.map(function)


def with_hook(name: str, hook: Any) -> type[Computation]:
    body = {"process_table" if name == "combine_table" else "process_record": lambda s, a, c: None}
    return type("C", (Computation,), body | {name: hook})


@pytest.mark.parametrize(
    ("name", "hook", "reason"),
    [
        ("process_record", gives, r"process_record of 'C' is a generator: call ctx.produce\("),
        ("process_timer", gives, r"process_timer of 'C' is a generator: call ctx.produce\("),
        ("combine_table", gives, "combine_table of 'C' is a generator: return"),
        ("process_record", later, "process_record of 'C' is async: use ctx.http, or ctx.call"),
        ("process_timer", later, "process_timer of 'C' is async"),
        ("combine_table", later, "combine_table of 'C' is async"),
        ("setup", later, "setup of 'C' is async"),
        ("process_record", lambda self, r: 0, r"takes \(self, record, ctx\), but is .*\(self, r\)"),
        ("process_timer", lambda self: 0, r"process_timer of 'C' takes \(self, timer, ctx\)"),
        ("process_record", staticmethod(lambda r: 0), r"takes \(record, ctx\)"),
        ("migrate", lambda self, f, v: f, r"takes \(fields, version\), as a @classmethod"),
    ],
)
def test_a_hook_that_would_do_nothing_is_refused(name: str, hook: Any, reason: str) -> None:
    p, _ = begin()
    with pytest.raises(InvalidPipeline, match=reason):
        p.compute(with_hook(name, hook), inputs={"in": "k"})


def test_hooks_may_be_static_or_take_more_than_they_need() -> None:
    p, _ = begin()
    for i, hook in enumerate((staticmethod(lambda r, c: 0), lambda *a: 0, lambda s, r, c, d=1: 0)):
        p.compute(with_hook("process_record", hook), inputs={"in": "k"}, name=f"C{i}")
    p.validate()


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.flat_map(lambda v: v["k"]), "returned a str .'a'.*wrap it in a list"),
        (lambda s: s.flat_map(lambda v: b"x"), "returned a bytes"),
        (lambda s: s.flat_map(lambda v: v), "returned a dict .*wrap it in a list, or use map"),
        (lambda s: s.map(lambda v: (i for i in "ab")), "It is a generator: use flat_map"),
        (lambda s: s.map(lambda v: never()), "comes from an async function"),
    ],
)
def test_a_result_that_cannot_be_meant_is_told(build: Any, reason: str) -> None:
    p, s = begin()
    build(s)
    with Harness(p) as h, pytest.raises(UserCodeError, match=reason):
        h.send("in", row("a", 1))
        h.settle()


@pytest.mark.parametrize("frame", [lambda t: t.to_pandas(), pl.from_arrow])
def test_map_table_takes_frames_of_pandas_and_polars(frame: Any) -> None:
    p, s = begin()
    s.map_table(lambda t: frame(t.filter(pc.field("v") > 1))).named("out")
    s.map_table(lambda t: t.to_pandas().query("v > 1")).named("queried")
    with Harness(p) as h:
        h.send("in", row("a", 1), row("b", 2, 2), row("c", 3, 3))
        assert h.read("out") == h.read("queried") == [row("b", 2, 2), row("c", 3, 3)]


# Options ------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda k, dead: k.count(errors=dead),
        lambda k, dead: k.aggregate(n=agg.count(), errors=dead),
        lambda k, dead: k.window(tumbling("1s")).aggregate(errors=dead, n=agg.count(), slots=1),
        lambda k, dead: k.window(tumbling("1s"), errors=dead).aggregate(errors=agg.count()),
        lambda k, dead: k.window(tumbling("1s")).top(1, by="v", errors=dead),
        lambda k, dead: k.top(1, by="v", id="t", errors=dead),
        lambda k, dead: k.reduce(lambda v, n: n + 1, 0, errors=dead),
    ],
)
def test_records_without_a_key_go_aside_as_the_message_advises(build: Any) -> None:
    for policy in ("stop", to("dead")):
        p, s = begin()
        made = build(s.key_by("k"), policy).name
        with Harness(p) as h:
            h.send("in", row("a", 1), row(None, 2))
            if policy == "stop":
                with pytest.raises(InvalidRecord, match=r'aside: errors=to\("dead"\)'):
                    h.end()
                continue
            h.end()
            assert len(h.read(made)) == 1
            (letter,) = h.read("dead")
            assert letter["value"].get("t", 2) == 2


def test_late_records_of_windows_are_told_of_where_windows_are_made() -> None:
    _, s = begin()
    with pytest.raises(InvalidPipeline, match=r"window\(..., late=\)"):
        s.key_by("k").window(tumbling("1s")).aggregate(n=agg.count(), late=to("late"))
    with pytest.raises(InvalidPipeline, match="n is one of headrace.agg"):
        s.key_by("k").aggregate(n="count")


# Reduce -------------------------------------------------------------------


def test_reduce_tells_the_order_of_its_arguments() -> None:
    p, s = begin()
    s.key_by("k").reduce(lambda total, v: total + v["v"], 0)
    with Harness(p) as h, pytest.raises(UserCodeError, match=r"f\(value, state\), the value first"):
        h.send("in", row("a", 1))
        h.settle()


def test_reduce_asks_for_the_first_state() -> None:
    p, s = begin()
    with pytest.raises(InvalidPipeline, match=r"in.reduce: say what a key's state is before"):
        s.key_by("k").reduce(lambda v, state: v)
    s.key_by("k").reduce(lambda v, state: [v["v"], state], None)
    with Harness(p) as h:
        h.send("in", row("a", 1))
        assert h.read("in.reduce") == [[1, None]]


# State --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["options", "setup", "lag_us", "prompt", "reads_values"])
def test_state_cannot_have_a_name_that_computations_have_already(name: str) -> None:
    body = {name: state(0), "__annotations__": {name: int}}
    with pytest.raises(InvalidPipeline, match=f"C.{name}: .* call it otherwise, such as {name}_"):
        type("C", (Computation,), body)
    with pytest.raises(InvalidPipeline, match=f"D.{name}: '{name}' is a name of Computation"):
        type("D", (type("Mixin", (), body), Computation), {})


def test_an_option_of_the_class_line_is_known_or_told() -> None:
    with pytest.raises(InvalidPipeline, match=r"'orderd' .did you mean 'ordered'.*ttl, clock, ver"):
        types.new_class("C", (Computation,), {"orderd": True})


@pytest.mark.parametrize("default", [{"default": {"a": 1}}, {"factory": lambda: {"a": 1}}])
def test_a_map_begins_empty(default: Any) -> None:
    class C(Counts):
        m: Map[str, int] = state(**default)
        empty: Map[str, int] = state({})

    p, _ = begin()
    with pytest.raises(InvalidPipeline, match=r"C.m: a Map begins empty, and {'a': 1} would be"):
        p.compute(C, inputs={"in": "k"})


class Keeps(Computation):
    words: Map[str, int] = state()
    pairs: Map[tuple[str, int], int] = state()

    def process_record(self, record: Any, ctx: Any) -> None:
        exec(record.value["v"], {"self": self, "Word": Word, "np": np})


class Word(enum.StrEnum):
    A = "a"


class KeepsTables(Computation):
    words: Map[str, int] = state()

    def process_table(self, table: Any, ctx: Any) -> None:
        ctx.put_entries("words", [0, 0], ["a", 5], [1, 1])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("self.words['a'] = self.words[Word.A] = self.pairs['a', np.int64(1)] = 1", None),
        ("self.words[5] = 1", r"Keeps.words\[5\]: its keys are declared as str, but Expected"),
        ("self.words[None] = 1", r"Keeps.words\[None\]: its keys are declared as str"),
        ("self.pairs['a', 'b'] = 1", r"Keeps.pairs\[\('a', 'b'\)\]: .* as tuple\[str, int\], but"),
        ("self.words['a'] = 'x'", r"Keeps.words\['a'\] is declared as int, but Expected `int`"),
    ],
)
def test_entries_of_a_map_are_checked_by_both_types(code: str, reason: str | None) -> None:
    p, _ = begin()
    p.compute(Keeps, inputs={"in": "k"})
    with Harness(p) as h:
        h.send("in", row("a", 1, code))
        if reason is None:
            h.settle()
            assert dict(h.state("Keeps", "a").pairs.items()) == {("a", 1): 1}
            return
        with pytest.raises(UserCodeError, match=reason):
            h.settle()


def test_entries_that_tables_put_are_checked_too() -> None:
    p, _ = begin()
    p.compute(KeepsTables, inputs={"in": "k"})
    with Harness(p) as h, pytest.raises(UserCodeError, match=r"words\[5\]: its keys are declared"):
        h.send("in", row("a", 1))
        h.settle()


# Times and timers ---------------------------------------------------------


class Alarms(Computation):
    def process_record(self, record: Any, ctx: Any) -> None:
        exec(record.value["v"], {"ctx": ctx})

    def process_timer(self, timer: Any, ctx: Any) -> None: ...


BARE: list[Callable[[Any], Any]] = [
    lambda s: tumbling(60),
    lambda s: hopping("1s", every=1),
    lambda s: session(60),
    lambda s: sliding(60),
    lambda s: every(1.5),  # type: ignore[arg-type]
    lambda s: s.key_by("k").window(tumbling("1s"), grace=5),
    lambda s: sources.memory([], lateness=5),  # type: ignore[arg-type]
    lambda s: types.new_class("C", (Computation,), {"ttl": 5}),
    lambda s: s.dedup("k", within=5),
    lambda s: s.key_by("k").reduce(max, 0, ttl=5),
    lambda s: s.key_by("k").compute(Counts, timeout=5),
]


@pytest.mark.parametrize("build", BARE)
def test_a_time_without_a_unit_is_one_error_everywhere(build: Any) -> None:
    _, s = begin()
    with pytest.raises(InvalidDuration, match="needs a unit") as caught:
        build(s)
    assert isinstance(caught.value, InvalidPipeline) and isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("text", "hint"),
    [("10 minutes", "10m"), ("10 s", "10s"), ("1 hour, 30 min", "1h30m"), ("5 Days", "5d")],
)
def test_a_time_in_words_is_told_as_it_is_written(text: str, hint: str) -> None:
    with pytest.raises(InvalidDuration, match=f'did you mean "{re.escape(hint)}"'):
        tumbling(text)
    for strange in ("soon", "5 apples", "m 5", ""):
        with pytest.raises(InvalidDuration, match=r"like .*not '[^']*'$"):
            tumbling(strange)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("ctx.set_timer(5)", "the first argument, 5, is the tag: write at="),
        ("ctx.set_timer('5s')", "the first argument, '5s', is the tag: write after="),
        ("ctx.set_timer()", "takes at= or after=, one of them"),
        ("ctx.set_timer(after=5)", "InvalidDuration: set_timer: after= needs a unit"),
    ],
)
def test_a_timer_says_what_it_misses(code: str, reason: str) -> None:
    p, s = begin()
    s.key_by("k").compute(Alarms)
    with Harness(p) as h, pytest.raises(UserCodeError, match=reason):
        h.send("in", row("a", 1, code))
        h.settle()


def test_a_hook_by_another_name_is_known() -> None:
    class Flink(Computation):
        def process_record(self, record: Any, ctx: Any) -> None:
            ctx.set_timer(after="1s")

        def on_timer(self, timer: Any, ctx: Any) -> None: ...

    class Other(Computation):
        def process(self, record: Any, ctx: Any) -> None: ...

    p, _ = begin()
    with pytest.raises(InvalidPipeline, match=r"has on_timer: did you mean process_timer\?"):
        p.compute(Flink, inputs={"in": "k"})
    with pytest.raises(InvalidPipeline, match=r"has process: did you mean process_record\?"):
        p.compute(Other, inputs={"in": "k"})


def test_a_missing_key_is_told_without_the_name_of_the_error() -> None:
    p, s = begin()
    s.key_by("k").count()
    with Harness(p) as h, pytest.raises(InvalidRecord, match=r"of 'in': the key is missing"):
        h.send("in", row(None, 1))
        h.settle()


def test_the_harness_takes_a_pipeline() -> None:
    with pytest.raises(InvalidPipeline, match="Harness takes a Pipeline, not 'x'"):
        Harness("x")  # type: ignore[arg-type]


# Words of other systems ---------------------------------------------------


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda p, s: p.compute(Counts, inputs="in"), r"say by which key: inputs={'in': key}"),
        (lambda p, s: p.compute(Counts, inputs=s), r"say by which key: inputs={'in': key}"),
        (lambda p, s: p.compute(Counts, inputs=["in"]), r"inputs={stream: key}, not \['in'\]"),
        (lambda p, s: p.compute(Counts, inputs={begin()[1]: "k"}), "belongs to another pipeline"),
        (lambda p, s: p.compute(Counts, inputs={s: "k", "in": "k"}), "'in' is there twice"),
        (lambda p, s: p.compute(Counts, inputs={s: "k"}, output="x"), "did you mean 'outputs'"),
        (lambda p, s: s.key_by("k").compute(Counts, output="x"), "did you mean 'outputs'"),
        (
            lambda p, s: s.key_by("k").compute(Counts).write(sinks.memory()),
            "computation 'Counts' has no outputs=, so there is no stream to write",
        ),
        (lambda p, s: s.key_by("k").compute(Counts).key_by("k"), "so there is no stream to key_by"),
        (
            lambda p, s: sources.memory([], watch=True),
            r"sources.memory: there is no option 'watch'",
        ),
        (lambda p, s: sources.jsonl("x", timestmp="t"), "sources.jsonl: .*mean 'timestamp'"),
        (lambda p, s: s.key_by("k").top(3, by="v"), r"window\(...\).top\(n, by=\) for the rows"),
        (lambda p, s: p.read("x", "/tmp/in.jsonl"), r"mean sources.jsonl\('/tmp/in.jsonl'\)\?"),
        (lambda p, s: p.read("x", Path("a.csv")), r"mean sources.csv\('a.csv'\)\?"),
        (lambda p, s: p.read("x", [1]), r"mean sources.memory"),
        (lambda p, s: s.write("/tmp/out"), r"did you mean sinks.jsonl\('/tmp/out'\)\?"),
        (lambda p, s: s.write("out.parquet"), r"mean sinks.parquet\('out.parquet'\)\?"),
        (lambda p, s: s.write(lambda rows, epoch: None), "mean sinks.foreach"),
        (lambda p, s: s.filter("n > 1"), r"or pc.field\(\"n\"\) > 1; text goes into sql"),
        (lambda p, s: s.split(lambda v: True), r"split\(errors=is_error, rest=None\)"),
    ],
)
def test_what_was_meant_is_told(build: Any, reason: str) -> None:
    p, s = begin()
    with pytest.raises(InvalidPipeline, match=reason):
        build(p, s)


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("groupBy", "key_by"), ("group_by", "key_by"), ("keyBy", "key_by"), ("process", "compute"),
        ("sum", "aggregate.sum=agg.sum"), ("foreach", "sinks.foreach"), ("flatMap", "flat_map"),
    ],
)  # fmt: skip
def test_a_step_by_its_name_elsewhere_is_told_by_ours(name: str, here: str) -> None:
    _, s = begin()
    for stream in (s, s.key_by("k")):
        with pytest.raises(AttributeError, match=f"no '{name}'; write .*{here}"):
            getattr(stream, name)
        assert not hasattr(stream, name) and not hasattr(stream, "nothing")
        assert copy.copy(stream).name == "in"


def test_streams_and_lists_of_columns_are_taken_as_they_are_meant() -> None:
    p, s = begin()
    s.key_by(["k", "v"]).count().named("pairs")
    p.compute(Counts, inputs={s: "k"}, outputs="by stream")
    with Harness(p) as h:
        h.send("in", row("a", 1), row("a", 2, 2))
        assert len(h.read("pairs")) == 2
        assert sorted(h.read("by stream")) == [1, 2]
