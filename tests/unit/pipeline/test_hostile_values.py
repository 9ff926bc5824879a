"""Values at the edge of what Arrow, Python and a schema hold: each is its own record's matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.spark.support import rows, run_local

from headrace import Pipeline, sinks, sources, to
from headrace.testing import Harness

DEAD = to("dead")
HUGE = 10**5000


def made(build: Callable[[Any], Any], *epochs: list[Any]) -> tuple[list[Any], list[Any]]:
    """What comes out of a step, and what it refuses."""
    p = Pipeline("hostile")
    build(p.read("in", sources.memory([], timestamp="t"))).named("out")
    with Harness(p) as h:
        for epoch in epochs:
            h.send("in", *epoch)
        h.end()
        return h.read("out"), h.read("dead")


TWICE = pa.array([[("x", 1), ("x", 2)], [("y", 1)]], pa.map_(pa.string(), pa.int64()))
FAR = pa.array([2**60, 5]).cast(pa.timestamp("us"))
FAR_DATE = pa.array([2**30, 5], pa.int32()).cast(pa.date32())
LONG = pa.array([2**62, 5]).cast(pa.duration("s"))


@pytest.mark.parametrize("column", [TWICE, FAR, FAR_DATE, LONG], ids=lambda c: str(c.type))
def test_a_cell_that_python_cannot_hold_is_its_records_dead_letter(
    tmp_path: Path, column: pa.Array
) -> None:
    (tmp_path / "in").mkdir()
    table = pa.table({"t": [1, 2], "k": ["a", "b"], "v": column})
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    p = Pipeline("hostile")
    read = p.read("in", sources.parquet(tmp_path / "in", timestamp="t"), errors=DEAD)
    read.map(lambda value: value["k"]).write(sinks.jsonl(tmp_path / "out"))
    p.stream("dead").write(sinks.jsonl(tmp_path / "dead"))
    run_local(p, tmp_path / "state")
    assert rows(tmp_path / "out") == ["b"]
    [letter] = rows(tmp_path / "dead")
    assert "column 'v' is no value of Python" in letter["error"]


@dataclass
class Priced:
    k: str
    n: int | None = None
    d: Decimal | None = None


@pytest.mark.parametrize(
    "value", [{"n": 2**63}, {"n": 2**70}, {"d": Decimal("NaN")}, {"d": Decimal("1e40")}], ids=str
)
def test_what_arrow_cannot_hold_in_a_schema_is_that_records(value: dict[str, Any]) -> None:
    def step(given: dict[str, Any]) -> dict[str, Any]:
        return {"k": "a", **(value if given["bad"] else {"n": 1})}

    records = [{"t": 1, "bad": True}, {"t": 2, "bad": False}]
    out, dead = made(lambda s: s.map(step, schema=Priced, errors=DEAD), records)
    assert [row["n"] for row in out] == [1]
    assert [letter["value"] for letter in dead] == records[:1]


TYPED = pa.schema([("k", pa.string()), ("n", pa.int64())])


@pytest.mark.parametrize("cut", [True, False])
def test_a_table_in_a_schema_is_judged_record_by_record(cut: bool) -> None:
    records = [
        {"t": 1, "k": 5, "n": True},
        {"t": 2, "k": "x", "n": 2},
        {"t": 3, "k": "y", "n": "no number"},
    ]
    epochs = [[record] for record in records] if cut else [records]
    out, dead = made(lambda s: s.map_table(lambda t: t, schema=TYPED, errors=DEAD), *epochs)
    assert out == [{"k": "5", "n": 1}, {"k": "x", "n": 2}]
    assert [letter["value"] for letter in dead] == records[2:]


LENGTH = pc.list_value_length(pc.field("v"))


@pytest.mark.parametrize(
    ("step", "record"),
    [
        (lambda s: s.select(x=LENGTH, errors=DEAD), {"v": [HUGE]}),
        (lambda s: s.lookup([{"v": "x", "z": 1}], on="v", errors=DEAD), {"v": HUGE}),
        (lambda s: s.key_by("k").top(1, by="n", id="id", errors=DEAD), {"k": "a", "v": HUGE}),
    ],
    ids=["select", "lookup", "top"],
)
def test_an_integer_too_long_to_be_shown_is_refused_in_words(step: Any, record: Any) -> None:
    out, dead = made(step, [{"t": 1, **record}])
    assert out == [] and len(dead) == 1 and "4300 digits" not in dead[0]["error"]


@pytest.mark.parametrize("key", [True, 1.5, [1], {"a": 1}, 2**70, None, ""], ids=str)
def test_top_refuses_a_record_without_a_usable_key_as_it_came(key: Any) -> None:
    records = [{"t": 1, "k": key, "id": 1, "n": 1}, {"t": 2, "k": "a", "id": 2, "n": 2}]
    out, dead = made(lambda s: s.key_by("k").top(2, by="n", id="id", errors=DEAD), records)
    assert [row["id"] for row in out] == [2]
    assert [(letter["stream"], letter["value"]) for letter in dead] == [("in", records[0])]


@pytest.mark.parametrize("cell", [[1], {"a": 1}, 5, "x", None])
def test_a_side_input_without_values_in_its_key_matches_nothing(cell: Any) -> None:
    step = lambda s: s.lookup([{"k": None, "z": 1}], on="k", errors=DEAD)  # noqa: E731
    out, dead = made(step, [{"t": 1, "k": cell}])
    assert dead == [] and [row["z"] for row in out] == [None]


def test_a_list_of_a_schema_may_hold_nulls_as_arrows_may(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"t": 1, "l": [1, null]}\n')
    schema = pa.schema([("t", pa.int64()), ("l", pa.list_(pa.int64()))])
    p = Pipeline("hostile")
    source = sources.jsonl(tmp_path / "a.jsonl", timestamp="t")
    p.read("in", source, schema=schema).write(sinks.jsonl(tmp_path / "out"))
    run_local(p, tmp_path / "state")
    assert rows(tmp_path / "out") == [{"t": 1, "l": [1, None]}]


def test_numbers_in_csv_may_begin_with_zeros_or_a_plus(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,n\na,007\nb,+5\nc,-03\n")
    p = Pipeline("hostile")
    p.read("in", sources.csv(tmp_path / "a.csv"), schema=Priced).write(
        sinks.jsonl(tmp_path / "out")
    )
    run_local(p, tmp_path / "state")
    assert [row["n"] for row in rows(tmp_path / "out")] == [7, 5, -3]


@pytest.mark.parametrize("cut", [True, False])
def test_a_column_whose_name_is_no_text_goes_through_untouched(cut: bool) -> None:
    records = [{"t": 0, "n": 0}, {"t": 0, "n": 1, 5: 2.0}]
    epochs = [[record] for record in records] if cut else [records]
    out, dead = made(lambda s: s.sql("SELECT * FROM stream", errors=DEAD), *epochs)
    assert (out, dead) == (records, [])
