"""Windows and aggregates against DuckDB, however the input is cut, with crashes.

The same records go through a pipeline in one epoch and cut into many; both must give what
SQL gives. No record is late here, so nothing may differ.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace import Pipeline, agg, hopping, same_window, session, sliding, sources, tumbling, whole
from headrace.testing import CRASH, Harness

PHASES = (Phase.explicit, Phase.generate)  # each example runs two pipelines: no shrinking

NUMBERS = st.one_of(
    st.none(),
    st.integers(-5, 5).map(float),
    st.floats(allow_nan=False, allow_infinity=False, width=64, min_value=-1e12, max_value=1e12),
)
LATENESS_US = 15


def stamped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Time goes on with each record, by steps of any size, and none is late."""
    now = 0
    for row in rows:
        now += row.pop("step")
        row["t"] = now + row.pop("jitter")
    return rows


RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["hot", "hot", "hot", "a", "b"]),
            "step": st.sampled_from([0, 0, 1, 3, 9, 40, 10**14]),
            "jitter": st.integers(0, LATENESS_US),
            "i": st.one_of(st.none(), st.integers(-(2**40), 2**40)),
            "f": NUMBERS,
            "p": st.one_of(st.none(), st.sampled_from(["x", "y", "z", "ä"])),
        }
    ),
    max_size=25,
).map(stamped)
CUTS = st.lists(st.integers(0, 25), max_size=5)

WINDOWS = {
    "tumbling": (tumbling("10us"), "SELECT *, t - t % 10 AS s, t - t % 10 + 10 AS e FROM r"),
    "hopping": (
        hopping("10us", every="4us"),
        "SELECT r.*, s, s + 10 AS e FROM (SELECT r.*, unnest([t - t % 4, t - t % 4 - 4, "
        "t - t % 4 - 8]) AS s FROM r) r WHERE s + 10 > t",
    ),
    "session": (
        session("5us"),
        "SELECT *, min(t) OVER w AS s, max(t) OVER w + 5 AS e FROM (SELECT *, sum(b) OVER "
        "(PARTITION BY k ORDER BY t RANGE UNBOUNDED PRECEDING) AS g FROM (SELECT *, CASE WHEN t - "
        "lag(t) OVER (PARTITION BY k ORDER BY t) < 5 THEN 0 ELSE 1 END AS b FROM r)) "
        "WINDOW w AS (PARTITION BY k, g)",
    ),
    "whole": (whole(), "SELECT *, 0 AS s, 0 AS e FROM r"),
    "sliding": (
        sliding("7us"),
        "SELECT o.*, w.t - 6 AS s, w.t + 1 AS e FROM (SELECT DISTINCT k, t FROM r) w "
        "JOIN r o ON o.k = w.k AND o.t > w.t - 7 AND o.t <= w.t",
    ),
}

AGGREGATES = {
    "n": (agg.count(), "count(*)"),
    "ni": (agg.count("i"), "count(i)"),
    "si": (agg.sum("i"), "sum(i)"),
    "mi": (agg.min("i"), "min(i)"),
    "xf": (agg.max("f"), "max(f)"),
    "xp": (agg.max("p"), "max(p)"),
    "np": (agg.min("p"), "min(p)"),
    "di": (agg.distinct("p"), "count(DISTINCT p)"),
    "da": (agg.distinct("i", error=0.01), "count(DISTINCT i)"),
    "fi": (agg.first("p"), "list(p ORDER BY t, p) FILTER (p IS NOT NULL)[1]"),
    "la": (agg.last("p"), "list(p ORDER BY t, p) FILTER (p IS NOT NULL)[-1]"),
    "co": (agg.collect("p"), "coalesce(list(p ORDER BY t, p) FILTER (p IS NOT NULL), [])"),
    "to": (agg.top(2, "i"), "coalesce(list(i ORDER BY i DESC) FILTER (i IS NOT NULL)[1:2], [])"),
    "fs": (agg.fold(0, lambda a, v: a + v, lambda a, b: a + b, column="i"), "coalesce(sum(i), 0)"),
    "lf": (agg.collect("f"), "coalesce(list(f ORDER BY t, f) FILTER (f IS NOT NULL), [])"),
    "ef": (agg.sum("f"), None),
    "me": (agg.mean("f"), None),
    "va": (agg.variance("f"), None),
    "qu": (agg.quantiles("f", 0.0, 0.5, 1.0), None),
}

SCHEMA = pa.schema(
    [("k", pa.string()), ("t", pa.int64()), ("i", pa.int64()), ("f", pa.float64()),
     ("p", pa.string())]
)  # fmt: skip


def expected(records: list[dict[str, Any]], query: str) -> list[tuple[Any, ...]]:
    table = pa.Table.from_pylist(records, SCHEMA)
    chosen = ", ".join(sql for _, sql in AGGREGATES.values() if sql)
    connection = duckdb.connect()
    connection.register("given", table)
    connection.execute("CREATE TABLE r AS SELECT * FROM given")
    rows = connection.execute(f"SELECT k, s, e, {chosen} FROM ({query}) GROUP BY k, s, e")
    return sorted(rows.fetchall(), key=lambda row: row[:3])


def pipeline(kind: str) -> Pipeline:
    p = Pipeline("oracle")
    stream = p.read("in", sources.memory([], timestamp="t", lateness=f"{LATENESS_US}us"))
    window, _ = WINDOWS[kind]
    stream.key_by("k").window(window).aggregate(**{n: a for n, (a, _) in AGGREGATES.items()})
    return p


def run(
    kind: str, records: list[dict[str, Any]], cuts: list[int], crashes: bool
) -> list[dict[str, Any]]:
    with Harness(pipeline(kind), slots=2) as h:
        marks = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
        for start, end in pairwise(marks):
            h.send("in", *records[start:end])
            if crashes and start % 2:
                h.send("in", CRASH)
        h.end()
        rows = h.read("in.aggregate")
        assert h.counts.get("in.aggregate.late", 0) == 0
    return sorted(rows, key=lambda row: (row["k"], row.get("window_start"), row.get("window_end")))


@pytest.mark.parametrize("kind", WINDOWS)
@settings(max_examples=8, phases=PHASES)
@given(records=RECORDS, cuts=CUTS, crashes=st.booleans())
def test_windows_agree_with_duckdb_however_the_input_is_cut(
    kind: str, records: list[dict[str, Any]], cuts: list[int], crashes: bool
) -> None:
    whole_run = run(kind, records, [], crashes=False)
    assert run(kind, records, cuts, crashes) == whole_run
    wanted = expected(records, WINDOWS[kind][1])
    names = [name for name, (_, sql) in AGGREGATES.items() if sql]
    found = [
        (r["k"], r.get("window_start", 0), r.get("window_end", 0), *(r[name] for name in names))
        for r in whole_run
    ]
    assert found == wanted
    for row in whole_run:
        check_floats(row)


def check_floats(row: dict[str, Any]) -> None:
    """Sums are those of fsum: rounded once. Quantiles are within one percent of a value."""
    values = row["lf"]
    if not values:
        assert row["ef"] is row["me"] is row["va"] is row["qu"] is None
        return
    assert row["ef"] == math.fsum(values)
    assert math.isclose(row["me"], math.fsum(values) / len(values), rel_tol=1e-15, abs_tol=1e-300)
    if len(values) > 1:
        mean = math.fsum(values) / len(values)
        variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
        assert math.isclose(row["va"], variance, rel_tol=1e-9, abs_tol=1e-12)
    ordered = sorted(values)
    for found, value in zip(row["qu"], [ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]],
                            strict=True):  # fmt: skip
        assert math.isclose(found, value, rel_tol=0.0101, abs_tol=1e-290)


@settings(max_examples=8, phases=PHASES)
@given(records=RECORDS, cuts=CUTS, ties=st.booleans())
def test_the_busiest_keys_of_each_window_agree_with_duckdb(
    records: list[dict[str, Any]], cuts: list[int], ties: bool
) -> None:
    p = Pipeline("q5")
    stream = p.read("in", sources.memory([], timestamp="t", lateness=f"{LATENESS_US}us"))
    counts = stream.key_by("k").window(hopping("10us", every="4us")).count("num")
    counts.key_by().window(same_window()).top(1, by="num", ties=ties)
    with Harness(p) as h:
        marks = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
        for start, end in pairwise(marks):
            h.send("in", *records[start:end])
        h.end()
        rows = [(r["window_start"], r["k"], r["num"], r["rank"]) for r in h.read("in.count.top")]
    connection = duckdb.connect()
    connection.register("given", pa.Table.from_pylist(records, SCHEMA))
    connection.execute("CREATE TABLE r AS SELECT * FROM given")
    ranked = (
        "SELECT s, k, num, rank() OVER (PARTITION BY s ORDER BY num DESC) AS rank, row_number() "
        f"OVER (PARTITION BY s ORDER BY num DESC, k) AS nth FROM (SELECT s, k, count(*) AS num "
        f"FROM ({WINDOWS['hopping'][1]}) GROUP BY s, k)"
    )
    chosen = "rank = 1" if ties else "nth = 1"
    wanted = connection.execute(f"SELECT s, k, num, rank FROM ({ranked}) WHERE {chosen}")
    assert sorted(rows) == sorted(wanted.fetchall())


@settings(max_examples=15, phases=PHASES)
@given(
    times=st.lists(st.integers(0, 120), max_size=40),
    cuts=CUTS,
    grace=st.sampled_from(["0s", "7us", "200us"]),
    window=st.sampled_from([tumbling("10us"), session("5us"), hopping("10us", every="10us")]),
)
def test_every_record_is_in_a_window_or_was_counted_as_late(
    times: list[int], cuts: list[int], grace: str, window: Any
) -> None:
    p = Pipeline("late")
    stream = p.read("in", sources.memory([], timestamp="t"))
    rows = stream.key_by("k").window(window, grace=grace).count()
    rows.key_by().window(tumbling("10us")).aggregate(total=agg.sum("count"))
    records = [{"k": "ab"[i % 2], "t": t} for i, t in enumerate(times)]
    with Harness(p) as h:
        marks = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
        for start, end in pairwise(marks):
            h.send("in", *records[start:end])
        h.end()
        late = h.counts.get("in.count.late", 0)
        assert sum(row["count"] for row in h.read("in.count")) + late == len(records)
        # Rows are stamped inside their window, and none of them is late downstream.
        assert sum(row["total"] for row in h.read("in.count.aggregate")) + late == len(records)
        if grace == "200us":
            assert late == 0
