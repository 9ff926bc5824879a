"""Look-ups in lookup tables: against DuckDB, from every kind of frame, with clear mistakes."""

import pickle
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headrace import InvalidPipeline, InvalidRecord, Pipeline, sources, to
from headrace.operators.lookup.index import LookupIndex
from headrace.operators.lookup.table import LookupTable, lookup_table
from headrace.pipeline.fluent.lookups import lookup
from headrace.plan.fingerprint import fingerprint
from headrace.testing import Harness

CITIES = [{"city": "a", "country": 1}, {"city": "b", "country": 2}]


def run(table: Any, values: list[dict[str, Any]], **options: Any) -> list[Any]:
    p = Pipeline("looked up")
    p.read("in", sources.memory([], timestamp="t"))
    lookup(p.catalog, "in", table, name="out", **options)
    with Harness(p) as h:
        h.send("in", *values)
        h.end()
        return h.records("out")


def visits(*cities: Any) -> list[dict[str, Any]]:
    return [{"t": i, "city": city} for i, city in enumerate(cities)]


def polars_frame() -> Any:
    return pytest.importorskip("polars", reason="polars is not installed").DataFrame(CITIES)


@pytest.mark.parametrize(
    "make",
    [
        lambda: CITIES,
        lambda: pa.Table.from_pylist(CITIES),
        lambda: pa.RecordBatch.from_pylist(CITIES),
        lambda: pd.DataFrame(CITIES, index=[7, 8]),
        lambda: pd.DataFrame(CITIES).astype({"city": "category"}),
        polars_frame,
        lambda: polars_frame().lazy(),
        lambda: {"a": {"country": 1}, "b": {"country": 2}},
        lambda: sources.memory(CITIES),
        lambda: sources.dataframe(pa.Table.from_pylist(CITIES)),
    ],
    ids=["list", "table", "batch", "pandas", "categories", "polars", "lazy", "dict", "memory",
         "dataframe"],
)  # fmt: skip
def test_every_kind_of_table_can_be_looked_up(make: Any) -> None:
    found = run(make(), visits("b", "x", None, "a"), on="city")
    assert [(v["city"], v["country"], t) for v, t in found] == [
        ("b", 2, 0), ("x", None, 1), (None, None, 2), ("a", 1, 3),
    ]  # fmt: skip


def test_a_file_can_be_looked_up(tmp_path: Path) -> None:
    (tmp_path / "cities.csv").write_text("city,country\na,1\nb,2\n")
    found = run(sources.csv(str(tmp_path / "*.csv")), visits("b"), on="city", how="inner")
    assert [v["country"] for v, _ in found] in ([2], ["2"])


def test_a_dict_of_plain_values_gives_the_column_value() -> None:
    assert [v["value"] for v, _ in run({1: "one"}, [{"t": 0, "n": 1}], on="n")] == ["one"]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_look_up_is_the_join_of_sql(how: str) -> None:
    dice = np.random.default_rng(7)

    def cell() -> int | None:
        drawn = int(dice.integers(0, 5))
        return None if drawn == 4 else drawn

    rows = [{"t": i, "x": cell(), "y": cell()} for i in range(60)]
    side = [{"x": cell(), "z": cell(), "n": i} for i in range(20)]
    table = pa.Table.from_pylist(side)
    found = run(table, rows, on={"x": "x", "y": "z"}, how=how)
    with duckdb.connect() as db:
        db.register("l", pa.Table.from_pylist(rows))
        db.register("r", table)
        word = {"inner": "JOIN", "left": "LEFT JOIN"}[how]
        expected = db.execute(
            f"SELECT l.t, l.x, l.y, n FROM l {word} r ON l.x = r.x AND l.y = r.z"
        ).fetchall()
    assert Counter((v["t"], v["x"], v["y"], v["n"]) for v, _ in found) == Counter(expected)
    assert all(v["t"] == t for v, t in found)
    times = [t for _, t in found]
    assert times == sorted(times), "rows keep their order"


def test_an_empty_side_input_matches_nothing() -> None:
    empty = pa.table({"city": pa.array([], pa.string()), "country": pa.array([], pa.int64())})
    assert [v["country"] for v, _ in run(empty, visits("a"), on="city")] == [None]
    assert run(empty, visits("a"), on="city", how="inner") == []


def test_mistakes_are_found_when_the_pipeline_is_built() -> None:
    with pytest.raises(InvalidPipeline, match="'cty'.*did you mean 'city'"):
        run(CITIES, [], on={"city": "cty"})
    with pytest.raises(InvalidPipeline, match="'contry'.*did you mean 'country'"):
        run(CITIES, [], on={"contry": "city"}, columns=("country", "t"))
    with pytest.raises(InvalidPipeline, match="both have a column 'country'"):
        run(CITIES, [], on="city", columns=("city", "country"))
    with pytest.raises(InvalidPipeline, match='"inner" or "left"'):
        run(CITIES, [], on="city", how="full")
    with pytest.raises(InvalidPipeline, match="not int"):
        run(5, [], on="city")
    with pytest.raises(InvalidPipeline, match="rows of a lookup table are dicts, not"):
        run([("a", 1)], [], on="city")
    with pytest.raises(InvalidPipeline, match="cannot be looked up by 'city', a column of list"):
        run([{"city": ["a"], "country": 1}], [], on="city")


def test_mistakes_in_records_say_which_column() -> None:
    with pytest.raises(InvalidRecord, match="both have a column 'country'"):
        run(CITIES, [{"t": 0, "city": "a", "country": 3}], on="city")
    with pytest.raises(InvalidRecord, match="'city' is list.*is text"):
        run(CITIES, [{"t": 0, "city": [1]}], on="city")


@pytest.mark.parametrize(
    ("table", "cell", "message"),
    [
        ({1: "one"}, "1", "'n' is text.*is a number: make them alike"),
        ({"1": "one"}, 1, "'n' is a number.*is text"),
        ({1: "one"}, True, "'n' is a truth value.*is a number"),
    ],
)
def test_text_and_numbers_are_not_alike_and_are_told_apart(
    table: Any, cell: Any, message: str
) -> None:
    with pytest.raises(InvalidRecord, match=message):
        run(table, [{"t": 0, "n": cell}], on="n")
    for errors in (to("dead"), to("dead", only=ValueError)):
        p = Pipeline("looked up")
        p.read("in", sources.memory([], timestamp="t"))
        lookup(p.catalog, "in", table, on="n", name="out", errors=errors)
        with pytest.raises(InvalidRecord) if errors.only[0] is ValueError else nullcontext():
            with Harness(p) as h:
                h.send("in", {"t": 0, "n": cell}, {"t": 1, "n": None}, {"t": 2})
                assert [v.get("n") for v in h.read("out")] == [None, None]
                assert [(d["value"], d["stream"]) for d in h.read("dead")] == [
                    ({"t": 0, "n": cell}, "in"),
                ]


def test_numbers_are_equal_by_value_whatever_their_types() -> None:
    table = {1: "one", 2: "two"}
    found = run(table, [{"t": 0, "n": n} for n in (1, 1.0, 1.5, 2**70 % 2**64)], on="n")
    assert [v["value"] for v, _ in found] == ["one", "one", None, None]
    found = run(pa.table({"n": [1.0, 2.5], "value": ["a", "b"]}), [{"t": 0, "n": 1}], on="n")
    assert [v["value"] for v, _ in found] == ["a"]


@pytest.mark.parametrize("given", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_columns_of_floats_are_equal_by_value(given: pa.DataType, kind: pa.DataType) -> None:
    index = LookupIndex(pa.table({"k": pa.array([1, -0.0, 2], kind)}), ("k",))
    for zero in (0.0, -0.0):
        found = index.find([pa.array([zero, 2, 5], given)])
        assert found is not None and [part.tolist() for part in found] == [[0, 1], [1, 2]]
        assert index.rows_of([("k", zero)], "here") == [1]


def test_entries_of_a_dict_may_have_different_columns_and_an_empty_one_matches_nothing() -> None:
    table = {"a": {"x": 1}, "b": {"y": 2}, "c": 3}
    found = run(table, visits("a", "b", "c"), on="city")
    assert [(v["x"], v["y"], v["value"]) for v, _ in found] == [
        (1, None, None), (None, 2, None), (None, None, 3),
    ]  # fmt: skip
    assert [v for v, _ in run({}, visits("a"), on="city")] == visits("a")


def test_a_named_index_of_pandas_and_categories_of_polars_are_columns() -> None:
    frame = pd.DataFrame({"country": [1]}, index=pd.Index(["a"], name="city"))
    assert [v["country"] for v, _ in run(frame, visits("a"), on="city")] == [1]
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars_frame().with_columns(polars.col("city").cast(polars.Categorical))
    assert [v["country"] for v, _ in run(frame, visits("b"), on="city")] == [2]


def test_records_of_all_forms_look_the_same_however_the_input_is_cut() -> None:
    rows = [{"t": 0, "city": "a"}, {"t": 1, "city": "a", "x": 1}, {"t": 2, "city": "b", "x": 1.5},
            {"t": 3, "city": None}, {"t": 4, "city": "b", "x": [1]}]  # fmt: skip

    def found(cuts: list[int]) -> list[str]:
        p = Pipeline("looked up")
        p.read("in", sources.memory([], timestamp="t"))
        lookup(p.catalog, "in", CITIES, on="city", name="out")
        with Harness(p) as h:
            for start, end in zip([0, *cuts], cuts, strict=False):
                h.send("in", *rows[start:end])
            return [repr(v) for v in h.read("out")]

    assert found([5]) == found([1, 2, 3, 4, 5])
    assert found([5])[:2] == [
        "{'t': 0, 'city': 'a', 'country': 1}",
        "{'t': 1, 'city': 'a', 'x': 1, 'country': 1}",
    ]


def test_a_side_input_is_part_of_the_fingerprint_and_unpacked_once() -> None:
    def prints(rows: Any) -> str:
        p = Pipeline("p")
        p.read("in", sources.memory([]))
        lookup(p.catalog, "in", rows, on="city")
        return fingerprint(p.freeze().graph)

    assert prints(CITIES) == prints(list(CITIES))
    assert prints(CITIES) != prints(CITIES[:1])
    shipped = pickle.dumps(lookup_table(CITIES, key=("city",), where="here"))
    first, second = pickle.loads(shipped), pickle.loads(shipped)
    assert isinstance(first, LookupTable)
    assert first.table is second.table
    assert first.table.to_pylist() == CITIES
