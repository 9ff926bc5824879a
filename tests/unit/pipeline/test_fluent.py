"""The fluent interface: what it builds, what it is called, what it refuses."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace import (
    Computation,
    InvalidPipeline,
    Pipeline,
    agg,
    hopping,
    sinks,
    sliding,
    sources,
    to,
    tumbling,
)
from headrace.testing import CRASH, Harness


def begin(**timing: object) -> tuple[Pipeline, object]:
    p = Pipeline("fluent")
    return p, p.read("in", sources.memory([], **{"timestamp": "t", **timing}))


def row(k: str, t: int, v: int = 1) -> dict[str, object]:
    return {"k": k, "t": t, "v": v}


def test_steps_without_a_key_are_fused_and_named_after_their_stream():
    p, s = begin()
    s.map(lambda r: {**r, "w": r["v"] * 2}).filter(lambda r: r["w"] > 2).flat_map(
        lambda r: [r["k"]] * r["v"]
    )
    with Harness(p) as h:
        h.send("in", row("a", 1), row("b", 2, 2), CRASH, row("c", 3, 3))
        assert h.read("in.map.filter.flat_map") == ["b", "b", "c", "c", "c"]
    topology = p.freeze()
    assert [n.name for n in topology.fused] == ["in.map", "in.map.filter", "in.map.filter.flat_map"]
    assert topology.depth == 0  # no shuffle


def test_expressions_keep_columns_and_times():
    p, s = begin()
    s.filter(pc.field("v") > 1).select("k", double=pc.field("v") * 2)
    s.map_table(lambda t: t.append_column("n", pa.array(range(t.num_rows))).slice(1))
    with Harness(p) as h:
        h.send("in", row("a", 1), row("b", 2, 2), row("c", 3, 0), row("d", 4, None))
        assert h.records("in.filter.select") == [({"k": "b", "double": 4}, 2)]
        assert [t for _, t in h.records("in.map_table")] == [2, 3]


def test_a_value_column_called_timestamp_is_no_time():
    p = Pipeline("fluent")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.select("timestamp")
    s.key_by("timestamp").window(tumbling("10us")).count()
    with Harness(p) as h:
        h.send("in", {"t": 5, "timestamp": "noon"}, {"t": 7, "timestamp": "noon"})
        h.end()
        assert h.records("in.select")[1] == ({"timestamp": "noon"}, 7)
        assert h.records("in.count") == [
            ({"timestamp": "noon", "window_start": 0, "window_end": 10, "count": 2}, 9)
        ]


def test_union_and_split():
    p, s = begin()
    parts = s.split(small=lambda r: r["v"] < 2, rest=None)
    parts["small"].union(parts["rest"], s)
    with Harness(p) as h:
        h.send("in", row("a", 1), row("b", 2, 2))
        assert h.read("in.small") == [row("a", 1)]
        assert h.read("in.rest") == [row("b", 2, 2)]
        assert len(h.read("in.small.union")) == 4


def test_reduce_folds_values_into_state():
    p, s = begin()
    keyed = s.key_by("k")
    keyed.reduce(lambda value, total: total + value["v"], 0)
    keyed.reduce(
        lambda value, seen: (seen + 1, f"{value['k']} again" if seen else None), 0, outputs=True
    ).named("again")
    with Harness(p) as h:
        h.send("in", row("a", 1), row("a", 2, 4), CRASH, row("b", 3))
        assert h.read("in.reduce") == [1, 5, 1]
        assert h.read("again") == ["a again"]


def test_dedup_passes_the_first_of_each_id_within_a_time():
    p, s = begin()
    s.dedup("k", within="10us")
    with Harness(p) as h:
        h.send("in", row("a", 1), row("a", 2), CRASH, row("a", 3), row("b", 4))
        h.send("in", row("c", 30))
        h.send("in", row("a", 31), row("a", 5))
        assert [(r["k"], r["t"]) for r in h.read("in.dedup")] == [
            ("a", 1), ("b", 4), ("c", 30), ("a", 31),
        ]  # fmt: skip
        assert h.counts["in.dedup.duplicates"] == 2
        assert h.counts["in.dedup.late"] == 1


def test_class_computations_and_fluent_steps_mix():
    class Upper(Computation):
        def process_record(self, record, ctx):
            ctx.produce({"k": record.value["k"].upper(), "n": 1})

    p, s = begin()
    s.compute(Upper, key=None, outputs="upper").key_by("k").count()
    with Harness(p) as h:
        h.send("in", row("a", 1), row("a", 2))
        assert h.read("upper.count") == [{"k": "A", "count": 2}]


def test_a_second_step_of_one_name_needs_a_name_of_its_own():
    p, s = begin()
    s.map(str)
    s.map(repr)
    with pytest.raises(InvalidPipeline, match=r"'in\.map'.*named"):
        p.validate()
    p, s = begin()
    s.map(str)
    s.map(repr).named("repr")
    p.validate()
    assert list(p.freeze().graph.nodes) == ["in.map", "repr"]


def test_named_comes_right_behind_the_step():
    _, s = begin()
    mapped = s.map(str)
    mapped.filter(bool)
    with pytest.raises(InvalidPipeline, match="right behind"):
        mapped.named("late")
    with pytest.raises(InvalidPipeline, match="nothing to name"):
        s.named("x")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.window(tumbling("1s")), "key_by"),
        (lambda s: s.count(), "key_by"),
        (lambda s: s.key_by("k").aggregate(), "at least one"),
        (lambda s: s.key_by("k").aggregate(n=3), "headrace.agg"),
        (lambda s: s.key_by("k").aggregate(k=agg.count()), "already"),
        (lambda s: s.key_by("k").window("1h"), "tumbling"),
        (lambda s: s.key_by("k").window(tumbling("1s"), by="wall"), "by="),
        (lambda s: s.key_by("k").window(tumbling("1s"), emit="soon"), "emit="),
        (lambda s: s.key_by("k").window(tumbling("1s"), late="process"), "late="),
        (lambda s: s.key_by("k").window(sliding("1s"), emit="changes"), "sliding"),
        (
            lambda s: (
                s.key_by("k").window(tumbling("1s")).count().window(tumbling("1s"), by="ingestion")
            ),
            "ingestion",
        ),
        (lambda s: s.key_by("k").count().aggregate(n=agg.sum("v")), "no column 'v'"),
        (lambda s: s.key_by(3), "key_by"),
        (lambda s: s.map("x"), "function"),
        (lambda s: s.select(), "at least one"),
        (lambda s: agg.sum(3), "column"),
        (lambda s: tumbling("0s"), "longer"),
        (lambda s: hopping("1d", every="1ms"), "in 86,400,000 windows.*sliding"),
        (lambda s: tumbling(5), "unit"),
        (lambda s: s.dedup(within="1s"), "id="),
        (lambda s: s.sql("SELECT sum(v) FROM stream"), "record by record"),
        (lambda s: s.sql("SELECT DISTINCT k FROM stream"), "record by record"),
        (lambda s: s.sql("SELECT k FROM stream ORDER BY v"), "record by record"),
        (lambda s: s.sql("SELECT row_number() OVER () FROM stream"), "record by record"),
        (lambda s: s.sql("SELECT v IN (SELECT 1) FROM stream"), "record by record"),
        (lambda s: s.sql("SELECT random() FROM stream"), "replay"),
        (lambda s: s.sql("SELECT current_timestamp FROM stream"), "replay"),
        (lambda s: s.sql("SELECT k FROM elsewhere"), "FROM stream"),
        (lambda s: s.sql("SELECT FROM FROM"), "sql"),
    ],
)
def test_what_cannot_work_is_refused_while_building(build, reason):
    _, s = begin()
    with pytest.raises(InvalidPipeline, match=reason):
        build(s)


def test_a_source_that_knows_its_columns_lets_aggregates_be_checked():
    p = Pipeline("columns")
    s = p.read("in", sources.dataframe(pa.table({"k": ["a"], "t": [1]}), timestamp="t"))
    with pytest.raises(InvalidPipeline, match="no column 'price'"):
        s.key_by("k").aggregate(total=agg.sum("price"))


def test_late_records_go_aside_and_within_grace_they_count():
    p, s = begin()
    s.key_by("k").window(tumbling("10us"), grace="5us", late=to("late")).count()
    p.stream("late").write(sinks.memory())
    with Harness(p) as h:
        h.send("in", row("a", 1), row("a", 12))
        h.send("in", row("a", 2))  # behind the watermark of 12, within grace
        h.send("in", row("a", 16))
        h.send("in", row("a", 3))
        h.end()
        assert [(r["window_start"], r["count"]) for r in h.read("in.count")] == [(0, 2), (10, 2)]
        assert h.read("late") == [row("a", 3)]
    (judge,) = p.freeze().fused  # judged before the shuffle, so the rest is still combined
    assert judge.name == "in.count.judged"
    assert p.freeze().keyed["in.count"].combines


def test_sql_goes_over_each_record():
    p, s = begin()
    s.sql("SELECT upper(k) AS name, v * 2 AS w FROM stream WHERE v > 1")
    s.sql("SELECT * FROM stream WHERE k = 'a'").named("all")
    with Harness(p) as h:
        h.send("in", row("a", 1), row("b", 2, 2), CRASH, row("c", 3, 5))
        assert h.records("in.sql") == [({"name": "B", "w": 4}, 2), ({"name": "C", "w": 10}, 3)]
        assert h.records("all") == [(row("a", 1), 1)]


def test_sql_takes_the_streams_own_name_and_qualified_columns():
    p, s = begin()
    s.sql("SELECT in_.v AS v FROM stream AS in_")
    s.filter(lambda v: True).sql('SELECT "in.filter".v FROM "in.filter"').named("own")
    with Harness(p) as h:
        h.send("in", row("a", 1, 7))
        assert h.read("in.sql") == h.read("own") == [{"v": 7}]


def test_ordered_steps_behind_sql_see_ties_in_the_order_of_the_source_however_cut():
    class Last(Computation, ordered=True):
        def process_record(self, record, ctx):
            ctx.produce(record.value["v"])

    def run(*sent):
        p, s = begin()
        s.sql("SELECT * FROM stream WHERE v <> 3").key_by("k").compute(Last(), outputs="out")
        with Harness(p) as h:
            for records in sent:
                h.send("in", *records)
            h.end()
            return h.read("out")

    records = [row("a", 1, v) for v in (5, 3, 4, 9, 1)]
    assert run(records) == [5, 4, 9, 1]
    assert run(records[:2], records[2:3], records[3:]) == [5, 4, 9, 1]


def test_records_without_a_key_go_where_errors_says():
    p, s = begin()
    s.key_by("k").window(tumbling("10us"), errors=to("dead")).count()
    with Harness(p) as h:
        h.send("in", row("a", 1), {"t": 2, "v": 1})
        h.end()
        assert [r["count"] for r in h.read("in.count")] == [1]
        assert [letter["value"] for letter in h.read("dead")] == [{"t": 2, "v": 1}]


def test_values_of_all_kinds_pass_a_union_and_dedup_as_they_are():
    p = Pipeline("kinds")
    a, b = (p.read(name, sources.memory([])) for name in ("a", "b"))
    a.union(b).key_by(repr).dedup(within="1s")
    given = [1, "text", {"k": [1]}, None, [2.5], b"bytes"]
    with Harness(p) as h:
        h.send("a", *given)
        h.send("b", *given)
        h.end()
        assert h.read("a.union") == given * 2
        assert sorted(h.read("a.union.dedup"), key=repr) == sorted(given, key=repr)
