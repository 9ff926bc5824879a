"""Streams with schemas: columns from end to end, classes in hooks, clear mistakes."""

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NotRequired, TypedDict

import msgspec
import pyarrow as pa
import pytest

from headrace import (
    Computation,
    InvalidPipeline,
    Pipeline,
    SourceError,
    UserCodeError,
    sources,
    state,
    to,
)
from headrace.model.values.schema import Schema
from headrace.plan.fingerprint import fingerprint
from headrace.testing import Harness


class Click(msgspec.Struct):
    user: str
    t: int
    price: float = 1.5


@dataclass
class Visit:
    user: str
    t: int
    price: float = 1.5


class Row(TypedDict):
    user: str
    t: int
    price: NotRequired[float | None]


ARROW = pa.schema(
    [
        pa.field("user", pa.string(), nullable=False),
        pa.field("t", pa.int64(), nullable=False),
        ("price", pa.float64()),
    ]
)
SCHEMAS = [Click, Visit, Row, ARROW]


class Shows(Computation):
    """Says what a hook sees."""

    count: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.count += 1
        ctx.produce({"kind": type(record.value).__name__, "key": ctx.key, "n": self.count})


class Ordered(Shows, ordered=True):
    pass


class Passes(Computation):
    def process_record(self, record: Any, ctx: Any) -> None:
        ctx.produce(record.value)


def reading(schema: Any, errors: Any = "stop", **timing: Any) -> Pipeline:
    p = Pipeline("typed")
    source = sources.memory([], timestamp="t", **timing)
    p.read("in", source, schema=schema, errors=errors)
    return p


@pytest.mark.parametrize("schema", SCHEMAS, ids=["struct", "dataclass", "typed dict", "arrow"])
@pytest.mark.parametrize("computation", [Shows, Ordered])
def test_hooks_see_an_object_of_the_class_or_a_dict(schema: Any, computation: Any) -> None:
    p = reading(schema, lateness="10us")
    p.compute(Passes, inputs={"in": None}, outputs="passed")
    p.stream("passed", schema=schema)
    p.compute(computation, inputs={"passed": "user"}, outputs="out")
    with Harness(p) as h:
        h.send("in", {"user": "a", "t": 5}, {"user": "b", "t": 2, "price": 7})
        h.send("in", {"user": "a", "t": 9, "price": "2.5"})
        h.end()
        kind = "dict" if schema in (Row, ARROW) else schema.__name__
        found = [(v["kind"], v["key"], v["n"]) for v in h.read("out")]
        assert sorted(found) == [(kind, "a", 1), (kind, "a", 2), (kind, "b", 1)]
        prices = sorted(v["price"] or 0 for v in h.read("in"))
        assert prices == ([0, 2.5, 7.0] if schema in (Row, ARROW) else [1.5, 2.5, 7.0])


def test_the_rows_are_columns_of_the_declared_types() -> None:
    seen: list[Any] = []

    class Table(Computation):
        def process_table(self, table: Any, ctx: Any) -> None:
            seen.append(table.schema)
            ctx.produce_table(table.select(["user", "t", "price"]))

    p = reading(Click)
    p.compute(Table, inputs={"in": "user"}, outputs="out")
    with Harness(p) as h:
        h.send("in", {"user": "a", "t": 5, "price": 2, "more": "dropped"})
        assert h.read("out") == [{"user": "a", "t": 5, "price": 2.0}]
    assert seen[0].field("price").type == pa.float64()
    assert "more" not in seen[0].names


def test_key_functions_see_the_class() -> None:
    p = reading(Click)
    p.compute(Shows, inputs={"in": lambda click: click.user.upper()}, outputs="out")
    with Harness(p) as h:
        h.send("in", Click("a", 5))
        assert h.read("out") == [{"kind": "Click", "key": "A", "n": 1}]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["struct", "dataclass", "typed dict", "arrow"])
def test_what_does_not_fit_follows_the_policy_and_says_which_column(schema: Any) -> None:
    p = reading(schema, errors=to("dead"))
    with Harness(p) as h:
        h.send("in", {"user": "a", "t": 1, "price": "dear"}, {"t": 2}, {"user": "c", "t": 3})
        h.send("in", {"user": None, "t": 4}, {"user": "c", "t": 5, "price": 1.0})
        assert [v["t"] for v in h.read("in")] == [3, 5]
        reasons = [v["error"] for v in h.read("dead")]
        assert "'price'" in reasons[0] and "float" in reasons[0]
        assert "user" in reasons[1]
        assert "'user'" in reasons[2]


def test_a_column_of_the_wrong_type_stops_the_pipeline_with_its_row() -> None:
    p = Pipeline("typed")
    table = pa.table({"user": ["a", "b"], "t": [1, 2], "price": ["1", "dear"]})
    schema = Schema(Click, where="here")
    batch, reasons = schema.cast(table.to_batches()[0])
    assert reasons == {1: "column 'price' is 'dear', not double"}
    assert batch.column("price").to_pylist() == [1.0, None]
    with pytest.raises(SourceError, match="position 1.*'price'"):
        p = reading(Click)
        p.compute(Shows, inputs={"in": "user"}, outputs="out")
        with Harness(p) as h:
            h.send("in", {"user": "a", "t": 1}, {"user": "a", "t": 1, "price": "dear"})


def test_productions_to_a_stream_with_a_schema_are_checked_under_the_hooks_own_policy() -> None:
    class Makes(Computation):
        def process_record(self, record: Any, ctx: Any) -> None:
            ctx.produce({"user": record.value["u"], "t": 1})

    p = Pipeline("typed")
    p.read("in", sources.memory([], timestamp="t"))
    p.compute(Makes, inputs={"in": "k"}, outputs="made", errors=to("dead"))
    made = p.stream("made", schema=Click)
    p.compute(Shows, inputs={made.name: "user"}, outputs="out")
    with Harness(p) as h:
        h.send("in", {"k": 1, "t": 0, "u": 7}, {"k": 1, "t": 0, "u": "a"})
        assert [v["kind"] for v in h.read("out")] == ["Click"]
        assert "'user': Expected `str`" in h.read("dead")[0]["error"]


def test_a_table_that_does_not_fit_stops_the_pipeline() -> None:
    class Makes(Computation):
        def process_table(self, table: Any, ctx: Any) -> None:
            ctx.produce_table(pa.table({"user": ["a"], "t": ["soon"]}), timestamp=1)

    p = Pipeline("typed")
    p.read("in", sources.memory([], timestamp="t"))
    p.compute(Makes, inputs={"in": None}, outputs="made")
    p.stream("made", schema=Click)
    with pytest.raises(UserCodeError, match="'made', row 0 of a table: column 't' is 'soon'"):
        with Harness(p) as h:
            h.send("in", {"k": 1, "t": 0})


@pytest.mark.parametrize("key", [None, "k"])
def test_a_table_is_cast_once_also_where_rows_that_do_not_fit_are_set_aside(
    key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Makes(Computation):
        def process_table(self, table: Any, ctx: Any) -> None:
            made = pa.table({"user": ["a", "b"], "t": ["1", "soon"]})
            owners = {"causes": [0, 1]} if key is None else {"key_index": [0, 1]}
            ctx.produce_table(made, timestamp=1, **owners)

    casts: list[int] = []
    cast = Schema.cast

    def counted(self: Schema, columns: pa.RecordBatch) -> Any:
        casts.append(columns.num_rows)
        return cast(self, columns)

    monkeypatch.setattr(Schema, "cast", counted)
    p = Pipeline("typed")
    p.read("in", sources.memory([], timestamp="t"))
    p.compute(Makes, inputs={"in": key}, outputs="made", errors=to("dead"))
    p.stream("made", schema=Click)
    with Harness(p, slots=1, twice=False) as h:
        h.send("in", {"k": 1, "t": 0}, {"k": 2, "t": 0})
        assert [made["user"] for made in h.read("made")] == ["a"]
        assert "column 't' is 'soon'" in h.read("dead")[0]["error"]
    assert casts == [2]


def test_rich_types_come_back_as_they_were() -> None:
    class Colour(enum.Enum):
        RED = "red"

    class Part(msgspec.Struct):
        name: str

    class Order(msgspec.Struct, kw_only=True):
        t: datetime
        colour: Colour
        parts: list[Part] = []
        first: Part | None = None

    schema = Schema(Order, where="here")
    order = Order(t=datetime(2026, 1, 1, tzinfo=UTC), colour=Colour.RED, parts=[Part("a")])
    batch, reasons = schema.batch([order])
    assert reasons == {}
    assert batch.schema.field("t").type == pa.timestamp("us", tz="UTC")
    lists = [column.to_pylist() for column in batch.columns]
    assert schema.make(batch.schema.names, lists) == [order]


def test_mistakes_are_found_when_the_pipeline_is_built() -> None:
    p = reading(Click)
    p.compute(Shows, inputs={"in": "usr"}, outputs="out")
    with pytest.raises(InvalidPipeline, match="'usr'.*did you mean 'user'"):
        p.validate()
    p = Pipeline("typed")
    p.read("in", sources.dataframe(pa.table({"user": ["a"]})), schema=Click)
    with pytest.raises(InvalidPipeline, match="no column 't'; there are: user"):
        p.validate()
    with pytest.raises(InvalidPipeline, match="a schema is a dataclass"):
        reading(5)
    with pytest.raises(InvalidPipeline, match=r"Bad\.x: a column is int"):
        reading(type("Bad", (msgspec.Struct,), {"__annotations__": {"x": int | str}}))
    with pytest.raises(InvalidPipeline, match="two schemas"):
        reading(Click).stream("in", schema=Visit)


def test_a_schema_is_part_of_the_fingerprint() -> None:
    prints = {fingerprint(reading(schema).freeze().graph) for schema in (Click, None)}
    assert len(prints) == 2


def test_a_source_with_ids_keeps_its_schema() -> None:
    p = reading(Click, id="user")
    p.compute(Shows, inputs={"in": "user"}, outputs="out")
    with Harness(p) as h:
        h.send("in", Click("a", 5), Click("a", 6))
        assert [v["kind"] for v in h.read("out")] == ["Click"]
