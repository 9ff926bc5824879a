"""What random pipelines over records of mixed kinds have found, each as small as it can be."""

from collections import Counter
from typing import Any

import pyarrow.compute as pc

from headrace import Pipeline, agg, every, interval, session, sources, to, tumbling, whole
from headrace.testing import Harness

DEAD = to("dead")


def source(p: Pipeline) -> Any:
    return p.read("in", sources.memory([], timestamp="t", lateness="8us"), errors=DEAD)


def test_a_row_that_waited_is_not_late_for_the_window_behind_it_when_the_input_ends() -> None:
    p = Pipeline("waited")
    counts = source(p).key_by("k").window(whole(), emit=every(2)).count("a", errors=DEAD)
    counts.key_by("k").window(tumbling("5us")).count("b").named("out")
    with Harness(p) as h:
        h.send("in", {"k": "a", "t": 0}, {"k": "b", "t": 20}, {"k": "b", "t": 20})
        h.end()
        assert {row["k"] for row in h.read("out")} == {"a", "b"}
        assert h.counts["late"] == 0


def test_rows_with_names_that_are_no_text_are_joined() -> None:
    p = Pipeline("names")
    stream = source(p)
    left, right = (stream.filter(lambda v, s=s: v["s"] == s).named(f"{s}") for s in "lr")
    left.key_by("k").join(
        right.key_by("k"), within=interval("0us", "5us"), how="full",
        select=lambda a, b: {"a": a, "b": b}, errors=DEAD,
    ).named("out")  # fmt: skip
    with Harness(p) as h:
        h.send("in", {"k": "a", "t": 1, "s": "r", 5: 0})
        h.end()
        assert h.read("out") == [{"a": None, "b": {"k": "a", "t": 1, "s": "r", 5: 0}}]


def test_sql_says_the_same_of_a_record_alone_and_among_others() -> None:
    deep: Any = b"x"
    for _ in range(3):
        deep = [{"a": [deep]}]
    records = [{"t": i, "v": 0.0, "x": {"a": deep}} for i in range(2)]

    def errors(*batches: list[Any]) -> list[str]:
        p = Pipeline("sql")
        source(p).sql("SELECT t FROM stream WHERE v = x", errors=DEAD)
        with Harness(p) as h:
            for batch in batches:
                h.send("in", *batch)
            h.end()
            return [letter["error"] for letter in h.read("dead")]

    together = errors(records)
    assert len(together) == 2
    assert together == errors(*([record] for record in records))


def test_a_record_with_two_faults_has_the_same_one_told_alone_and_among_others() -> None:
    records = [{"t": 0, "w": 2**53 + 1, "v": 0.5, "x": b""}, {"t": 0, "w": 0, "v": 0.5, "x": b""}]

    def errors(*batches: list[Any]) -> list[str]:
        p = Pipeline("select")
        both = {"a": pc.add_checked(pc.field("w"), pc.field("v")), "b": pc.divide(pc.field("x"), 2)}
        source(p).select(**both, errors=DEAD)
        with Harness(p) as h:
            for batch in batches:
                h.send("in", *batch)
            h.end()
            return [letter["error"] for letter in h.read("dead")]

    together = errors(records)
    assert len(together) == 2
    assert together == errors(*([record] for record in records))


def test_sums_over_lists_of_which_none_is_left_end() -> None:
    p = Pipeline("none left")
    lists = source(p).key_by("k").window(tumbling("5us")).aggregate(a=agg.top(2, "v"))
    lists.key_by("k").aggregate(b=agg.sum("a"), errors=DEAD).named("out")
    with Harness(p) as h:
        h.send("in", {"k": "a", "t": 0, "v": "x"})
        h.end()
        assert [letter["value"]["a"] for letter in h.read("dead")] == [["x"]]


def test_a_session_of_which_no_record_is_left_is_none() -> None:
    p = Pipeline("no session")
    sessions = source(p).key_by("k").window(session("10us"), late=to("late"))
    sessions.aggregate(a=agg.variance("v"), errors=DEAD).named("out")
    with Harness(p) as h:
        h.send("in", {"k": "a", "t": 0, "v": "x"})
        h.end()
        assert h.read("out") == []
        assert len(h.read("dead")) == 1


def test_lists_of_sessions_that_merge_are_put_together_whatever_they_hold() -> None:
    p = Pipeline("merged")
    sessions = source(p).key_by("k").window(session("10us"), emit="changes")
    sessions.aggregate(a=agg.collect("v"), b=agg.first("w"), errors=DEAD).named("out")
    with Harness(p) as h:
        h.send("in", {"k": 2, "t": 25, "v": False})
        h.send("in", {"k": 2, "t": 18, "v": 0})
        h.end()
        assert h.read("out")[-1]["a"] == [0, False]
        assert [type(value) for value in h.read("out")[-1]["a"]] == [int, bool]


def test_an_empty_list_and_a_missing_part_of_a_key_have_no_type_of_their_neighbours() -> None:
    def types(records: list[Any]) -> Counter[str]:
        p = Pipeline("empty")
        lists = source(p).key_by(lambda v: (v["k"], v.get("j"))).window(tumbling("5us"))
        lists.aggregate(a=agg.collect("v")).sql(
            "SELECT typeof(a) AS a, typeof(key) AS k FROM stream"
        ).named("out")
        with Harness(p) as h:
            h.send("in", *records)
            h.end()
            return Counter(map(repr, h.read("out")))

    empty, full = {"k": "a", "t": 0}, {"k": "b", "j": 1, "t": 0, "v": 5}
    assert types([empty, full]) == types([empty]) + types([full])
