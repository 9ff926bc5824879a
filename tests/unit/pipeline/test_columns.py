"""Names of columns, followed through the steps: a mistake is told while building."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace import (
    Computation,
    InvalidPipeline,
    Pipeline,
    Stream,
    agg,
    every,
    interval,
    same_window,
    session,
    sources,
    to,
    tumbling,
)
from headrace.testing import Harness


@dataclass
class Sale:
    shop: str
    price: int
    at: int


@dataclass
class Priced:
    shop: str
    euros: float


class Anything(Computation):
    def process_record(self, record: Any, ctx: Any) -> None:
        ctx.produce({"prize": "tea"})


def sales(p: Pipeline, name: str = "sales") -> Stream[Sale]:
    return p.read(name, sources.memory([], timestamp="at"), schema=Sale)


def rows(s: Any) -> Any:
    """Rows of windows: shop, window_start, window_end, total."""
    return s.key_by("shop").window(tumbling("1h")).aggregate(total=agg.sum("price"))


BEHIND: dict[str, Any] = {
    "a source": (lambda s: s, "prise", "price"),
    "filter": (lambda s: s.filter(pc.field("price") > 1), "prise", "price"),
    "select": (lambda s: s.select("shop", cents=pc.field("price") * 100), "cent", "cents"),
    "map": (lambda s: s.map(lambda v: Priced(v.shop, 1.0), schema=Priced), "euro", "euros"),
    "flat_map": (lambda s: s.flat_map(lambda v: [], schema=Priced), "euro", "euros"),
    "map_table": (lambda s: s.map_table(lambda t: t, schema=Priced), "euro", "euros"),
    "sql": (lambda s: s.sql("SELECT shop, price * 2 AS twice FROM stream"), "twise", "twice"),
    "sql *": (lambda s: s.sql("SELECT * FROM stream WHERE price > 1"), "prise", "price"),
    "split": (lambda s: s.split(dear=lambda v: v.price > 9)["dear"], "prise", "price"),
    "dedup": (lambda s: s.dedup("shop", within="1h"), "prise", "price"),
    "union": (lambda s: s.union(s.select("shop", cents="price")), "cent", "cents"),
    "lookup": (lambda s: s.lookup({"a": {"city": "Ulm"}}, on="shop"), "sity", "city"),
    "a window": (rows, "totl", "total"),
    "count": (lambda s: s.key_by("shop").count("sold"), "solt", "sold"),
    "a window's top": (
        lambda s: s.key_by().window(tumbling("1h")).top(3, by="price"), "ranc", "rank"),
    "top": (lambda s: s.key_by().top(3, by="price", id="shop"), "ranc", "rank"),
    "an early session": (
        lambda s: s.key_by("shop").window(session("1h"), emit="changes").count(), "withdrown",
        "withdrawn"),
    "a join": (
        lambda s: s.key_by("shop").join(
            rows(s), within=interval("0s", "1h"),
            select={"shop": "left.shop", "total": "right.total"}),
        "totl", "total"),
    "a join of all columns": (
        lambda s: s.key_by("shop").join(
            rows(s).select("shop", "total"), within=interval("0s", "1h")), "totl", "total"),
}  # fmt: skip


@pytest.mark.parametrize("step", BEHIND)
def test_a_typo_behind_a_step_is_told_while_building(step: str) -> None:
    build, typo, meant = BEHIND[step]
    p = Pipeline("columns")
    made = build(sales(p))
    hint = f"no column {typo!r} \\(did you mean {meant!r}"
    for use in (
        lambda: made.key_by().window(tumbling("1h")).aggregate(x=agg.max(typo)),
        lambda: made.key_by(typo),
        lambda: made.select(x=pc.field(typo) + 1),
        lambda: made.filter(pc.field(typo) > 1),
        lambda: made.sql(f"SELECT {typo} + 1 AS x FROM stream"),
        lambda: made.key_by().window(tumbling("1h"), emit=every(5)).top(1, by=typo),
    ):
        with pytest.raises(InvalidPipeline, match=hint):
            use()
    made.key_by().window(tumbling("1h")).aggregate(x=agg.max(meant)).named("right")
    p.validate()


def test_the_names_of_records_in_memory_are_known() -> None:
    p = Pipeline("columns")
    s = p.read("in", sources.memory([{"a": 1}, {"b": 2}]))
    with pytest.raises(InvalidPipeline, match="no column 'c'"):
        s.key_by("c")
    s.key_by().aggregate(a=agg.sum("a"), b=agg.sum("b"))
    assert sources.memory([]).columns() is None
    assert sources.memory([{"a": 1}, 5]).columns() is None


def test_late_records_have_the_columns_of_the_stream_they_come_from() -> None:
    p = Pipeline("columns")
    keyed = sales(p).key_by("shop")
    keyed.window(tumbling("1h"), late=to("late")).count()
    with pytest.raises(InvalidPipeline, match="did you mean 'price'"):
        p.stream("late").key_by("prise")
    # Two windows may send to one stream: it then has the columns of both.
    keyed.select("shop", cents="price").window(tumbling("1h"), late=to("late")).count()
    p.stream("late").key_by("cents")
    with pytest.raises(InvalidPipeline, match="no column 'prize'"):
        p.stream("late").key_by("prize")
    p.compute(Anything, inputs={"sales": None}, outputs="late")
    p.stream("late").key_by("prize").count()
    p.validate()


def test_what_is_not_known_is_not_refused() -> None:
    p = Pipeline("columns")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.filter(pc.field("a", "b") > 1)
    sales(p).union(s).key_by("anything").count()
    s.select("a", b=pc.struct_field(pc.field("c"), [0])).filter(pc.utf8_upper(pc.field("a")) == "A")
    sales(p, "more").sql("SELECT list_transform([price], lambda x: x + 1) AS l FROM stream")
    sales(p, "times").select(when="timestamp", later=pc.field("timestamp") + 1)
    p.validate()


def test_same_window_asks_for_rows_of_a_window() -> None:
    p = Pipeline("columns")
    with pytest.raises(InvalidPipeline, match="come from a window"):
        sales(p).key_by().window(same_window()).count()


def test_what_is_no_number_is_not_added_up() -> None:
    keyed = sales(Pipeline("columns")).filter(pc.field("price") > 1).key_by("shop")
    for aggregate in (agg.sum("shop"), agg.mean("shop"), agg.quantiles("shop", 0.5)):
        with pytest.raises(InvalidPipeline, match="column 'shop' is string, and numbers"):
            keyed.aggregate(x=aggregate)
    keyed.aggregate(low=agg.min("shop"), n=agg.count("shop"), mean=agg.mean("price"))


def test_a_declared_schema_is_what_comes_out() -> None:
    p = Pipeline("columns")
    sales(p).map(lambda v: {"shop": v.shop, "euros": v.price}, schema=Priced).named("priced")
    with Harness(p) as h:
        h.send("sales", {"shop": "a", "price": 5, "at": 1})
        assert h.read("priced") == [{"shop": "a", "euros": 5.0}]
    assert p.freeze().graph.schemas["priced"].arrow.field("euros").type == pa.float64()
