"""When windows are emitted, by which clock, and that downstream loses nothing of it."""

from __future__ import annotations

import random

import pytest

from headrace import (
    InvalidPipeline,
    Pipeline,
    every,
    hopping,
    same_window,
    session,
    sliding,
    sources,
    to,
    tumbling,
    whole,
)
from headrace.testing import CRASH, Harness


def counts(window, **options):
    p = Pipeline("emission")
    s = p.read("in", sources.memory([], timestamp="t"))
    rows = s.key_by("k").window(window, **options).count()
    rows.key_by().window(tumbling("10us")).count("rows")
    return p


def row(t: int, k: str = "a") -> dict[str, object]:
    return {"k": k, "t": t}


def starts(h: Harness) -> list[tuple[int, int]]:
    return [(r["window_start"], r["count"]) for r in h.read("in.count")]


def test_final_rows_come_once_when_the_watermark_has_passed_end_and_grace():
    with Harness(counts(tumbling("10us"), grace="5us")) as h:
        h.send("in", row(1), row(11))
        h.send("in", row(14))
        assert h.read("in.count") == []
        h.send("in", CRASH, row(15))
        assert starts(h) == [(0, 1)]


def test_on_time_rows_come_at_the_end_and_are_corrected():
    with Harness(counts(tumbling("10us"), grace="20us", emit="on_time")) as h:
        h.send("in", row(1))
        h.send("in", row(12))
        assert starts(h) == [(0, 1)]
        h.send("in", row(2), row(3))
        assert starts(h) == [(0, 1), (0, 3)]
        h.send("in", row(31))
        assert starts(h) == [(0, 1), (0, 3), (10, 1)]
        h.send("in", row(4))
        assert h.counts["in.count.late"] == 1
        h.end()
        # Corrections fell into their own window downstream, and none of them was late there.
        found = {r["window_start"]: r["rows"] for r in h.read("in.count.count")}
        assert found == {0: 2, 10: 1, 30: 1}


def test_changes_come_with_every_epoch():
    with Harness(counts(tumbling("10us"), emit="changes")) as h:
        h.send("in", row(1))
        h.send("in", row(2), CRASH, row(3))
        h.send("in", row(12))
        h.end()
        assert starts(h) == [(0, 1), (0, 2), (0, 3), (10, 1)]


def test_every_so_many_records_and_once_more_at_the_end():
    with Harness(counts(tumbling("10us"), emit=every(2))) as h:
        for t in (1, 2, 3, 4, 5):
            h.send("in", row(t))
        assert starts(h) == [(0, 2), (0, 4)]
        h.end()
        assert starts(h) == [(0, 2), (0, 4), (0, 5)]


def test_every_so_often_what_changed():
    with Harness(counts(tumbling("100us"), emit=every("10us"))) as h:
        h.send("in", row(1))
        h.send("in", row(12))
        assert starts(h) == [(0, 2)]
        h.send("in", row(13))
        assert starts(h) == [(0, 2)]
        h.send("in", row(21))
        assert starts(h) == [(0, 2), (0, 4)]
        h.end()
        assert starts(h) == [(0, 2), (0, 4)]


def test_processing_time_windows_close_by_the_wall_clock():
    with Harness(counts(tumbling("10s"), by="processing")) as h:
        h.send("in", row(1), row(99))
        h.send("in", CRASH, row(5))
        assert h.read("in.count") == []
        h.advance("11s")
        assert [r["count"] for r in h.read("in.count")] == [3]
        h.send("in", row(7, "b"))
        h.end()
        assert [(r["k"], r["count"]) for r in h.read("in.count")] == [("a", 3), ("b", 1)]


def test_processing_time_sessions_merge_epochs():
    with Harness(counts(session("10s"), by="processing")) as h:
        h.send("in", row(1))
        h.advance("6s")
        h.send("in", row(2))
        h.advance("6s")
        h.send("in", row(3))
        h.advance("11s")
        assert [r["count"] for r in h.read("in.count")] == [3]


def test_a_session_is_merged_by_a_record_between_two():
    with Harness(counts(session("10us"), grace="20us")) as h:
        h.send("in", row(1), row(14))
        h.send("in", row(8))  # late, within grace: joins both
        h.end()
        rows = h.read("in.count")
        assert [(r["window_start"], r["window_end"], r["count"]) for r in rows] == [(1, 24, 3)]


def test_the_whole_window_closes_at_the_end_of_time():
    with Harness(counts(whole())) as h:
        h.send("in", row(1), row(50))
        h.send("in", row(69, "b"))
        assert h.read("in.count") == []
        h.end()
        assert sorted((r["k"], r["count"]) for r in h.read("in.count")) == [("a", 2), ("b", 1)]
        assert {r["window_start"]: r["rows"] for r in h.read("in.count.count")} == {50: 1, 60: 1}


def test_nothing_is_left_in_state_when_windows_have_closed():
    with Harness(counts(tumbling("10us"))) as h:
        h.send("in", row(1), row(2, "b"), row(30))
        h.send("in", row(31))
        assert h.keys("in.count") == ["a"]
        h.end()
        assert h.keys("in.count") == []


def test_every_way_to_emit_ends_with_the_same_rows():
    """However they are emitted, the last row of each window is the final one."""
    records = [row(t * 3 % 47 + t, "ab"[t % 2]) for t in range(60)]
    found = {}
    for mode in ("final", "on_time", "changes", every(3), every("7us")):
        with Harness(counts(hopping("20us", every="6us"), grace="60us", emit=mode)) as h:
            for start in range(0, len(records), 7):
                h.send("in", *records[start : start + 7])
            h.end()
            rows = h.read("in.count")
            found[str(mode)] = {(r["k"], r["window_start"]): r["count"] for r in rows}
            if mode == "final":
                assert len(rows) == len(found["final"])
            assert "in.count.late" not in h.counts
    assert len(found["final"]) > 20
    assert all(last == found["final"] for last in found.values())


def test_windows_that_a_late_record_cannot_reach_any_more_stay_as_they_are():
    with Harness(counts(hopping("20us", every="10us"))) as h:
        h.send("in", row(5), row(25))
        h.send("in", row(12))  # [0, 20) has closed, [10, 30) has not
        h.send("in", row(3))  # both of its windows have closed
        h.end()
        assert starts(h) == [(-10, 1), (0, 1), (10, 2), (20, 1)]
        assert h.counts["in.count.late"] == 1


@pytest.mark.parametrize("window", [tumbling("10us"), hopping("20us", every="10us"), session("5us"),
                                    sliding("10us")], ids=lambda w: w.name)  # fmt: skip
def test_what_is_dropped_as_late_is_what_would_go_aside(window):
    dice = random.Random(window.name)
    records = [row(max(0, 2 * i - dice.choice([0, 0, 5, 30])), "ab"[i % 2]) for i in range(60)]
    found = []
    for late in ("drop", to("aside")):
        with Harness(counts(window, grace="4us", late=late)) as h:
            for start in range(0, len(records), 5):
                h.send("in", *records[start : start + 5])
            h.end()
            rows = h.records("in.count")
            if late == "drop":
                dropped = h.counts["in.count.late"]
            else:
                assert len(h.read("aside")) == dropped > 3
            found.append(sorted(rows, key=repr))
    assert found[0] == found[1]


PROMPT = {
    "map and filter": lambda s: s.map(dict).filter(bool),
    "dedup": lambda s: s.dedup("t", within="1h"),
    "reduce": lambda s: s.key_by("k").reduce(lambda value, _: {**value}, None),
    "count": lambda s: s.key_by("k").count("n"),
    "top": lambda s: s.key_by("k").top(3, by="t", id="t"),
    "union": lambda s: s.union(s.key_by("k").count()),
}


@pytest.mark.parametrize("steps", PROMPT)
def test_ingestion_time_goes_through_steps_that_keep_nothing_back(steps):
    p = Pipeline("ingestion")
    s = p.read("in", sources.memory([], timestamp="t"))
    made = PROMPT[steps](s).key_by("k").window(tumbling("10s"), by="ingestion").count("rows")
    with Harness(p, start=100_000_000) as h:
        h.send("in", row(1))
        h.send("in", CRASH, row(2))
        h.advance("11s")
        h.send("in", row(3))
        h.end()
        found = [(r["window_start"], r["window_end"], r["rows"] > 0) for r in h.read(made.name)]
        assert found == [(100_000_000, 110_000_000, True), (110_000_000, 120_000_000, True)]


KEEPING = {
    "in.count": lambda s: s.key_by("k").window(tumbling("10us")).count(),
    "in.reduce": lambda s: s.key_by("k").reduce(lambda v, _: v, None, ordered=True),
}


@pytest.mark.parametrize("keeper", KEEPING)
def test_behind_a_step_that_keeps_records_back_there_is_no_ingestion_time(keeper):
    p = Pipeline("ingestion")
    made = KEEPING[keeper](p.read("in", sources.memory([], timestamp="t"))).map(dict)
    with pytest.raises(InvalidPipeline, match=rf"'{keeper}' may send rows later.*processing"):
        made.key_by("k").window(tumbling("10s"), by="ingestion")
    made.key_by("k").window(tumbling("10s"), by="processing").count("rows").named("rows")
    with Harness(p, start=100_000_000) as h:
        h.send("in", row(1))
        h.advance("11s")  # the watermark passes the window; its rows are handled now
        h.send("in", CRASH, row(20_000_000))
        h.end()
        assert [r["window_start"] for r in h.read("rows")] == [110_000_000]


def test_records_that_carry_the_time_of_reading_keep_it_behind_any_step():
    p = Pipeline("ingestion")
    s = p.read("in", sources.memory([]))
    rows = s.key_by("k").window(tumbling("10s")).count()
    rows.key_by().window(same_window()).count("rows")
    with Harness(p, start=100_000_000) as h:
        h.send("in", {"k": "a"}, {"k": "b"})
        h.advance("11s")
        h.send("in", {"k": "a"}, CRASH)
        h.end()
        found = [(r["window_start"], r["rows"]) for r in h.read("in.count.count")]
        assert found == [(100_000_000, 2), (110_000_000, 1)]
