"""Values and keys of several kinds: what comes of a key is a function of its own records alone.

Every key here has its own pair of values, and all of them are neighbours in one slot. The
answers must be those of a plain Python model, in one epoch, cut by record, and in many slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from headrace import Pipeline, agg, hopping, session, sliding, sources, to, tumbling, whole
from headrace.model.values.kinds import ordered
from headrace.testing import CRASH, Harness

VALUES: list[Any] = [
    None, False, True, 2, 2.0, 2.5, 2**53 + 1, 2**63, 2**70, -(2**70), -0.0, 0.0, math.nan,
    math.inf, 1e200, "", "text", "2", b"bytes", b"text", [1, "a"], [], {"a": 1}, {"a": "x"},
]  # fmt: skip
PAIRS = [(f"{i}-{j}", v, w) for i, v in enumerate(VALUES) for j, w in enumerate(VALUES)]
CUTS = pytest.mark.parametrize(
    ("cut", "slots"), [(False, 1), (True, 1), (True, 4)], ids=["one epoch", "cut", "slots"]
)


def run(
    build: Callable[[Any], Any], records: list[dict[str, Any]], cut: bool, slots: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of "out" and dead letters; cut, each half of the records is an epoch."""
    p = Pipeline("kinds")
    build(p.read("in", sources.memory([], timestamp="t")))
    half = len(records) // 2
    with Harness(p, slots=slots, twice=False) as h:
        for part in [records[:half], records[half:]] if cut else [records]:
            h.send("in", *part)
            if cut:
                h.send("in", CRASH)
        h.end()
        return h.read("out"), (h.read("dead") if "dead" in h._outputs else [])


def pairs() -> list[dict[str, Any]]:
    """The first value of all keys, then the second."""
    firsts = [{"k": key, "t": 1, "v": v} for key, v, _ in PAIRS]
    return firsts + [{"k": key, "t": 2, "v": w} for key, _, w in PAIRS]


def by_key(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["k"]: repr({n: v for n, v in row.items() if n != "k"}) for row in rows}


@CUTS
def test_any_two_values_have_one_answer_whoever_stands_beside_them(cut: bool, slots: int) -> None:
    def build(s: Any) -> None:
        s.key_by("k").window(whole()).aggregate(
            n=agg.count("v"), lo=agg.min("v"), hi=agg.max("v"), first=agg.first("v"),
            last=agg.last("v"), all=agg.collect("v"), top=agg.top(1, "v"), d=agg.distinct("v"),
            about=agg.distinct("v", error=0.05),
        ).named("out")  # fmt: skip

    def answer(v: Any, w: Any) -> dict[str, Any]:
        there = [x for x in (v, w) if x is not None]
        least = sorted(there, key=ordered)
        different = len(set(map(ordered, there)))
        return {
            "n": len(there), "lo": least[0] if there else None, "hi": least[-1] if there else None,
            "first": there[0] if there else None, "last": there[-1] if there else None,
            "all": there, "top": least[-1:], "d": different, "about": different,
        }  # fmt: skip

    rows, _ = run(build, pairs(), cut, slots)
    assert by_key(rows) == {key: repr(answer(v, w)) for key, v, w in PAIRS}


@CUTS
def test_what_cannot_be_added_is_a_dead_letter_and_the_rest_is_exact(cut: bool, slots: int) -> None:
    def build(s: Any) -> None:
        s.key_by("k").window(whole()).aggregate(
            n=agg.count(), s=agg.sum("v"), m=agg.mean("v"), var=agg.variance("v"),
            sd=agg.stddev("v", population=True), q=agg.quantiles("v", 0.0),
            errors=to("dead"),
        ).named("out")  # fmt: skip

    rows, dead = run(build, pairs(), cut, slots)
    found = {row["k"]: row for row in rows}
    wanted_dead = []
    for key, v, w in PAIRS:
        taken = [x for x in (v, w) if x is None or isinstance(x, int | float)]
        bad = [x for x in (v, w) if not (x is None or isinstance(x, int | float))]
        wanted_dead += [(key, repr(x)) for x in bad]
        if not taken:
            assert key not in found
            continue
        numbers = [x for x in taken if x is not None]
        assert found[key]["n"] == len(taken)
        check_numbers(found[key], numbers)
    assert sorted((d["key"], repr(d["value"]["v"])) for d in dead) == sorted(wanted_dead)
    assert all("and agg.sum takes numbers" in letter["error"] for letter in dead)


def check_numbers(row: dict[str, Any], numbers: list[Any]) -> None:
    if not numbers:
        assert [row[name] for name in ("s", "m", "var", "sd", "q")] == [None] * 5
        return
    if not all(map(math.isfinite, (n for n in numbers if isinstance(n, float)))):
        assert repr(row["s"]) == repr(math.fsum(n for n in numbers if isinstance(n, float)))
        assert math.isnan(row["sd"])
        return
    total = sum(map(Fraction, numbers))
    if any(isinstance(n, float) for n in numbers):
        assert repr(row["s"]) == repr(float(total))
    else:
        assert repr(row["s"]) == repr(int(total))
    assert repr(row["m"]) == repr(float(total / len(numbers)))
    if len(numbers) < 2:
        assert row["var"] is None and row["sd"] == 0.0
    else:
        mean = total / len(numbers)
        spread = sum((Fraction(n) - mean) ** 2 for n in numbers)
        try:
            assert row["var"] == float(spread)
        except OverflowError:
            assert row["var"] == math.inf
        assert math.isclose(row["sd"], math.sqrt(spread / 2) if spread < 1e300 else row["sd"])
        assert math.isfinite(row["sd"])


def test_a_sum_of_integers_stays_exact_beside_any_other_sum() -> None:
    records = [
        {"k": "mine", "t": 1, "v": 2**53 + 1}, {"k": "float", "t": 1, "v": 0.5},
        {"k": "big", "t": 1, "v": 2**63 - 1}, {"k": "big", "t": 2, "v": 2**63 - 1},
    ]  # fmt: skip

    def build(s: Any) -> None:
        s.key_by("k").window(tumbling("10us")).aggregate(y=agg.sum("v")).named("out")

    rows, _ = run(build, records, False, 1)
    found = {row["k"]: repr(row["y"]) for row in rows}
    assert found == {"mine": repr(2**53 + 1), "float": "0.5", "big": repr(2**64 - 2)}


@pytest.mark.parametrize(
    "values", [[1e200, 1.0], [1e155, -1e155], [1e308, -1e308], [1e308] * 20, [-(2**2000), 1.5]]
)
def test_what_is_too_large_for_a_float_is_infinite_and_closes_its_window(values: Any) -> None:
    records = [{"k": "u", "t": 1, "v": v} for v in values]

    def build(s: Any) -> None:
        s.key_by("k").window(tumbling("10us")).aggregate(
            s=agg.sum("v"), m=agg.mean("v"), var=agg.variance("v"), sd=agg.stddev("v"),
            q=agg.quantiles("v", 0.0, 1.0),
        ).named("out")  # fmt: skip

    for cut in (False, True):
        (row,) = run(build, records, cut, 1)[0]
        total = sum(map(Fraction, values))
        try:
            wanted = float(total)
        except OverflowError:
            wanted = math.inf if total > 0 else -math.inf
        assert row["s"] == wanted
        assert row["var"] == (0.0 if len(set(values)) == 1 else math.inf)
        assert row["sd"] >= 0.0


# Columns that nobody reads ----------------------------------------------------

ODD = {
    "number and text": [{"x": 1}, {"x": "a"}],
    "true and 2": [{"x": True}, {"x": 2}],
    "more than 64 bits": [{"x": -1}, {"x": 2**63}],
    "a mixed list": [{"x": [1, "a"]}, {}],
    "structs of two kinds": [{"x": {"a": 1}}, {"x": {"a": "b"}}],
    "the engine's own names": [{"key_index": 7, "timestamp": 5, "key": 1}, {}],
    "a name that is a number": [{5: 1}, {}],
}


@pytest.mark.parametrize("odd", ODD)
@CUTS
def test_a_column_that_nobody_reads_does_not_stop_a_count(odd: str, cut: bool, slots: int) -> None:
    records = [{"k": "u", "t": 1, **more} for more in ODD[odd]]
    for window in (whole(), tumbling("10us"), session("3us"), sliding("3us")):

        def build(s: Any, window: Any = window) -> None:
            s.key_by("k").window(window).count(errors=to("dead")).named("out")

        rows, dead = run(build, records, cut, slots)
        assert rows[-1]["count"] == 2 and not dead


# Keys of several kinds --------------------------------------------------------

KEYS: list[list[Any]] = [
    [5, "text"], ["1", 1], [-1, 2**63], [2**64 - 1], [b"x", "x"], [b"x", 1, "a", -(2**63)],
]  # fmt: skip
STEPS: dict[str, Callable[[Any], Any]] = {
    "count": lambda s: s.key_by("k").count(),
    "tumbling": lambda s: s.key_by("k").window(tumbling("10us")).count(),
    "hopping": lambda s: s.key_by("k").window(hopping("10us", every="5us")).count(),
    "session": lambda s: s.key_by("k").window(session("3us"), emit="changes").count(),
    "sliding": lambda s: s.key_by("k").window(sliding("3us")).count(),
    "two parts": lambda s: s.key_by(lambda v: (v["k"], 1)).window(tumbling("10us")).count(),
    "two columns": lambda s: s.key_by("k", "n").window(tumbling("10us")).count(),
    "window top": lambda s: s.key_by("k").window(tumbling("10us")).top(1, by="n"),
    "session top": lambda s: s.key_by("k").window(session("3us"), emit="changes").top(1, by="n"),
    "top by id": lambda s: s.key_by("k").top(1, by="n", id="n"),
    "top with such ids": lambda s: s.key_by().top(9, by="k", id="k"),
    "dedup": lambda s: s.dedup("k", within="1us"),
    "reduce": lambda s: s.key_by("k").reduce(lambda v, n: n + 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
def test_keys_of_several_kinds_stand_side_by_side(step: str) -> None:
    def build(s: Any) -> None:
        STEPS[step](s).named("out")

    for keys in KEYS:
        records = [{"k": k, "t": 2 * i + 1, "n": i} for i, k in enumerate(keys)]
        rows, _ = run(build, records, False, 1)
        others, _ = run(build, records, False, 4)
        assert sorted(map(repr, rows)) == sorted(map(repr, others))
        if step in ("count", "tumbling", "top by id", "dedup", "window top"):
            assert sorted(map(repr, (row["k"] for row in rows))) == sorted(map(repr, keys))
        if step == "two parts":
            assert {repr(row["key"]["part_0"]) for row in rows} == set(map(repr, keys))
        if step == "top with such ids":
            last = {row["rank"]: row["k"] for row in rows}
            best = sorted(keys, key=ordered, reverse=True)
            assert [repr(last[i + 1]) for i in range(len(keys))] == list(map(repr, best))


# Top --------------------------------------------------------------------------


@CUTS
def test_rows_are_ranked_over_kinds_and_keep_their_own_columns(cut: bool, slots: int) -> None:
    values = [v for v in VALUES if v is not None]
    records = [{"k": "u", "t": 1, "v": v, f"only {i}": v} for i, v in enumerate(values)]

    def build(s: Any) -> None:
        s.key_by("k").window(tumbling("10us")).top(40, by="v").named("out")

    rows, _ = run(build, records, cut, slots)
    best = sorted(records, key=lambda r: ordered(r["v"]), reverse=True)
    window = {"window_start": 0, "window_end": 10}
    assert [repr(row) for row in rows] == [
        repr({**record, **window, "rank": i + 1}) for i, record in enumerate(best)
    ]


@CUTS
def test_rows_that_replace_each_other_are_ranked_over_kinds_too(cut: bool, slots: int) -> None:
    values = [v for v in VALUES if v is not None]
    records = [{"k": "u", "t": 1, "v": None, "id": v, "only": i} for i, v in enumerate(values)]
    records += [{"k": "u", "t": 2, "v": v, "id": v} for v in values]

    def build(s: Any) -> None:
        s.key_by("k").top(40, by="v", id="id").named("out")

    rows, _ = run(build, records, cut, slots)
    best = sorted(values, key=ordered, reverse=True)
    assert [repr(row) for row in rows[-len(values) :]] == [
        repr({"k": "u", "t": 2, "v": v, "id": v, "rank": i + 1}) for i, v in enumerate(best)
    ]


def test_sessions_that_grow_withdraw_rows_of_mixed_lists() -> None:
    values = ["a", 2**60, 0.5]
    records = [{"k": "u", "t": 2 * i, "v": v} for i, v in enumerate(values)]

    def build(s: Any) -> None:
        windows = s.key_by("k").window(session("5us"), emit="changes")
        windows.aggregate(all=agg.collect("v"), hi=agg.max("v")).named("out")

    p = Pipeline("kinds")
    build(p.read("in", sources.memory([], timestamp="t")))
    with Harness(p) as h:
        for record in records:
            h.send("in", record)
        h.end()
        rows = h.read("out")
    assert [(row["all"], row["hi"]) for row in rows] == [
        (["a"], "a"), (None, None), (["a", 2**60], "a"), (None, None), (values, "a"),
    ]  # fmt: skip
