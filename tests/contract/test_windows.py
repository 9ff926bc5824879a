"""What every kind of window promises, checked in one suite for all of them.

The kinds of the house, the example's calendar months, and two kinds that implement nothing but
`assign`, as a user's would: what those give must be what the tuned kinds give.
"""

from __future__ import annotations

import importlib.util
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from pyspark import cloudpickle

from headrace import (
    DAY,
    InvalidPipeline,
    Pipeline,
    UserCodeError,
    Window,
    every,
    hopping,
    same_window,
    session,
    sliding,
    sources,
    tumbling,
    whole,
)
from headrace.model.values.rows import Rows
from headrace.model.values.time import END
from headrace.operators.columns.records import Records
from headrace.testing import CRASH, Harness

ROOT = Path(__file__).parents[2]


def months() -> type[Window]:
    spec = importlib.util.spec_from_file_location("m", ROOT / "examples" / "calendar_months.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Months


@dataclass(frozen=True)
class Days(Window):
    """Tumbling days, with nothing but `assign`."""

    def assign(self, times: Any) -> Any:
        starts = times // DAY * DAY
        return np.arange(len(times)), starts, starts + DAY


@dataclass(frozen=True)
class DayPairs(Window):
    """Hopping windows of two days, with nothing but `assign`."""

    overlapping: ClassVar[bool] = True

    def assign(self, times: Any) -> Any:
        today = times // DAY * DAY
        of = np.arange(len(times))
        starts = np.concatenate([today, today - DAY])
        return np.concatenate([of, of]), starts, starts + 2 * DAY


KINDS: dict[str, Window] = {
    "tumbling": tumbling("36h"),
    "hopping": hopping("3d", every="2d"),
    "session": session("1d"),
    "sliding": sliding("40h"),
    "whole": whole(),
    "months": months()("Europe/Berlin"),
    "days": Days(),
    "day pairs": DayPairs(),
}
kinds = pytest.mark.parametrize("window", list(KINDS.values()), ids=list(KINDS))


def some_times(seed: int, count: int = 60) -> Any:
    """Times of the winter in which clocks change; a few of them are equal."""
    dice = random.Random(seed)
    days = [dice.randrange(150) * DAY + dice.choice([0, DAY - 1, dice.randrange(DAY)])
            for _ in range(count)]  # fmt: skip
    return np.array(days + days[:5], np.int64) + 20_400 * DAY


def windows_by_time(window: Window, times: Any) -> dict[int, set[tuple[int, int]]]:
    of, starts, ends = window.assign(times)
    found: dict[int, set[tuple[int, int]]] = {}
    for at, start, end in zip(of.tolist(), starts.tolist(), ends.tolist(), strict=True):
        found.setdefault(int(times[at]), set()).add((start, end))
    return found


# What `assign` gives ----------------------------------------------------------------------------


@kinds
def test_windows_follow_from_the_time_alone(window: Window) -> None:
    times = some_times(1)
    together = windows_by_time(window, times)
    assert windows_by_time(window, np.random.default_rng(2).permutation(times)) == together
    for time in times[:20]:
        assert windows_by_time(window, np.array([time])) == {int(time): together[int(time)]}


@kinds
def test_every_time_lies_in_its_windows(window: Window) -> None:
    times = some_times(3)
    of, starts, ends = window.assign(times)
    assert (starts < ends).all()
    assert (starts <= times[of]).all()
    assert (times[of] < ends).all()
    assert set(of.tolist()) == set(range(len(times)))
    if not window.overlapping:
        assert of.tolist() == list(range(len(times)))


@kinds
def test_all_of_a_piece_lies_in_the_same_windows(window: Window) -> None:
    times = some_times(4)
    starts, ends = window.pieces(times)
    assert (starts <= times).all()
    assert (times < ends).all()
    if window.overlapping:
        found = windows_by_time(window, times)
        for time, start, end in zip(times.tolist(), starts.tolist(), ends.tolist(), strict=True):
            edges = windows_by_time(window, np.array([start, end - 1]))
            assert edges[start] == edges[end - 1] == found[time]
    last = window.last_ends(starts, ends)
    if window.overlapping:
        assert last.tolist() == [max(e for _, e in found[time]) for time in times.tolist()]
    else:
        assert last.tolist() == ends.tolist()


@kinds
def test_records_are_cut_into_groups_of_one_key_and_piece(window: Window) -> None:
    times = some_times(5)
    key = np.arange(len(times)) % 3
    groups, starts, ends = window.cut(Records(Rows.of([None] * len(times), times), key))
    assert len(starts) == len(ends) == groups.count
    assert (starts[groups.of] <= times).all()
    assert (times < ends[groups.of]).all()
    found = set(zip(groups.of.tolist(), key.tolist(), strict=True))
    assert len(found) == groups.count, "a group has one key"
    if not window.merging:
        pieces = np.stack([starts[groups.of], ends[groups.of]])
        assert (pieces == np.stack(window.pieces(times))).all()


@kinds
def test_a_window_closes_a_grace_after_its_end_and_no_later_than_time_itself(
    window: Window,
) -> None:
    _, _, ends = window.assign(some_times(6))
    assert (window.closes(ends, 0) == ends).all()
    closes = window.closes(np.append(ends, END), DAY)
    assert closes.tolist() == [min(end, END - DAY) + DAY for end in [*ends.tolist(), END]]


@kinds
def test_its_meaning_is_the_same_in_every_process(window: Window) -> None:
    again = cloudpickle.loads(cloudpickle.dumps(window))
    assert again.meaning() == window.meaning()
    meanings = {kind.meaning() for kind in KINDS.values()}
    assert len(meanings) == len(KINDS)
    assert tumbling("1h").meaning() != tumbling("2h").meaning()


# What a pipeline makes of it --------------------------------------------------------------------


def records(seed: int) -> list[dict[str, Any]]:
    """In the order of time but for a day, which is the source's lateness."""
    dice = random.Random(seed)
    times = sorted(some_times(seed, 40).tolist(), key=lambda time: time + dice.randrange(DAY))
    return [{"k": dice.choice("aab"), "t": time} for time in times]


def counted(
    window: Window, given: list[dict[str, Any]], cut: int, crash: bool = False, **options: Any
) -> list[dict[str, Any]]:
    p = Pipeline("windows")
    stream = p.read("in", sources.memory([], timestamp="t", lateness="1d"))
    stream.key_by("k").window(window, **options).count("n").named("out")
    with Harness(p) as h:
        for start in range(0, len(given), cut):
            h.send("in", *([CRASH] if crash else []), *given[start : start + cut])
        h.end()
        return h.read("out")


def by_window(rows: list[dict[str, Any]]) -> dict[Any, int]:
    """The last row of each key and window; withdrawn ones leave."""
    found: dict[Any, int] = {}
    for row in rows:
        name = (row["k"], row.get("window_start"), row.get("window_end"))
        found[name] = row["n"]
        if row.get("withdrawn"):
            del found[name]
    return found


def expected(window: Window, given: list[dict[str, Any]]) -> dict[Any, int]:
    """Counts per key and window from `assign` alone."""
    found: Counter[Any] = Counter()
    for record in given:
        for start, end in windows_by_time(window, np.array([record["t"]]))[record["t"]]:
            found[(record["k"], *((None, None) if window.endless else (start, end)))] += 1
    return dict(found)


@kinds
def test_rows_depend_neither_on_the_cut_nor_on_crashes(window: Window) -> None:
    given = records(7)
    once = counted(window, given, len(given))
    assert len(by_window(once)) == len(once), "emitted once"
    for cut, crash in ((1, False), (7, True)):
        again = counted(window, given, cut, crash)
        assert by_window(again) == by_window(once)
        assert len(again) == len(once)


@kinds
def test_every_record_counts_in_its_windows(window: Window) -> None:
    given = records(8)
    found = by_window(counted(window, given, 5))
    if window.merging:
        assert sum(found.values()) == len(given)
    elif window.final_only:
        assert set(found) == set(expected(window, given))
    else:
        assert found == expected(window, given)


@kinds
@pytest.mark.parametrize("emit", ["on_time", "changes", every(2), every("2d")], ids=str)
def test_the_last_of_early_rows_is_the_final_one(window: Window, emit: Any) -> None:
    given = records(9)
    if window.final_only:
        with pytest.raises(InvalidPipeline, match="emitted once"):
            counted(window, given, 5, emit=emit)
        return
    final = by_window(counted(window, given, 5))
    assert by_window(counted(window, given, 5, crash=True, emit=emit, grace="1d")) == final


@kinds
def test_by_processing_time_every_record_counts_once_for_each_window(window: Window) -> None:
    given = records(10)
    if window.event_time_only:
        with pytest.raises(InvalidPipeline, match="event time"):
            counted(window, given, 9, by="processing")
        return
    rows = counted(window, given, 9, by="processing")
    total = sum(by_window(rows).values())
    assert total >= len(given) if window.overlapping else total == len(given)


@kinds
def test_records_whose_windows_have_closed_are_late(window: Window) -> None:
    old, new = {"k": "a", "t": 20_000 * DAY}, {"k": "a", "t": 20_100 * DAY}
    p = Pipeline("late")
    stream = p.read("in", sources.memory([], timestamp="t"))
    stream.key_by("k").window(window).count("n").named("out")
    with Harness(p) as h:
        for record in (new, new, old):
            h.send("in", record)
        h.end()
        assert h.counts.get("out.late", 0) == (0 if window.endless else 1)


@kinds
def test_two_streams_join_within_its_windows_where_it_says_so(window: Window) -> None:
    def joined(cut: int) -> Counter[Any]:
        p = Pipeline("join")
        left, right = (
            p.read(name, sources.memory([], timestamp="t", lateness="1d")).key_by("k")
            for name in ("left", "right")
        )
        pair = {"k": "left.k", "a": "left.t", "b": "right.t"}
        left.join(right, window=window, select=pair).named("out")
        with Harness(p) as h:
            for start in range(0, len(sides[0]), cut):
                h.send("left", *sides[0][start : start + cut])
                h.send("right", *sides[1][start : start + cut])
            h.end()
            return Counter(
                (row["k"], row["a"], row["b"], row["window_start"]) for row in h.read("out")
            )

    sides = [records(11)[:20], records(11)[10:30]]
    if not window.can_join:
        with pytest.raises(InvalidPipeline, match="window join takes"):
            joined(5)
        return
    wanted = Counter(
        (a["k"], a["t"], b["t"], start)
        for a in sides[0]
        for b in sides[1]
        if a["k"] == b["k"]
        for start, _ in windows_by_time(window, np.array([a["t"]]))[a["t"]]
        & windows_by_time(window, np.array([b["t"]]))[b["t"]]
    )
    assert wanted
    assert joined(20) == joined(3) == wanted


@kinds
def test_top_ranks_within_its_windows_where_it_says_so(window: Window) -> None:
    p = Pipeline("top")
    windowed = p.read("in", sources.memory([], timestamp="t")).key_by("k").window(window)
    if not window.can_rank:
        with pytest.raises(InvalidPipeline, match="does not go with"):
            windowed.top(1, by="v")
        return
    windowed.top(1, by="v").named("out")
    with Harness(p) as h:
        h.send("in", *({"k": "a", "t": 20_000 * DAY, "v": v} for v in (1, 3, 2)))
        h.end()
        assert {(row["v"], row["rank"]) for row in h.read("out")} == {(3, 1)}


# A kind that implements nothing but `assign` ----------------------------------------------------


@pytest.mark.parametrize("emit", ["final", "on_time", "changes", every(3)], ids=str)
def test_the_defaults_give_what_the_tuned_kinds_give(emit: Any) -> None:
    given = records(12)
    for plain, tuned in ((Days(), tumbling("1d")), (DayPairs(), hopping("2d", every="1d"))):
        mine, theirs = (counted(window, given, 6, emit=emit) for window in (plain, tuned))
        assert by_window(mine) == by_window(theirs)
        assert len(mine) == len(theirs)


def test_rows_that_carry_their_window_stay_in_it() -> None:
    window = same_window()
    p = Pipeline("same")
    stream = p.read("in", sources.memory([], timestamp="t"))
    hourly = stream.key_by("k").window(tumbling("1d")).count("n").named("daily")
    hourly.key_by().window(window).count("keys").named("out")
    with Harness(p) as h:
        h.send("in", *({"k": k, "t": day * DAY} for k in "abc" for day in (1, 2)))
        h.end()
        assert [row["keys"] for row in h.read("out")] == [3, 3]
    with pytest.raises(InvalidPipeline, match="from columns"):
        window.assign(np.array([1]))


class Outside(Window):
    def assign(self, times: Any) -> Any:
        return np.arange(len(times)), times + 1, times + 2


class Gap(Window):
    overlapping = True

    def assign(self, times: Any) -> Any:
        of = np.flatnonzero(times % 2 == 0)
        return of, times[of], times[of] + 1


class Twice(Window):
    def assign(self, times: Any) -> Any:
        of = np.repeat(np.arange(len(times)), 2)
        return of, times[of], times[of] + 1


@pytest.mark.parametrize(
    ("window", "match"),
    [(Outside(), "lies in"), (Gap(), "lies in"), (Twice(), "overlapping = True")],
    ids=["outside", "gap", "twice"],
)
def test_a_window_that_breaks_the_contract_is_named(window: Window, match: str) -> None:
    with pytest.raises((InvalidPipeline, UserCodeError), match=match):
        counted(window, [{"k": "a", "t": 1}, {"k": "a", "t": 2}], 2)


def test_a_window_without_a_stable_meaning_is_refused() -> None:
    class Strange(Days):
        def __init__(self) -> None:
            object.__setattr__(self, "parameter", object())

    with pytest.raises(InvalidPipeline, match="override meaning"):
        counted(Strange(), [], 1)
