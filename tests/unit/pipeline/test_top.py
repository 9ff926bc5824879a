"""Top rows: per closed window, and over rows that replace each other."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace import InvalidPipeline, Pipeline, UserCodeError, session, sources, tumbling
from headrace.testing import CRASH, Harness


def changing(**key: Any) -> Pipeline:
    p = Pipeline("top")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.key_by(*key.get("columns", ())).top(3, by="n", id="name")
    return p


def latest(rows: list[dict[str, Any]]) -> list[tuple[int, str, int]]:
    """The last list that was sent."""
    last = max(i for i, row in enumerate(rows) if row["rank"] == 1)
    return [(row["rank"], row["name"], row["n"]) for row in rows[last:]]


@pytest.mark.parametrize("seed", range(4))
def test_the_list_follows_rows_that_rise_and_fall(seed: int):
    dice = random.Random(seed)
    now: dict[str, int] = {}
    with Harness(changing()) as h:
        for t in range(12):
            names = dice.sample([f"n{i:02}" for i in range(40)], dice.randint(1, 12))
            rows = [{"name": name, "n": dice.randint(0, 50), "t": t} for name in names]
            now.update({row["name"]: row["n"] for row in rows})
            h.send("in", *rows, *([CRASH] if dice.random() < 0.3 else []))
            best = sorted(now.items(), key=lambda item: (-item[1], item[0]))[:3]
            wanted = [(rank, name, n) for rank, (name, n) in enumerate(best, 1)]
            assert latest(h.read("in.top")) == wanted


def test_each_key_has_its_own_list():
    with Harness(changing(columns=("country",))) as h:
        h.send("in", *({"country": c, "name": f"{c}{i}", "n": i, "t": 1}
                       for c in ("de", "fr") for i in range(5)))  # fmt: skip
        found = [(r["country"], r["rank"], r["name"]) for r in h.read("in.top")]
    assert sorted(found) == [
        ("de", 1, "de4"), ("de", 2, "de3"), ("de", 3, "de2"),
        ("fr", 1, "fr4"), ("fr", 2, "fr3"), ("fr", 3, "fr2"),
    ]  # fmt: skip


def test_top_of_a_window_keeps_a_column_called_key():
    p = Pipeline("top")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.key_by().window(tumbling("10us")).top(1, by="n")
    with Harness(p) as h:
        h.send("in", {"n": 1, "t": 1, "key": "x"}, {"n": 2, "t": 2, "key": "y"})
        h.end()
        assert h.read("in.top") == [
            {"n": 2, "t": 2, "key": "y", "window_start": 0, "window_end": 10, "rank": 1}
        ]


def test_all_parts_of_a_named_top_bear_its_name():
    p = changing()
    p.stream("in").key_by().top(3, by="n", id="name").named("second")
    names = [n for n in p.freeze().graph.nodes if not n.startswith("in.top")]
    assert sorted(names) == ["second", "second.best", "second.dealt"]


def standing(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What somebody holds who keeps the newest row of each rank."""
    held = {row["rank"]: row for row in rows}
    return [(r, row["name"], row["n"]) for r, row in sorted(held.items()) if row["n"] is not None]


def test_rows_without_a_value_leave_the_list_and_the_list_says_so():
    with Harness(changing()) as h:
        h.send("in", *({"name": name, "n": n, "t": 1} for name, n in (("a", 1), ("b", 2))))
        h.send("in", {"name": "b", "n": None, "t": 2}, CRASH)
        assert standing(h.read("in.top")) == [(1, "a", 1)]
        h.send("in", {"name": "a", "n": None, "t": 3})
        assert standing(h.read("in.top")) == []
        h.send("in", {"name": "c", "n": 0, "t": 4})
        assert standing(h.read("in.top")) == [(1, "c", 0)]


@pytest.mark.parametrize("seed", range(3))
def test_of_rows_out_of_order_the_newest_counts_however_they_are_cut(seed: int):
    dice = random.Random(seed)
    rows = [
        {"name": dice.choice("abcdef"), "n": dice.choice([None, 1, 2, 3, 4]),
         "t": 10 * i + dice.randint(0, 60)}
        for i in range(40)
    ]  # fmt: skip
    newest: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: row["t"]):
        newest[row["name"]] = row["n"]
    best = sorted((-n, name) for name, n in newest.items() if n is not None)[:3]
    wanted = [(rank, name, -n) for rank, (n, name) in enumerate(best, 1)]
    for cuts in ([], sorted(dice.sample(range(40), 6)), list(range(40))):
        p = Pipeline("top")
        s = p.read("in", sources.memory([], timestamp="t", lateness="60us"))
        s.key_by().top(3, by="n", id="name")
        with Harness(p) as h:
            for start, end in zip([0, *cuts], [*cuts, 40], strict=True):
                h.send("in", *rows[start:end])
            h.end()
            assert standing(h.read("in.top")) == wanted


def test_sessions_that_merge_leave_the_list_of_the_longest_ones():
    p = Pipeline("top")
    s = p.read("in", sources.memory([], timestamp="t"))
    visits = s.key_by("user").window(session("10us"), grace="1s", emit="changes").count("n")
    visits.key_by().top(2, by="n", id=("user", "window_start", "window_end"))
    with Harness(p) as h:
        h.send("in", *({"user": "ada", "t": t} for t in (1, 2, 20, 21, 22)))
        h.send("in", {"user": "bob", "t": 5})
        assert [r["n"] for r in h.read("in.count.top")][-2:] == [3, 2]
        h.send("in", {"user": "ada", "t": 11}, CRASH)
        held = {r["rank"]: (r["user"], r["n"]) for r in h.read("in.count.top")}
        assert held == {1: ("ada", 6), 2: ("bob", 1)}


def test_nan_is_the_largest_and_equal_to_itself():
    nan = float("nan")
    p = Pipeline("top")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.key_by().window(tumbling("10us")).top(2, by="n", ties=True)
    s.key_by().top(2, by="n", id="name").named("changing")
    p.stream("in").key_by().top(2, by="n", id=("name", "t")).named("pairs")
    rows = [{"name": name, "n": n, "t": 1} for name, n in
            (("a", nan), ("b", None), ("c", 5.0), ("d", nan), ("e", nan))]  # fmt: skip
    with Harness(p) as h:
        h.send("in", *rows[:2])
        h.send("in", *rows[2:])
        h.end()
        assert [(r["name"], r["rank"]) for r in h.read("changing")[-2:]] == [("a", 1), ("d", 2)]
        assert [(r["name"], r["rank"]) for r in h.read("pairs")[-2:]] == [("a", 1), ("d", 2)]
        assert [(r["name"], r["rank"]) for r in h.read("in.top")] == [("a", 1), ("d", 1), ("e", 1)]


def test_ids_are_of_any_kind_and_a_missing_one_is_named():
    with Harness(changing()) as h:
        h.send("in", *({"name": name, "n": n, "t": 1} for n, name in enumerate((b"\xff", b"\xfe"))))
        assert [r["name"] for r in h.read("in.top")] == [b"\xfe", b"\xff"]
    with Harness(changing()) as h, pytest.raises(UserCodeError, match="no value in 'name'"):
        h.send("in", {"nmae": "a", "n": 1, "t": 1})
        h.settle()


ROWS = [
    {"name": name, "n": n, "at": at, "t": 1}
    for name, n, at in (
        ("a", 5, 3), ("b", 5, 2), ("c", 7, 9), ("d", 5, 2), ("e", None, 1), ("f", 1, None),
        ("g", 5, 1),
    )
]  # fmt: skip


def ranked_by(by: Any, n: int, cut: int, rows: list[Any] = ROWS, **options: Any) -> list[Any]:
    p = Pipeline("top")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.key_by().window(tumbling("10us")).top(n, by=by, **options)
    with Harness(p) as h:
        h.send("in", *rows[:cut])
        h.send("in", *rows[cut:], CRASH)
        h.end()
        return [(row["rank"], row["name"]) for row in h.read("in.top")]


@pytest.mark.parametrize("cut", [0, 3, 7])
def test_rows_are_ranked_by_several_columns_the_largest_or_the_smallest_first(cut: int) -> None:
    assert ranked_by(("n", "-at"), 4, cut) == [(1, "c"), (2, "g"), (3, "b"), (3, "d")]
    assert ranked_by(("n", "at"), 2, cut) == [(1, "c"), (2, "a")]
    assert ranked_by("-n", 1, cut) == [(1, "f")]
    assert ranked_by(("-n", "at"), 2, cut) == [(1, "f"), (2, "a")]
    assert ranked_by(("n", "-at", "-name"), 4, cut, numbered=True) == [
        (1, "c"), (2, "g"), (3, "b"), (4, "d"),
    ]  # fmt: skip
    assert ranked_by(("n", "-at"), 3, cut, ties=True) == [(1, "c"), (2, "g"), (3, "b"), (3, "d")]


@pytest.mark.parametrize("cut", [0, 2, 5])
def test_columns_of_mixed_kinds_keep_the_order_over_kinds_in_every_column(cut: int) -> None:
    values: list[Any] = [None, -0.0, 0.0, -(2**70), 2**70, "", "a", "a\x00", "a\x00b", "ab", [1]]
    rows = [{"name": str(i), "n": 1, "at": v, "t": 1} for i, v in enumerate(values)]
    up = [3, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    dice = random.Random(cut)
    shuffled = dice.sample(rows, len(rows))
    found = ranked_by(("n", "-at"), len(rows), cut, shuffled)
    assert found == [(rank, str(i)) for rank, i in enumerate([0, *up], 1)]
    found = ranked_by(("n", "at"), len(rows), cut, shuffled)
    assert found == [(rank, str(i)) for rank, i in enumerate([*reversed(up), 0], 1)]


def test_equal_rows_have_ranks_of_their_own_where_rows_are_numbered() -> None:
    twice = [{"name": "x", "n": 1, "t": 1}, {"name": "x", "n": 1, "t": 1}]
    assert ranked_by("n", 3, 1, twice, numbered=True) == [(1, "x"), (2, "x")]
    assert ranked_by("n", 3, 1, twice) == [(1, "x"), (1, "x")]


@pytest.mark.parametrize("by", [(), ("n", 1), "-", ("n", ""), ["n"], None])
def test_columns_to_rank_by_are_names(by: Any) -> None:
    p = Pipeline("top")
    s = p.read("in", sources.memory([], timestamp="t"))
    with pytest.raises(InvalidPipeline, match="by= names a column, or several"):
        s.key_by().window(tumbling("10us")).top(1, by=by)


def test_a_column_to_rank_by_that_is_not_there_is_found_when_the_pipeline_is_built() -> None:
    p = Pipeline("top")
    s = p.read("in", sources.memory([{"n": 1, "at": 1}], timestamp="at"))
    with pytest.raises(InvalidPipeline, match="price"):
        s.key_by().window(tumbling("10us")).top(1, by=("n", "-price"))
