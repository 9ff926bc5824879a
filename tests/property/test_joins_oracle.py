"""Joins against DuckDB: the same rows, however the input is cut and whenever the driver dies.

Times are microseconds. Records are out of order, and some are late; keys are few and skewed,
keys and values may be null, rows may be equal. What is late depends on the cut, so every row
that DuckDB sees has the epoch in which it came and the watermark before that (`arrived`).
"""

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Computation, Pipeline, failpoints, hopping, sources, to
from headrace.model.values.time import LATEST
from headrace.operators.joins.bounds import Interval
from headrace.operators.joins.combine import Side
from headrace.pipeline.fluent.joins import join, join_asof
from headrace.pipeline.fluent.lookups import lookup
from headrace.testing import CRASH, Harness

LATENESS = 6
HOWS = {"inner": "JOIN", "left": "LEFT JOIN", "full": "FULL JOIN"}

# Failpoints that a pipeline without calls and collection meets.
DEATHS = st.sampled_from([n for n in failpoints.NAMES if not n.endswith(("call", "collect"))])

Row = dict[str, Any]
Schedule = list[tuple[str, Any]]

# Give more for a long sweep.
EXAMPLES = settings(max_examples=int(os.environ.get("HEADRACE_JOIN_EXAMPLES", "32")))


class Downstream(Computation):
    """Somebody to whom records may be late."""

    def process_record(self, record: Any, ctx: Any) -> None:
        ctx.produce(record.late)


@st.composite
def rows(draw: st.DrawFn, column: str, late_most: int) -> list[Row]:
    """Rows whose order differs from that of their times, mostly by less than the lateness."""
    start = draw(st.sampled_from([0, 0, 1_000, LATEST - 200]))
    steps = draw(st.lists(st.integers(0, 4), max_size=12))
    time, made = start, []
    for step in steps:
        time += step
        late = draw(st.integers(0, LATENESS - 1) | st.integers(0, late_most))
        made.append(
            {
                "k": draw(st.sampled_from(["hot", "hot", "hot", "b", "c", None])),
                "j": draw(st.sampled_from([1, 1, 1, None])),
                "t": max(start, time - late),
                column: draw(st.sampled_from([None, 1, 2, 2])),
            }
        )
    return made


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """What arrives when: (stream, rows and perhaps the failpoint at which the driver dies)."""
    late_most = draw(st.sampled_from([LATENESS - 1, 30]))
    waiting = {"left": draw(rows("a", late_most)), "right": draw(rows("b", late_most))}
    if draw(st.booleans()):
        return [(stream, found) for stream, found in waiting.items() if found]
    plan: Schedule = []
    while any(waiting.values()):
        stream = draw(st.sampled_from([s for s, found in waiting.items() if found]))
        count = draw(st.integers(1, 4))
        crash = [draw(DEATHS)] if draw(st.integers(0, 3)) == 0 else []
        plan.append((stream, [*waiting[stream][:count], *crash]))
        waiting[stream] = waiting[stream][count:]
    return plan


def arrived(schedule: Schedule) -> dict[str, list[Row]]:
    """The rows of each side, each with its epoch and the join's input watermark before that.

    A source's watermark lies its lateness behind the newest of its records, the join's is the
    older of both; a source that has sent nothing is at the beginning of time.
    """
    found: dict[str, list[Row]] = {"left": [], "right": []}
    marks, before = {"left": 0, "right": 0}, 0
    for epoch, (stream, values) in enumerate(schedule):
        records = [value for value in values if value not in failpoints.NAMES]
        found[stream] += [{**r, "epoch": epoch, "before": before} for r in records]
        newest = max((r["t"] for r in records), default=0)
        marks[stream] = max(marks[stream], newest - LATENESS)
        before = max(before, min(marks.values()))
    return found


def pipeline() -> Pipeline:
    p = Pipeline("joined")
    for name in ("left", "right"):
        p.read(name, sources.memory([], timestamp="t", lateness=f"{LATENESS}us"))
    return p


KEYS: Any = st.sampled_from(["k", ("k", "j")])
LATE: Any = st.sampled_from(["drop", "process", to("late")])
SELECT = {"k": "left.k", "rk": "right.k", "lt": "left.t", "rt": "right.t", "a": "left.a",
          "b": "right.b"}  # fmt: skip
ON_TIME = "NOT t < before"


def sides(key: Any) -> tuple[Side, Side]:
    return Side("left", key, ("k", "j", "t", "a")), Side("right", key, ("k", "j", "t", "b"))


def same_key(key: Any) -> str:
    """The condition that two rows, `l` and `r`, have one key; a null is like nothing, as in SQL."""
    return " AND ".join(f"l.{column} = r.{column}" for column in key)


def ours(
    p: Pipeline, schedule: Schedule, names: list[str], key: Any, late: Any, open_us: Any = None
) -> Counter[Any]:
    """What comes out, with timestamps; nothing of it comes after a watermark that denies it.

    What cannot have a key, and what is late and not wanted, is in its stream, once. `open_us`
    gives the watermark up to which a late row is wanted after all.
    """
    p.compute(Downstream, inputs={"out": ()}, outputs="seen")
    every = [(s, row) for s, found in arrived(schedule).items() for row in found]
    keyless = [row for _, row in every if key == "k" and row["k"] is None]
    behind = [row for _, row in every if row["t"] < row["before"] and row not in keyless]
    with Harness(p) as h:
        for stream, values in schedule:
            dies = values[-1] in failpoints.NAMES
            h.send(stream, *values[: len(values) - dies])
            if dies:
                h.crash(at=values[-1])
        h.end()
        found = h.records("out")
        late_rows = sum(h.read("seen"))  # those of late records, where they are processed
        assert behind or not late_rows
        assert h.counts["late"] == len(behind) + late_rows
        assert bag(letter["value"] for letter in h.read("dead")) == bag(keyless)
        if late == to("late"):
            aside = [r for r in behind if open_us is None or open_us(r["t"]) <= r["before"]]
            assert bag(h.read("late")) == bag(aside)
    return Counter((*(value[name] for name in names), time) for value, time in found)


def bag(values: Iterable[Row]) -> Counter[Any]:
    """Records without what this test has added."""
    return Counter((v["k"], v["j"], v["t"], v.get("a", v.get("b"))) for v in values)


def theirs(schedule: Schedule, key: Any, query: str) -> Counter[Any]:
    """What DuckDB answers."""
    tables = {}
    for side, column in (("left", "a"), ("right", "b")):
        found = [row for row in arrived(schedule)[side] if key != "k" or row["k"] is not None]
        kinds = [(name, pa.int64()) for name in ("j", "t", column, "epoch", "before")]
        tables[side] = pa.Table.from_pylist(found, pa.schema([("k", pa.string()), *kinds]))
    with duckdb.connect() as db:
        db.register("l", tables["left"])
        db.register("r", tables["right"])
        return Counter(db.execute(query).fetchall())


@EXAMPLES
@given(schedules(), st.sampled_from(sorted(HOWS)), KEYS, LATE)
def test_a_join_over_the_full_history_is_the_join_of_sql(
    schedule: Schedule, how: str, key: Any, late: Any
) -> None:
    p = pipeline()
    join(p.catalog, *sides(key), how=how, select=SELECT, name="out", late=late, errors=to("dead"))
    kept = "true" if late == "process" else ON_TIME
    expected = theirs(
        schedule,
        key,
        "SELECT l.k, r.k, l.t, r.t, a, b, greatest(l.t, r.t) "
        f"FROM (FROM l WHERE {kept}) l {HOWS[how]} (FROM r WHERE {kept}) r ON {same_key(key)}",
    )
    assert ours(p, schedule, list(SELECT), key, late) == expected


@EXAMPLES
@given(
    schedules(), st.sampled_from(sorted(HOWS)), st.integers(-9, 9), st.integers(0, 12), KEYS, LATE
)
def test_an_interval_join_is_the_range_join_of_sql_and_leaves_nothing_behind(
    schedule: Schedule, how: str, lower: int, width: int, key: Any, late: Any
) -> None:
    p = pipeline()
    within, upper = Interval(lower, lower + width), lower + width
    join(p.catalog, *sides(key), within=within, how=how, select=SELECT, name="out", late=late,
         errors=to("dead"))  # fmt: skip
    kept = "true" if late == "process" else ON_TIME
    # A late row meets what is kept: rows whose last partner on time may still come.
    here = (
        f"(l.epoch = r.epoch OR (l.epoch < r.epoch AND l.t + ({upper}) >= r.before) "
        f"OR (r.epoch < l.epoch AND r.t - ({lower}) >= l.before))"
    )
    expected = theirs(
        schedule,
        key,
        "SELECT l.k, r.k, l.t, r.t, a, b, greatest(l.t, r.t) "
        f"FROM (FROM l WHERE {kept}) l {HOWS[how]} (FROM r WHERE {kept}) r ON {same_key(key)} "
        f"AND r.t BETWEEN l.t + ({lower}) AND l.t + ({upper}) AND {here}",
    )
    assert ours(p, schedule, list(SELECT), key, late) == expected
    assert emptied(p, schedule)


def emptied(p: Pipeline, schedule: Schedule) -> bool:
    """Whether the join has forgotten everything when the end has come."""
    with Harness(p, twice=False) as h:
        for stream, values in schedule:
            h.send(stream, *(value for value in values if value not in failpoints.NAMES))
        h.end()
        return h.keys("out") == []


@EXAMPLES
@given(
    schedules(),
    st.sampled_from(sorted(HOWS)),
    st.sampled_from([(5, 5), (6, 2), (3, 3)]),
    st.sampled_from([0, 0, 7]),
    KEYS,
    st.sampled_from([None, to("late")]),
)
def test_a_window_join_is_a_join_by_key_and_window(
    schedule: Schedule, how: str, shape: tuple[int, int], grace: int, key: Any, late: Any
) -> None:
    size, every = shape
    p = pipeline()
    join(
        p.catalog,
        *sides(key),
        window=hopping(f"{size}us", every=f"{every}us"),
        grace=f"{grace}us",
        how=how,
        select=SELECT,
        name="out",
        late=late,
        errors=to("dead"),
    )

    def cut(side: str) -> str:
        # A late row is for the windows that are still open.
        return (
            f"(SELECT *, (t // {every} - i) * {every} AS w FROM {side}, range({size // every}) n(i)"
            f" WHERE t < w + {size} AND ({ON_TIME} OR w + {size + grace} > before))"
        )

    expected = theirs(
        schedule,
        key,
        "SELECT l.k, r.k, l.t, r.t, a, b, coalesce(l.w, r.w) AS start, start + "
        f"{size}, start + {size} - 1 "
        f"FROM {cut('l')} l {HOWS[how]} {cut('r')} r ON {same_key(key)} AND l.w = r.w",
    )

    def last_closes(time: int) -> int:
        return time // every * every + size + grace

    names = [*SELECT, "window_start", "window_end"]
    assert ours(p, schedule, names, key, late, last_closes) == expected
    assert emptied(p, schedule)


@EXAMPLES
@given(schedules(), st.sampled_from(["inner", "left"]), st.sampled_from([None, 0, 5]), KEYS)
def test_an_as_of_join_is_that_of_duckdb(
    schedule: Schedule, how: str, within: int | None, key: Any
) -> None:
    # Of several right rows of one key and instant SQL may take any: leave one.
    seen: set[Any] = set()
    apart = []
    for stream, values in schedule:
        kept = []
        for value in values:
            place = None
            if value not in failpoints.NAMES and stream == "right":
                place = (*(value[column] for column in key), value["t"])
            if place is None or place not in seen:
                kept.append(value)
                seen.add(place)
        apart.append((stream, kept))
    p = pipeline()
    tolerance = None if within is None else f"{within}us"
    join_asof(p.catalog, *sides(key), how=how, within=tolerance, select=SELECT, name="out",
              errors=to("dead"))  # fmt: skip
    near = "true" if within is None else f"l.t - r.t <= {within}"
    cell = {c: f"CASE WHEN {near} THEN r.{c} END" for c in ("k", "t", "b")}
    expected = theirs(
        apart,
        key,
        f"SELECT l.k, {cell['k']}, l.t, {cell['t']}, a, {cell['b']}, l.t "
        f"FROM (FROM l WHERE {ON_TIME}) l ASOF {HOWS[how]} (FROM r WHERE {ON_TIME}) r "
        f"ON {same_key(key)} AND l.t >= r.t " + (f"WHERE {near}" if how == "inner" else ""),
    )
    assert ours(p, apart, list(SELECT), key, "drop") == expected


CELLS: Any = st.sampled_from([None, 1, 2, 2.0, 2.5, 3])


@EXAMPLES
@given(
    st.lists(st.tuples(CELLS, CELLS, st.booleans()), max_size=10),
    st.lists(st.tuples(CELLS, CELLS), max_size=6),
    st.lists(st.integers(1, 4), max_size=4),
    st.sampled_from(["inner", "left"]),
)
def test_a_look_up_is_the_join_of_sql_with_a_table(
    asking: list[Any], table: list[Any], cuts: list[int], how: str
) -> None:
    # Some records have one more column, and numbers of both kinds.
    values = [
        {"t": i, "x": x, "y": y, **({"more": i} if more else {})}
        for i, (x, y, more) in enumerate(asking)
    ]
    side = pa.table(
        {
            "x": pa.array([x for x, _ in table], pa.float64()),
            "z": pa.array([z for _, z in table], pa.float64()),
            "n": pa.array(range(len(table)), pa.int64()),
        }
    )
    p = Pipeline("looked up")
    p.read("in", sources.memory([], timestamp="t"))
    lookup(p.catalog, "in", side, on={"x": "x", "y": "z"}, how=how, name="out")
    with Harness(p) as h:
        at = 0
        for count in [*cuts, len(values)]:
            h.send("in", *values[at : at + count], CRASH)
            at += count
        h.end()
        found = h.read("out")
    with duckdb.connect() as db:
        numbers = [(name, pa.float64()) for name in ("x", "y")]
        db.register("l", pa.Table.from_pylist(values, pa.schema([("t", pa.int64()), *numbers])))
        db.register("r", side)
        expected = db.execute(
            f"SELECT l.t, n FROM l {HOWS[how]} r ON l.x = r.x AND l.y = r.z ORDER BY l.t, n"
        ).fetchall()
    assert [(v["t"], v["n"]) for v in found] == expected
    for v in found:
        given = {name: cell for name, cell in v.items() if name != "n"}
        assert repr(given) == repr(values[v["t"]])
