"""What a window, `top` or `fold` cannot take: each record, key and window is judged by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headrace import (
    Pipeline,
    UserCodeError,
    agg,
    hopping,
    same_window,
    session,
    sliding,
    sources,
    to,
    tumbling,
)
from headrace.operators.windows.whole import whole
from headrace.testing import CRASH, Harness

Build = Callable[[Any], Any]


def run(
    build: Build, epochs: list[list[dict[str, Any]]], *more: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of "out" and dead letters."""
    p = Pipeline("alone")
    build(p.read("in", sources.memory([], timestamp="t", lateness="1s")))
    with Harness(p, slots=2) as h:
        for records in epochs:
            h.send("in", *records, CRASH)
        h.end()
        return h.read("out"), h.read("dead")


def told(letters: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What letters are about; epochs differ from cut to cut."""
    return sorted((d["key"], repr(d["value"]), d["error"], d["timestamp"]) for d in letters)


def each(records: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [[record] for record in records]


RECORDS = [
    {"k": "a", "t": 1, "v": 1}, {"k": "a", "t": 2, "v": "x"}, {"k": "b", "t": 3, "v": [1]},
    {"k": "b", "t": 4, "v": 2.5}, {"k": "c", "t": 5, "v": {"n": 1}}, {"k": "a", "t": 6},
]  # fmt: skip
WINDOWS = {
    "tumbling": tumbling("10us"), "hopping": hopping("10us", every="5us"), "whole": whole(),
    "session": session("5us"), "sliding": sliding("3us"),
}  # fmt: skip


@pytest.mark.parametrize("late", [None, "late"], ids=["combined", "by record"])
@pytest.mark.parametrize("kind", WINDOWS)
def test_text_in_a_sum_is_that_records_letter_in_every_cut(kind: str, late: str | None) -> None:
    more = {} if late is None else {"late": to(late)}

    def build(s: Any) -> None:
        windows = s.key_by("k").window(WINDOWS[kind], **more)
        windows.aggregate(n=agg.count(), s=agg.sum("v"), errors=to("dead")).named("out")

    rows, dead = run(build, [RECORDS])
    for epochs in (each(RECORDS), [RECORDS[:2], RECORDS[2:]]):
        others, letters = run(build, epochs)
        assert sorted(map(repr, others)) == sorted(map(repr, rows))
        assert told(letters) == told(dead)
    assert [(d["key"], d["value"]) for d in sorted(dead, key=lambda d: d["timestamp"])] == [
        ("a", RECORDS[1]), ("b", RECORDS[2]), ("c", RECORDS[4]),
    ]  # fmt: skip
    assert {d["computation"] for d in dead} == {"out"}
    assert all(row["k"] != "c" for row in rows)


def test_without_a_place_for_letters_it_stops_and_names_computation_key_and_record() -> None:
    def build(s: Any) -> None:
        s.map(lambda v: v, errors=to("dead")).key_by("k").window(tumbling("10us")).aggregate(
            s=agg.sum("v")
        ).named("out")

    with pytest.raises(UserCodeError) as caught:
        run(build, [RECORDS])
    text = str(caught.value)
    for part in ("computation 'out'", "key 'a'", "'v': 'x'", "holds text", 'errors=to("dead")'):
        assert part in text


def test_only_the_errors_that_are_named_go_aside() -> None:
    def build(s: Any) -> None:
        s.key_by("k").window(tumbling("10us")).aggregate(
            s=agg.sum("v"), errors=to("dead", only=ValueError)
        ).named("out")

    with pytest.raises(UserCodeError, match="holds text"):
        run(build, [RECORDS])


def test_letters_about_records_keep_to_the_limit() -> None:
    def build(s: Any) -> None:
        s.key_by("k").window(tumbling("10us")).aggregate(
            s=agg.sum("v"), errors=to("dead", limit=1)
        ).named("out")

    with pytest.raises(UserCodeError, match="more than 1 record"):
        run(build, [RECORDS])


@pytest.mark.parametrize("late", [None, "late"])
def test_a_row_without_a_window_is_its_own_letter_behind_same_window(late: str | None) -> None:
    more = {} if late is None else {"late": to(late)}
    window = {"window_start": 0, "window_end": 10}
    records: list[dict[str, Any]] = [
        {"k": "a", "t": 1, **window}, {"k": "a", "t": 2}, {"k": "a", "t": 3, "window_start": 0},
        {"k": "b", "t": 4, **window, "window_end": "10"}, {"k": "b", "t": 5, **window},
        {"k": "b", "t": 6, "window_start": 0, "window_end": 2**63},
        {"k": "b", "t": 7, "window_start": 0.0, "window_end": 10},
    ]  # fmt: skip

    def build(s: Any) -> None:
        s.key_by("k").window(same_window(), **more).count(errors=to("dead")).named("out")

    for epochs in ([records], each(records)):
        rows, dead = run(build, epochs)
        assert {row["k"]: row["count"] for row in rows} == {"a": 1, "b": 1}
        assert sorted(d["timestamp"] for d in dead) == [2, 3, 4, 6, 7]
        assert all("needs rows that come from a window" in d["error"] for d in dead)


def test_a_row_without_an_id_is_its_own_letter_before_top() -> None:
    records = [
        {"k": "a", "t": 1, "id": 1, "n": 5}, {"k": "a", "t": 2, "n": 9},
        {"k": "a", "t": 3, "id": "1", "n": 7}, {"k": "b", "t": 4, "id": None, "n": 1},
    ]  # fmt: skip

    def build(s: Any) -> None:
        s.key_by("k").top(3, by="n", id="id", errors=to("dead")).named("out")

    for epochs in ([records], each(records)):
        rows, dead = run(build, epochs)
        assert [(row["rank"], row["id"]) for row in rows[-2:]] == [(1, "1"), (2, 1)]
        assert [d["value"] for d in dead] == [records[1], records[3]]


def test_a_row_without_a_key_is_its_own_letter_before_top() -> None:
    records = [
        {"k": k, "t": i, "id": 1, "n": 5} for i, k in enumerate(["a", None, "", b"", 7, 0.5])
    ] + [{"t": 9, "id": 2, "n": 5}]  # fmt: skip

    def build(s: Any) -> None:
        s.key_by("k").top(3, by="n", id="id", errors=to("dead")).named("out")

    for epochs in ([records], each(records), [records[:2], records[2:]]):
        rows, dead = run(build, epochs)
        assert sorted(str(row["k"]) for row in rows) == ["7", "a"]
        assert sorted(d["timestamp"] for d in dead) == [1, 2, 3, 5, 9]
        assert {d["value"]["id"] for d in dead} == {1, 2}


def test_a_result_that_does_not_fit_the_schema_of_its_stream_is_a_letter_of_its_key() -> None:
    def build(s: Any) -> None:
        windows = s.key_by("k").window(tumbling("10us"))
        windows.aggregate(y=agg.sum("v"), errors=to("dead")).named("out")

    p = Pipeline("alone")
    names = ("window_start", "window_end", "y")
    p.stream("out", schema=pa.schema([("k", pa.string()), *((n, pa.int64()) for n in names)]))
    build(p.read("in", sources.memory([], timestamp="t")))
    with Harness(p, slots=1) as h:
        h.send("in", *of("a", 2**63 - 1, 1), CRASH)
        h.send("in", *of("b", 1), *of("c", 1.5))
        h.end()
        assert [(row["k"], row["y"]) for row in h.read("out")] == [("b", 1)]
        assert [(d["key"], d["value"]["y"]) for d in h.read("dead")] == [("a", 2**63), ("c", 1.5)]


# Fold -------------------------------------------------------------------------


def careless(state: list[Any], value: Any) -> list[Any]:
    """Changes its state before it fails."""
    state.append(value)
    if value == "bad":
        raise ValueError("no such value")
    return state


def joined(a: list[Any], b: list[Any]) -> list[Any]:
    if "odd" in a + b and len(a + b) > 1:
        raise ValueError("these two do not go together")
    return sorted(a + b)


def shown(state: list[Any]) -> list[Any]:
    if "secret" in state:
        raise ValueError("not to be shown")
    return state


FOLD = agg.fold([], careless, joined, shown, column="v")


def folded(window: Any) -> Build:
    def build(s: Any) -> None:
        windows = s.key_by("k").window(window)
        windows.aggregate(n=agg.count(), x=FOLD, errors=to("dead")).named("out")

    return build


def of(key: str, *values: Any) -> list[dict[str, Any]]:
    return [{"k": key, "t": i + 1, "v": value} for i, value in enumerate(values)]


def test_a_record_that_add_fails_over_is_left_out_of_the_state() -> None:
    records = [*of("a", "1", "bad", "2"), *of("b", "bad"), *of("c", "3")]
    for epochs in ([records], each(records)):
        rows, dead = run(folded(tumbling("10us")), epochs)
        assert {row["k"]: (row["n"], row["x"]) for row in rows} == {
            "a": (2, ["1", "2"]),
            "c": (1, ["3"]),
        }
        assert [(d["key"], d["value"]["v"]) for d in dead] == [("a", "bad"), ("b", "bad")]
        assert all("no such value" in d["traceback"] for d in dead)


def test_a_key_whose_states_cannot_be_merged_has_no_row_and_others_do() -> None:
    epochs = [[*of("a", "odd"), *of("b", "odd"), *of("c", "1")], [*of("a", "2"), *of("c", "3")]]
    rows, dead = run(folded(tumbling("10us")), [*epochs, of("a", "4"), of("c", "5")])
    assert {row["k"]: row["x"] for row in rows} == {"b": ["odd"], "c": ["1", "3", "5"]}
    (letter,) = dead
    assert letter["key"] == "a" and "do not go together" in letter["error"]
    assert letter["value"] == {"records": 2, "window_start": 0, "window_end": 10}


@pytest.mark.parametrize("window", [sliding("5us"), hopping("6us", every="2us")], ids=["s", "h"])
def test_windows_that_overlap_fail_one_by_one(window: Any) -> None:
    records = [
        *({"k": "a", "t": t, "v": v} for t, v in ((1, "1"), (8, "2"), (11, "odd"), (20, "3"))),
        {"k": "b", "t": 9, "v": "4"},
    ]
    rows, dead = run(folded(window), [records])
    spans = {(row["window_start"], row["window_end"]) for row in rows if row["k"] == "a"}
    lost = {(d["value"]["window_start"], d["value"]["window_end"]) for d in dead}
    inside = lambda span, t: span[0] <= t < span[1]  # noqa: E731
    assert lost and all(inside(span, 8) and inside(span, 11) for span in lost)
    assert spans and not any(inside(span, 8) and inside(span, 11) for span in spans)
    assert [row["x"] for row in rows if row["k"] == "b"] == [["4"]] * len(
        [row for row in rows if row["k"] == "b"]
    )


def test_a_result_that_fails_is_a_letter_of_its_key_and_window() -> None:
    records = [*of("a", "secret"), *of("b", "1")]
    for epochs in ([records], each(records)):
        rows, dead = run(folded(tumbling("10us")), epochs)
        assert [(row["k"], row["x"]) for row in rows] == [("b", ["1"])]
        (letter,) = dead
        assert letter["key"] == "a" and "not to be shown" in letter["error"]
        assert letter["value"] == {"records": 1, "window_start": 0, "window_end": 10}


def test_a_result_that_fails_stops_a_pipeline_without_a_place_for_letters() -> None:
    def build(s: Any) -> None:
        s.map(lambda v: v, errors=to("dead")).key_by("k").window(tumbling("10us")).aggregate(
            x=FOLD
        ).named("out")

    with pytest.raises(UserCodeError, match="computation 'out', key 'a'.*not to be shown"):
        run(build, [of("a", "secret")])


def test_a_fold_holds_integers_of_any_size() -> None:
    def build(s: Any) -> None:
        total = agg.fold(0, lambda a, v: a + v, lambda a, b: a + b, column="v")
        s.map(lambda v: v, errors=to("dead")).key_by("k").window(tumbling("10us")).aggregate(
            x=total
        ).named("out")

    records = of("a", 2**70, 2**70, 1)
    for epochs in ([records], each(records)):
        ((row,), _) = run(build, epochs)
        assert row["x"] == 2**71 + 1


def test_late_records_of_a_count_over_all_time_go_aside() -> None:
    p = Pipeline("alone")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.key_by("k").count(late=to("late")).named("out")
    with Harness(p, slots=1) as h:
        h.send("in", {"k": 1, "t": 100})
        h.send("in", {"k": 1, "t": 5})
        h.end()
        assert h.read("out") == [{"k": 1, "count": 1}]
        assert h.read("late") == [{"k": 1, "t": 5}]
