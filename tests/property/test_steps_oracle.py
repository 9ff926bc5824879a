"""Steps without windows against DuckDB: nulls, sparse records, duplicates, however they are cut."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace import Pipeline, agg, sources
from headrace.testing import CRASH, Harness

EXAMPLES = int(os.environ.get("HEADRACE_STEP_EXAMPLES", "6"))
LATEST_US = 253_402_300_799_999_999
LATENESS_US = 30
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["hot", "hot", "hot", "a", "b"]),
            "step": st.sampled_from([0, 0, 1, 5, 10**15]),
            "jitter": st.integers(0, LATENESS_US),
        },
        optional={
            "i": st.one_of(st.none(), st.integers(-(2**40), 2**40)),
            "f": st.one_of(st.none(), st.floats(-1e9, 1e9)),
            "p": st.one_of(st.none(), st.sampled_from(["x", "y", "ä", ""])),
        },
    ),
    max_size=30,
)
SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.string()), ("t", pa.int64()), ("i", pa.int64()),
                    ("f", pa.float64()), ("p", pa.string())])  # fmt: skip
CITIES = pa.table({"p": ["x", "x", "y"], "city": ["Ulm", "Bonn", None]})

EACH: dict[str, tuple[tuple[str, ...], str]] = {
    "filtered": (("n",), "SELECT n FROM r WHERE i > 0"),
    "selected": (("k", "twice", "loud"), "SELECT k, i * 2, upper(p) FROM r"),
    "queried": (("n", "j"), "SELECT n, i + 1 FROM r WHERE f IS NOT NULL OR p = 'x'"),
    "mapped": (("n", "i"), "SELECT n, coalesce(i, 0) FROM r"),
    "words": (("n", "w"), "SELECT n, unnest([k, p]) AS w FROM r"),
    "in.small": (("n",), "SELECT n FROM r WHERE i < 0"),
    "in.rest": (("n",), "SELECT n FROM r WHERE i IS NULL OR i >= 0"),
    "united": (("n",), "SELECT n FROM r WHERE i > 0 UNION ALL SELECT n FROM r WHERE i < 0"),
    "looked_up": (("n", "city"), "SELECT n, city FROM r LEFT JOIN c ON r.p = c.p"),
    "matched": (("n", "city"), "SELECT n, city FROM r JOIN c ON r.p = c.p"),
}
LAST: dict[str, tuple[tuple[str, ...], str]] = {
    "counted": (("k", "count"), "SELECT k, count(*) FROM r GROUP BY k"),
    "summed": (
        ("k", "s", "top", "d"),
        "SELECT k, sum(i), max(p), count(DISTINCT p) FROM r GROUP BY k",
    ),
    "reduced": (("k", "s"), "SELECT k, coalesce(sum(i), 0) FROM r GROUP BY k"),
}


def pipeline() -> Pipeline:
    p = Pipeline("steps")
    s = p.read("in", sources.memory([], timestamp="t", lateness=f"{LATENESS_US}us"))
    positive = s.filter(pc.field("i") > 0).named("filtered")
    s.select("k", twice=pc.field("i") * 2, loud=pc.utf8_upper(pc.field("p"))).named("selected")
    s.sql("SELECT n, i + 1 AS j FROM stream WHERE f IS NOT NULL OR p = 'x'").named("queried")
    s.map(lambda v: {"n": v["n"], "i": v.get("i") or 0}).named("mapped")
    s.flat_map(lambda v: [{"n": v["n"], "w": v.get(c)} for c in ("k", "p")]).named("words")
    parts = s.split(small=lambda v: (v.get("i") or 0) < 0, rest=None)
    positive.union(parts["small"]).named("united")
    s.lookup(CITIES, on="p").named("looked_up")
    s.lookup(CITIES, on={"p": "p"}, how="inner", name="matched")
    keyed = s.key_by("k")
    counts = keyed.count().named("counted")
    counts.key_by().top(2, by="count", id="k").named("busiest")
    keyed.aggregate(s=agg.sum("i"), top=agg.max("p"), d=agg.distinct("p")).named("summed")
    keyed.reduce(lambda v, a: {"k": v["k"], "s": a["s"] + (v.get("i") or 0)}, {"s": 0}).named(
        "reduced"
    )
    return p


def run(records: list[dict[str, Any]], cuts: list[int], crashes: bool) -> dict[str, Any]:
    with Harness(pipeline()) as h:
        marks = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
        for start, end in pairwise(marks):
            h.send("in", *records[start:end])
            if crashes and start % 2:
                h.send("in", CRASH)
        h.end()
        found: dict[str, Any] = {}
        for name, (columns, _) in EACH.items():
            found[name] = [tuple(row[c] for c in columns) for row in h.read(name)]
        for name, (columns, _) in LAST.items():
            last = {row["k"]: tuple(row[c] for c in columns) for row in h.read(name)}
            found[name] = list(last.values())
        ranks = {row["rank"]: (row["rank"], row["k"], row["count"]) for row in h.read("busiest")}
        found["busiest"] = list(ranks.values())
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


@settings(max_examples=EXAMPLES, phases=(Phase.explicit, Phase.generate))
@given(given_records=RECORDS, cuts=st.lists(st.integers(0, 30), max_size=6), crashes=st.booleans())
def test_steps_agree_with_duckdb_however_the_input_is_cut(
    given_records: list[dict[str, Any]], cuts: list[int], crashes: bool
) -> None:
    now, records = 0, []
    for n, row in enumerate(given_records):
        now += row.pop("step")
        records.append({"n": n, **row, "t": min(now + row.pop("jitter"), LATEST_US)})
        records[-1].pop("jitter")
    connection = duckdb.connect()
    connection.register("r", pa.Table.from_pylist(records, SCHEMA))
    connection.register("c", CITIES)
    wanted = {
        name: sorted(connection.execute(query).fetchall(), key=repr)
        for name, (_, query) in {**EACH, **LAST}.items()
    }
    wanted["busiest"] = connection.execute(
        "SELECT row_number() OVER (ORDER BY c DESC, k), k, c FROM (SELECT k, count(*) AS c FROM r "
        "GROUP BY k) QUALIFY row_number() OVER (ORDER BY c DESC, k) <= 2 ORDER BY 1"
    ).fetchall()
    for found in (run(records, [], False), run(records, cuts, crashes)):
        for name, rows in wanted.items():
            assert found[name] == rows, name
