"""Joins against DuckDB: the same rows, however the input is cut and whenever the driver dies.

Times are microseconds. Records are out of order by less than the sources' lateness, so none is
late; keys are few and skewed, values may be null, rows may be equal.
"""

import os
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Computation, Pipeline, hopping, sources
from headrace.model.time import LATEST
from headrace.pipeline.operators.join_interval import Interval
from headrace.pipeline.operators.join_rows import Side
from headrace.pipeline.operators.join_window import CutWindows
from headrace.pipeline.operators.joins import join, join_asof
from headrace.testing import CRASH, Harness

LATENESS = 6
HOWS = {"inner": "JOIN", "left": "LEFT JOIN", "full": "FULL JOIN"}

Row = dict[str, Any]

# Give more for a long sweep.
EXAMPLES = settings(max_examples=int(os.environ.get("HEADRACE_JOIN_EXAMPLES", "40")))


class Downstream(Computation):
    """Somebody to whom records may be late."""

    def process_record(self, record: Any, ctx: Any) -> None:
        ctx.produce(record.late)


@st.composite
def rows(draw: st.DrawFn, column: str) -> list[Row]:
    """Rows whose order differs from that of their times by less than the lateness."""
    start = draw(st.sampled_from([0, 0, 1_000, LATEST - 200]))
    steps = draw(st.lists(st.integers(0, 4), max_size=12))
    time, made = start, []
    for step in steps:
        time += step
        late = draw(st.integers(0, LATENESS - 1))
        made.append(
            {
                "k": draw(st.sampled_from(["hot", "hot", "hot", "b", "c"])),
                "t": max(start, time - late),
                column: draw(st.sampled_from([None, 1, 2, 2])),
            }
        )
    return made


@st.composite
def schedules(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """What arrives when: (stream, rows), and where the driver dies."""
    waiting = {"left": draw(rows("a")), "right": draw(rows("b"))}
    if draw(st.booleans()):
        return [(stream, found) for stream, found in waiting.items() if found]
    plan: list[tuple[str, Any]] = []
    while any(waiting.values()):
        stream = draw(st.sampled_from([s for s, found in waiting.items() if found]))
        count = draw(st.integers(1, 4))
        crash = [CRASH] if draw(st.integers(0, 3)) == 0 else []
        plan.append((stream, [*waiting[stream][:count], *crash]))
        waiting[stream] = waiting[stream][count:]
    return plan


def pipeline() -> Pipeline:
    p = Pipeline("joined")
    for name in ("left", "right"):
        p.read(name, sources.memory([], timestamp="t", lateness=f"{LATENESS}us"))
    return p


SIDES = (Side("left", "k", ("k", "t", "a")), Side("right", "k", ("k", "t", "b")))
SELECT = {"k": "left.k", "rk": "right.k", "lt": "left.t", "rt": "right.t", "a": "left.a",
          "b": "right.b"}  # fmt: skip


def ours(p: Pipeline, schedule: list[tuple[str, Any]], names: list[str]) -> Counter[Any]:
    """What comes out, with timestamps; nothing of it comes after a watermark that denies it."""
    p.compute(Downstream, inputs={"out": ()}, outputs="seen")
    with Harness(p) as h:
        for stream, values in schedule:
            h.send(stream, *values)
        h.end()
        found = h.records("out")
        assert not any(h.read("seen"))
        assert h.counts["late"] == 0
    return Counter((*(value[name] for name in names), time) for value, time in found)


def theirs(schedule: list[tuple[str, Any]], query: str) -> Counter[Any]:
    """What DuckDB answers."""
    tables = {}
    for side, column in (("left", "a"), ("right", "b")):
        found = [row for s, rs in schedule for row in rs if s == side and row is not CRASH]
        kinds = pa.schema([("k", pa.string()), ("t", pa.int64()), (column, pa.int64())])
        tables[side] = pa.Table.from_pylist(found, schema=kinds)
    with duckdb.connect() as db:
        db.register("l", tables["left"])
        db.register("r", tables["right"])
        return Counter(db.execute(query).fetchall())


@EXAMPLES
@given(schedules(), st.sampled_from(sorted(HOWS)))
def test_a_join_over_the_full_history_is_the_join_of_sql(
    schedule: list[tuple[str, Any]], how: str
) -> None:
    p = pipeline()
    join(p, *SIDES, how=how, select=SELECT, name="out")
    expected = theirs(
        schedule,
        f"SELECT l.k, r.k, l.t, r.t, a, b, greatest(l.t, r.t) FROM l {HOWS[how]} r ON l.k = r.k",
    )
    assert ours(p, schedule, list(SELECT)) == expected


@EXAMPLES
@given(schedules(), st.sampled_from(sorted(HOWS)), st.integers(-9, 9), st.integers(0, 12))
def test_an_interval_join_is_the_range_join_of_sql_and_leaves_nothing_behind(
    schedule: list[tuple[str, Any]], how: str, lower: int, width: int
) -> None:
    p = pipeline()
    join(p, *SIDES, within=Interval(lower, lower + width), how=how, select=SELECT, name="out")
    expected = theirs(
        schedule,
        f"SELECT l.k, r.k, l.t, r.t, a, b, greatest(l.t, r.t) FROM l {HOWS[how]} r "
        f"ON l.k = r.k AND r.t BETWEEN l.t + ({lower}) AND l.t + ({lower + width})",
    )
    assert ours(p, schedule, list(SELECT)) == expected
    assert emptied(p, schedule)


def emptied(p: Pipeline, schedule: list[tuple[str, Any]]) -> bool:
    """Whether the join has forgotten everything when the end has come."""
    with Harness(p, twice=False) as h:
        for stream, values in schedule:
            h.send(stream, *(value for value in values if value is not CRASH))
        h.end()
        return h.keys("out") == []


@EXAMPLES
@given(schedules(), st.sampled_from(sorted(HOWS)), st.sampled_from([(5, 5), (6, 2), (3, 3)]))
def test_a_window_join_is_a_join_by_key_and_window(
    schedule: list[tuple[str, Any]], how: str, shape: tuple[int, int]
) -> None:
    size, every = shape
    p = pipeline()
    join(
        p,
        *SIDES,
        window=CutWindows(hopping(f"{size}us", every=f"{every}us")),
        how=how,
        select=SELECT,
        name="out",
    )

    def cut(side: str) -> str:
        return (
            f"(SELECT *, (t // {every} - i) * {every} AS w FROM {side}, range({size // every}) n(i)"
            f" WHERE t < (t // {every} - i) * {every} + {size})"
        )

    expected = theirs(
        schedule,
        "SELECT x.k, y.k, x.t, y.t, a, b, coalesce(x.w, y.w), coalesce(x.w, y.w) + "
        f"{size}, coalesce(x.w, y.w) + {size} - 1 "
        f"FROM {cut('l')} x {HOWS[how]} {cut('r')} y ON x.k = y.k AND x.w = y.w",
    )
    assert ours(p, schedule, [*SELECT, "window_start", "window_end"]) == expected
    assert emptied(p, schedule)


@EXAMPLES
@given(schedules(), st.sampled_from(["inner", "left"]), st.sampled_from([None, 0, 5]))
def test_an_as_of_join_is_that_of_duckdb(
    schedule: list[tuple[str, Any]], how: str, within: int | None
) -> None:
    # Of several right rows of one key and instant SQL may take any: leave one.
    seen: set[Any] = set()
    apart = []
    for stream, values in schedule:
        kept = []
        for value in values:
            place = None if value is CRASH or stream == "left" else (value["k"], value["t"])
            if place is None or place not in seen:
                kept.append(value)
                seen.add(place)
        apart.append((stream, kept))
    p = pipeline()
    tolerance = None if within is None else f"{within}us"
    join_asof(p, *SIDES, how=how, within=tolerance, select=SELECT, name="out")
    near = "true" if within is None else f"l.t - r.t <= {within}"
    cell = {c: f"CASE WHEN {near} THEN r.{c} END" for c in ("k", "t", "b")}
    expected = theirs(
        apart,
        f"SELECT l.k, {cell['k']}, l.t, {cell['t']}, a, {cell['b']}, l.t "
        f"FROM l ASOF {HOWS[how]} r ON l.k = r.k AND l.t >= r.t "
        + (f"WHERE {near}" if how == "inner" else ""),
    )
    assert ours(p, apart, list(SELECT)) == expected
