"""What newcomers try: odd values, keys and names. Each gives what one expects, or says why not."""

from __future__ import annotations

import datetime
import math
import random
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace import (
    Computation,
    InvalidPipeline,
    Pipeline,
    TableContext,
    UserCodeError,
    agg,
    same_window,
    sinks,
    sliding,
    sources,
    to,
    tumbling,
)
from headrace.operators.aggregates.distinct_approximate import DistinctApproximate
from headrace.operators.columns.groups import Groups
from headrace.testing import CRASH, Harness


def begin() -> tuple[Pipeline, Any]:
    p = Pipeline("newcomer")
    return p, p.read("in", sources.memory([], timestamp="t"))


def row(k: Any, t: int, v: Any = 1) -> dict[str, Any]:
    return {"k": k, "t": t, "v": v}


def aggregated(values: list[list[Any]], **aggregates: Any) -> dict[str, Any]:
    """The row of one window; each list of values is an epoch of its own."""
    p, s = begin()
    s.key_by("k").window(tumbling("1s")).aggregate(**aggregates)
    with Harness(p) as h:
        t = 0
        for epoch in values:
            h.send("in", *(row("a", t + i, value) for i, value in enumerate(epoch)))
            t += len(epoch)
        h.end()
        (found,) = h.read("in.aggregate")
    return {name: found[name] for name in aggregates}


# Aggregates ---------------------------------------------------------------


@pytest.mark.parametrize("cut", [False, True])
def test_lists_and_structs_are_collected_counted_and_folded(cut: bool) -> None:
    values = [{"x": 1}, {"x": 2, "y": [1, 2]}, None, {"x": 1}]
    full = [{"x": 1}, {"x": 2, "y": [1, 2]}, {"x": 1}]
    found = aggregated(
        [[value] for value in values] if cut else [values],
        all=agg.collect("v"),
        first=agg.first("v"),
        last=agg.last("v"),
        n=agg.count("v"),
        different=agg.distinct("v"),
        total=agg.fold(0, lambda a, v: a + v["x"], lambda a, b: a + b, column="v"),
    )
    assert found == {
        "all": full, "first": full[0], "last": full[0], "n": 3, "different": 2, "total": 4,
    }  # fmt: skip
    lists = [[[3], [1, 2]], [[3]]] if cut else [[[3], [1, 2], [3]]]
    found = aggregated(lists, all=agg.collect("v"), different=agg.distinct("v"))
    assert found == {"all": [[3], [1, 2], [3]], "different": 2}


def test_a_column_may_be_null_in_all_records_of_some_epochs() -> None:
    aggregates = {
        "max": agg.max("v"), "min": agg.min("v"), "first": agg.first("v"), "all": agg.collect("v"),
        "top": agg.top(1, "v"), "n": agg.distinct("v"), "about": agg.distinct("v", error=0.1),
    }  # fmt: skip
    wanted = dict(zip(aggregates, ("y", "x", "y", ["y", "x"], ["y"], 2, 2), strict=True))
    nothing = {**dict.fromkeys(aggregates), "all": [], "top": [], "n": 0, "about": 0}
    for cut in ([["y", None], [None], ["x"], [None]], [[None], ["y", "x"]], [["y"], ["x"], [None]]):
        assert aggregated(cut, **aggregates) == wanted
    assert aggregated([[None], [None]], **aggregates) == nothing
    p = Pipeline("newcomer")
    kinds = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.string())])
    s = p.read("in", sources.memory([], timestamp="t"), schema=kinds)
    s.key_by("k").window(sliding("5us")).aggregate(**aggregates)
    with Harness(p) as h:
        for t in (1, 2, 30):
            h.send("in", row("a", t, None))
        h.end()
        assert [{n: r[n] for n in nothing} for r in h.read("in.aggregate")] == [nothing] * 3


def test_quantiles_hold_their_error_at_the_ends_of_floats() -> None:
    values = [-math.inf, -1.7e308, -5e-320, 0.0, 1e-310, 1.7e308, math.inf, math.nan]
    shares = [i / 6 for i in range(7)]
    found = aggregated([values[:3], values[3:]], q=agg.quantiles("v", *shares))["q"]
    for value, about in zip(values, found, strict=False):
        assert about == value or math.isclose(about, value, rel_tol=0.011), (value, about)


def test_times_of_day_are_microseconds_as_other_times_are() -> None:
    p = Pipeline("newcomer")
    kinds = [("k", pa.string()), ("t", pa.int64()), ("v", pa.time64("us")), ("d", pa.date32()),
             ("m", pa.decimal128(20, 2)), ("b", pa.binary(2))]  # fmt: skip
    s = p.read("in", sources.memory([], timestamp="t"), schema=pa.schema(kinds))
    s.key_by("k").window(tumbling("1s")).aggregate(
        v=agg.max("v"), d=agg.min("d"), m=agg.sum("m"), b=agg.last("b"), n=agg.distinct("v")
    )
    with Harness(p) as h:
        for hour in (9, 7):
            h.send("in", {"k": "a", "t": hour, "v": datetime.time(hour), "b": b"xy",
                          "d": datetime.date(2026, 1, hour), "m": Decimal("0.25")})  # fmt: skip
        h.end()
        (found,) = h.read("in.aggregate")
    assert (found["v"], found["m"], found["b"], found["n"]) == (9 * 3600 * 10**6, 0.5, b"xy", 2)
    assert found["d"] == datetime.datetime(2026, 1, 7, tzinfo=datetime.UTC).timestamp() * 10**6


@pytest.mark.parametrize("kind", [pa.decimal128(20, 2), pa.decimal128(38, 6), pa.decimal256(60, 3)])
def test_sums_of_decimals_are_exact_and_rounded_once(kind: pa.DataType) -> None:
    dice = random.Random(str(kind))
    digits = [2, 5, kind.precision - 3]
    unscaled = [dice.randint(-(10 ** dice.choice(digits)), 10 ** digits[1]) for _ in range(30)]
    values = [Decimal(n).scaleb(-kind.scale, context=Context(prec=80)) for n in unscaled]
    p = Pipeline("newcomer")
    kinds = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", kind)])
    s = p.read("in", sources.memory([], timestamp="t"), schema=kinds)
    s.key_by("k").window(tumbling("1s")).aggregate(
        sum=agg.sum("v"), mean=agg.mean("v"), variance=agg.variance("v")
    )
    whole = Fraction(sum(unscaled), 10**kind.scale)
    squares = Fraction(sum(n * n for n in unscaled), 100**kind.scale)
    for cut in ([30], [1] * 30, [7, 1, 22]):
        with Harness(p) as h:
            t = 0
            for size in cut:
                h.send("in", *(row("a", i, values[i]) for i in range(t, t + size)))
                t += size
            h.end()
            (found,) = h.read("in.aggregate")
        assert found["sum"] == float(whole)
        assert found["mean"] == float(whole / 30)
        assert found["variance"] == float((30 * squares - whole * whole) / (30 * 29))


@dataclass
class Mean:
    n: int = 0
    total: int = 0


class Span(msgspec.Struct):
    low: int = 99
    high: int = 0


FOLDS: dict[str, Any] = {
    "a tuple": (
        agg.fold((0, 0), lambda a, v: (a[0] + v, a[1] + 1), lambda a, b: (a[0] + b[0], a[1] + b[1]),
                 lambda a: a[0] / a[1], column="v"), 2.0),
    "a set": (agg.fold(set(), lambda a, v: a | {v}, lambda a, b: a | b, len, column="v"), 3),
    "a dataclass": (
        agg.fold(Mean(), lambda a, v: Mean(a.n + 1, a.total + v),
                 lambda a, b: Mean(a.n + b.n, a.total + b.total), column="v"),
        {"n": 3, "total": 6}),
    "a struct": (
        agg.fold(Span(), lambda a, v: Span(min(a.low, v), max(a.high, v)),
                 lambda a, b: Span(min(a.low, b.low), max(a.high, b.high)),
                 lambda a: a.high - a.low, column="v"), 2),
    "a list changed in place": (
        agg.fold([], lambda a, v: a.append(v) or a, lambda a, b: a + b, sorted, column="v"),
        [1, 2, 3]),
    "nothing": (
        agg.fold(None, lambda a, v: max(a or 0, v), lambda a, b: max(a or 0, b or 0), column="v"),
        3),
}  # fmt: skip


@pytest.mark.parametrize("zero", FOLDS)
def test_a_fold_begins_with_whatever_can_be_encoded(zero: str) -> None:
    fold, wanted = FOLDS[zero]
    for values in ([[1, 3, 2]], [[3], [2], [1]]):
        assert aggregated(values, x=fold) == {"x": wanted}


@pytest.mark.parametrize(
    ("values", "aggregate", "reason"),
    [
        ([["x"]], agg.sum("v"), "column 'v' holds text .'x'., and agg.sum takes numbers"),
        ([["1"]], agg.quantiles("v", 0.5), "column 'v' holds text .'1'., and agg.quantiles takes"),
        ([[1]], agg.fold(0, lambda a, v: None, lambda a, b: a), "add returned None"),
        ([[1], [2]], agg.fold(0, lambda a, v: 1, lambda a, b: None), "merge returned None"),
        ([[1]], agg.fold([], lambda a, v: [(1, 2)], lambda a, b: a), "would come back"),
        ([[1]], agg.fold(0, lambda a, v: v["zz"], lambda a, b: a), "KeyError: 'zz'"),
    ],
)
def test_what_an_aggregate_cannot_take_is_told_with_its_column(
    values: list[list[Any]], aggregate: Any, reason: str
) -> None:
    with pytest.raises(UserCodeError, match=reason) as caught:
        aggregated(values, x=aggregate)
    assert "computation 'in.aggregate', key 'a'" in str(caught.value)
    assert "errors=to" in str(caught.value)


def test_a_zero_that_cannot_be_encoded_is_refused_while_building() -> None:
    with pytest.raises(InvalidPipeline, match="zero .* cannot be encoded"):
        agg.fold(object(), lambda a, v: a, lambda a, b: a)


class InTables(Computation):
    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        ctx.produce_table({"n": [table.num_rows]})


@pytest.mark.parametrize("name", ["key_index", "record_timestamp"])
def test_a_column_that_would_hide_the_engines_own_is_named(name: str) -> None:
    p, _ = begin()
    p.compute(InTables, inputs={"in": "k"}, outputs="out")
    with Harness(p) as h:
        h.send("in", {"k": "a", "t": 1, "timestamp": 5, name: 1})
        with pytest.raises(UserCodeError, match=f"a column '{name}'.*rename"):
            h.end()


@pytest.mark.parametrize("name", ["key_index", "record_timestamp"])
def test_a_step_without_a_key_does_not_mind_what_columns_are_called(name: str) -> None:
    p, s = begin()
    s.map_table(lambda table: table).named("out")
    s.select(name).named("chosen")
    with Harness(p) as h:
        h.send("in", row := {"k": "a", "t": 1, "timestamp": 5, name: 1})
        assert (h.read("out"), h.read("chosen")) == ([row], [{name: 1}])


@pytest.mark.parametrize("name", ["key_index", "record_timestamp", "key", "timestamp", "start"])
def test_a_window_does_not_mind_what_columns_are_called(name: str) -> None:
    p, s = begin()
    s.key_by("k").window(tumbling("1s")).aggregate(n=agg.count(), x=agg.max(name)).named("out")
    with Harness(p) as h:
        h.send("in", {"k": "a", "t": 1, name: 7}, {"k": "a", "t": 2, name: "x"})
        h.end()
        (found,) = h.read("out")
    assert (found["n"], found["x"]) == (2, "x")


# Keys ---------------------------------------------------------------------


def test_a_key_of_several_parts_goes_on_behind_a_window() -> None:
    p, s = begin()
    both = s.key_by(lambda v: (v["k"], v["v"])).window(tumbling("1s")).count()
    both.window(same_window()).aggregate(n=agg.sum("count")).named("unnamed")
    parts = s.key_by(who=lambda v: v["k"].upper(), what=lambda v: v["v"] * 2)
    parts.window(tumbling("1s")).count("m").named("parts").count().named("named")
    with Harness(p) as h:
        h.send("in", row("a", 1), row("a", 2, 2), row("a", 3))
        h.end()
        assert sorted(r["n"] for r in h.read("unnamed")) == [1, 2]
        assert [r for r in h.read("parts") if r["m"] == 2] == [
            {"who": "A", "what": 2, "window_start": 0, "window_end": 1_000_000, "m": 2}
        ]
        assert {(r["who"], r["what"]) for r in h.read("named")} == {("A", 2), ("A", 4)}


def test_a_key_named_like_a_windows_column_is_refused() -> None:
    _, s = begin()
    with pytest.raises(InvalidPipeline, match="called 'window_start'"):
        s.key_by("window_start").window(tumbling("1s")).count()
    s.key_by("window_start").window(same_window()).count()  # there it is the same


# Reduce -------------------------------------------------------------------


@dataclass
class Visits:
    pages: list[str] = field(default_factory=list)


def test_each_key_begins_with_its_own_copy_of_the_initial_state() -> None:
    def add(value: Any, state: Any) -> Any:
        (state if isinstance(state, list) else state.pages).append(value["v"])
        return state

    p, s = begin()
    s.key_by("k").reduce(add, [])
    s.key_by("k").reduce(add, Visits()).named("objects")
    s.key_by("k").reduce(lambda v, seen: seen | {v["v"]}, set()).named("sets")
    s.key_by("k").reduce(lambda v, two: (v["v"], two[0]), ("", "")).named("tuples")
    with Harness(p) as h:
        h.send("in", row("a", 1, "x"), row("b", 2, "y"), CRASH, row("a", 3, "z"))
        assert sorted(h.read("in.reduce")) == [["x"], ["x", "z"], ["y"]]
        assert h.state("objects", "a").folded == Visits(["x", "z"])
        assert h.state("sets", "a").folded == {"x", "z"}
        assert h.state("tuples", "a").folded == ("z", "x")


def test_reduce_forgets_keys_after_a_time() -> None:
    p, s = begin()
    s.key_by("k").reduce(lambda value, n: n + 1, 0, ttl="10us")
    with Harness(p) as h:
        h.send("in", row("a", 1))
        h.send("in", row("a", 9))
        h.send("in", CRASH, row("a", 30))
        assert h.read("in.reduce") == [1, 2, 1]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.key_by("k").reduce(max, 0, ttl=5), "ttl= needs a unit"),
        (lambda s: s.key_by("k").reduce(max, object()), "initial= cannot be encoded"),
        (lambda s: s.key_by("k").reduce(max, 0, tll="5s"), r"no option 'tll'.*there are: aliases"),
        (lambda s: s.map(str, error="stop"), "no option 'error' .did you mean 'errors'"),
        (lambda s: (s.split(map=None), s.map(str)), "a stream 'in.map' already, made by in.split"),
        (lambda s: (s.split(a=None), s.split(a=bool)), "a stream 'in.a' already"),
        (lambda s: (s.split(a=None), s.map(str).named("in.a")), "a stream 'in.a' already"),
        (lambda s: s.map(str).named("in"), "a stream 'in' already"),
        (lambda s: s.key_by("k", a=str), "not both"),
    ],
)
def test_names_and_options_that_cannot_be_are_told_at_once(build: Any, reason: str) -> None:
    _, s = begin()
    with pytest.raises(InvalidPipeline, match=reason):
        build(s)


def test_a_state_that_would_come_back_as_another_is_refused_with_advice() -> None:
    p, s = begin()
    s.key_by("k").reduce(lambda value, _: (1, 2), None)
    with Harness(p) as h, pytest.raises(UserCodeError, match="give such an initial= too"):
        h.send("in", row("a", 1))
        h.settle()


def test_a_stream_may_be_split_twice() -> None:
    p, s = begin()
    s.split(small=lambda r: r["v"] < 2)
    s.split(large=lambda r: r["v"] >= 2, none=None)
    with Harness(p) as h:
        h.send("in", row("a", 1), row("b", 2, 2))
        assert [len(h.read(f"in.{name}")) for name in ("small", "large", "none")] == [1, 1, 1]


# Records as they come -----------------------------------------------------


def test_a_column_that_some_records_lack_is_null_whoever_comes_with_them() -> None:
    p, s = begin()
    s.filter((pc.field("w") > 1) | (pc.utf8_upper(pc.field("x")) == "A")).named("filtered")
    s.select("k", more=pc.field("w") + 1, loud=pc.utf8_upper(pc.field("x"))).named("selected")
    s.sql("SELECT k, w + 1 AS more, upper(x) AS loud FROM stream").named("queried")
    records = [{"k": "a", "t": 1}, {"k": "b", "t": 2, "w": 5}, {"k": "c", "t": 3, "x": "a"}]
    for cut in ([records], [[record] for record in records]):
        with Harness(p) as h:
            for epoch in cut:
                h.send("in", *epoch)
            h.end()
            assert [r["k"] for r in h.read("filtered")] == ["b", "c"]
            for name in ("selected", "queried"):
                found = [(r["k"], r["more"], r["loud"]) for r in h.read(name)]
                assert found == [("a", None, None), ("b", 6, None), ("c", None, "A")]


def test_streams_of_one_class_are_united_as_that_class() -> None:
    p = Pipeline("newcomer")
    a, b = (p.read(name, sources.memory([]), schema=Visits) for name in "ab")
    a.union(b).map(lambda visits: type(visits).__name__).named("kinds")
    with Harness(p) as h:
        h.send("a", {"pages": ["x"]})
        h.send("b", {"pages": []})
        assert h.read("kinds") == ["Visits", "Visits"]


def with_times(kind: Any) -> Any:
    return lambda t: t.drop(["timestamp"]).append_column("timestamp", pa.nulls(len(t), kind))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.flat_map(lambda v: None), "flat_map: the function returned None"),
        (lambda s: s.map_table(with_times(pa.int64())), "'timestamp' is int64 with 1 nulls"),
        (lambda s: s.map_table(with_times(pa.string())), "'timestamp' is string"),
        (lambda s: s.map_table(lambda t: [1]), "returned list, not an Arrow table"),
        (lambda s: s.key_by().window(same_window()).count(), "needs rows that come from a window"),
        (lambda s: s.key_by().top(1, by="v", id="zz"), "no value in 'zz' to know it by"),
    ],
)
def test_what_a_record_cannot_give_is_told(build: Any, reason: str) -> None:
    p, s = begin()
    build(s)
    with Harness(p) as h, pytest.raises(UserCodeError, match=reason):
        h.send("in", {**row("a", 1), "window_start": 1, "window_end": None})
        h.settle()


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.union(begin()[1].map(str)), "'in.map' belongs to another pipeline"),
        (lambda s: s.key_by("k").join(begin()[1].key_by("k")), "belongs to another pipeline"),
        (lambda s: s.union("other"), "takes streams"),
        (lambda s: s.key_by("k").window(tumbling("1s"), late=to("in.count")).count(), "own rows"),
        (lambda s: s.key_by("k").aggregate(agg.count()), "give each a name"),
        (lambda s: s.key_by("k", "k"), "each column has a name, and once"),
        (lambda s: s.key_by(""), "each column has a name"),
        (lambda s: agg.distinct("v", error="x"), "error="),
        (lambda s: agg.quantiles("v", "x"), "shares from 0 to 1"),
    ],
)
def test_what_makes_no_sense_is_told_while_building(build: Any, reason: str) -> None:
    _, s = begin()
    with pytest.raises(InvalidPipeline, match=reason):
        build(s)


def test_a_window_asks_what_to_compute() -> None:
    _, s = begin()
    with pytest.raises(AttributeError, match=r"say what to compute over each window: .count"):
        s.key_by("k").window(tumbling("1s")).map(str)


@pytest.mark.parametrize("bits", [7, 9])
def test_the_error_of_an_approximate_count_is_the_one_named_at_every_size(bits: int) -> None:
    """Between small and large numbers, where HyperLogLog is known to be biased, too."""
    dice, size = np.random.default_rng(bits), 2**bits
    aggregate = DistinctApproximate("v", bits=bits)
    for n in (1, size // 4, size, 5 * size // 2, 4 * size, 20 * size):
        errors = []
        for _ in range(100):
            values = pa.array(dice.integers(-(2**62), 2**62, n))
            (found,) = aggregate.start_values(values, None, Groups(np.zeros(n, np.int64), 1))
            errors.append(aggregate.finish([found])[0].as_py() / n - 1)
        assert math.sqrt(np.mean(np.square(errors))) <= 1.15 * 1.04 / math.sqrt(size), n


def test_a_stream_is_split_by_expressions_in_columns() -> None:
    p, s = begin()
    s.split(many=pc.field("v") > 1, some=pc.field("v") > 0, rest=None)
    with Harness(p) as h:
        h.send("in", row("a", 1, 5), row("b", 2, 1), row("c", 3, None), row("d", 4, 0))
        found = {name: [r["k"] for r in h.read(f"in.{name}")] for name in ("many", "some", "rest")}
        assert found == {"many": ["a"], "some": ["b"], "rest": ["c", "d"]}
    assert p.freeze().depth == 0


def test_queries_see_the_time_of_records_and_name_columns_once() -> None:
    p, s = begin()
    s.sql("SELECT k, timestamp + 1 AS after FROM stream")
    with Harness(p) as h:
        h.send("in", row("a", 7))
        assert h.read("in.sql") == [{"k": "a", "after": 8}]


def test_rows_of_a_side_input_need_not_all_have_the_same_columns() -> None:
    p, s = begin()
    s.lookup([{"k": "a"}, {"k": "b", "city": "Ulm"}], on="k")
    with Harness(p) as h:
        h.send("in", row("a", 1), row("b", 2))
        assert [r["city"] for r in h.read("in.lookup")] == [None, "Ulm"]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.split(a=pc.field("v") > 1, b=bool), "then all others must be too"),
        (lambda s: s.split(a="v > 1"), "a= takes a function"),
        (lambda s: s.lookup([1], on="k"), "are dicts, not 1"),
        (lambda s: s.lookup([{"k": 1}, {"k": "x"}], on="k"), "no table"),
        (lambda s: s.sql(""), "takes a query"),
        (lambda s: s.sql("SELECT k, v AS k FROM stream"), "two columns are called 'k'"),
        (lambda s: s.map(dict).write(sinks.memory()).named("x"), "the sink 'in.map' takes"),
    ],
)
def test_what_a_step_cannot_take_is_told(build: Any, reason: str) -> None:
    _, s = begin()
    with pytest.raises(InvalidPipeline, match=reason):
        build(s)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.filter(pc.field("v")), "filter: v gives int64, not true or false"),
        (lambda s: s.sql("SELECT *, v AS k FROM stream"), "two columns are called 'k'"),
    ],
)
def test_what_an_expression_cannot_be_is_told_with_the_first_record(
    build: Any, reason: str
) -> None:
    p, s = begin()
    build(s)
    with Harness(p) as h, pytest.raises(UserCodeError, match=reason):
        h.send("in", row("a", 1))
        h.settle()


def test_a_parameter_called_options_is_refused_by_name() -> None:
    class Priced(Computation):
        def __init__(self, options: dict[str, int]) -> None:
            self.options = options

        def process_record(self, record: Any, ctx: Any) -> None:
            ctx.produce(self.options)

    p, _ = begin()
    with pytest.raises(InvalidPipeline, match="'options', which is a name of Computation itself"):
        p.compute(Priced({"tea": 3}), inputs={"in": None}, outputs="out")
