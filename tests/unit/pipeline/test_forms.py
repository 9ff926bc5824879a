"""Steps without a key: what comes of a record does not depend on who else is in its epoch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace import InvalidPipeline, InvalidRecord, Pipeline, UserCodeError, sources, to
from headrace.operators.columns.expressions import columns_read, is_column
from headrace.testing import Harness

X = pc.field("x")
KINDS: list[Any] = [
    None, True, 3, -1, 2**53 + 1, 2**62, 2**63, 2**70, -(2**70), 0.5, -0.0, 3.0, float("inf"),
    "text", "", b"bytes", [1, 2], [1, "a"], [], {"a": 1}, {"a": "b"}, {},
]  # fmt: skip
Build = Callable[[Any], Any]

STEPS: dict[str, Build] = {
    "select names": lambda s: s.select("n", "x", y="x"),
    "select field": lambda s: s.select("n", y=X),
    "select": lambda s: s.select("n", y=pc.divide(X, 2), errors=to("dead")),
    "select more": lambda s: s.select("n", y=X + 1, z=pc.field("n") * 2, errors=to("dead")),
    "select null": lambda s: s.select("n", y=pc.if_else(X.is_null(), 0, X), errors=to("dead")),
    "filter": lambda s: s.filter(X > 1, errors=to("dead")),
    "filter n": lambda s: s.filter(pc.field("n") != 1),
    "split": lambda s: s.split(
        big=X > 2, text=pc.starts_with(X, "t"), rest=None, errors=to("dead")
    )["rest"],
    "map_table": lambda s: s.map_table(lambda t: t, errors=to("dead")),
    "map_table sum": lambda s: s.map_table(
        lambda t: t.select(["n"]).append_column("y", pc.add(t["x"], 1)), errors=to("dead")
    ),
    "sql": lambda s: s.sql("SELECT n, x // 2 AS y, x FROM stream", errors=to("dead")),
    "sql *": lambda s: s.sql("SELECT * FROM stream"),
    "sql * where": lambda s: s.sql(
        "SELECT *, n + 1 AS m FROM stream WHERE x IS NOT NULL", errors=to("dead")
    ),
    "sql narrowed": lambda s: s.sql("SELECT * EXCLUDE (t) FROM stream", errors=to("dead")),
    "sql cast": lambda s: s.sql("SELECT n, CAST(x AS INTEGER) AS y FROM stream", errors=to("dead")),
    "sql nothing": lambda s: s.sql("SELECT 1 AS one FROM stream WHERE nowhere IS NULL"),
    "twice": lambda s: s.select("n", y=pc.if_else(X.is_null(), X, X), errors=to("dead")).select(
        "n", z=pc.if_else(pc.field("y").is_null(), 0, pc.field("y")), errors=to("dead")
    ),
}


def outcome(step: Build, records: list[Any], *, cut: bool) -> list[Any]:
    """Rows and dead letters, in order."""
    p = Pipeline("forms")
    s = p.read("in", sources.memory([], timestamp="t"))
    step(s).named("out") if step is not STEPS["split"] else step(s)
    with Harness(p) as h:
        for batch in [[r] for r in records] if cut else [records]:
            h.send("in", *batch)
        h.end()
        name = "in.rest" if step is STEPS["split"] else "out"
        dead = []
        if "dead" in h._outputs:
            dead = [(letter["value"], letter["error"]) for letter in h.read("dead")]
            dead.sort(key=lambda told: told[0].get("n", told[0].get("t", 0)))
        return [h.records(name), dead]


def records_of(cells: list[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for n, cell in enumerate(cells):
        found.append({"t": n + 1, "n": n, "x": cell})
    found.append({"t": len(found) + 1, "n": len(found)})  # without the column
    return found


@pytest.mark.parametrize("name", STEPS)
def test_a_step_makes_the_same_of_each_record_whoever_else_is_in_its_epoch(name: str) -> None:
    records = records_of(KINDS)
    together = outcome(STEPS[name], records, cut=False)
    apart = outcome(STEPS[name], records, cut=True)
    assert repr(together) == repr(apart)
    rows, dead = together
    taken = {"split": lambda r: True}.get(name)
    if taken is None and not name.startswith(("filter", "sql * where")):
        assert len(rows) + len(dead) == len(records)


@settings(max_examples=15, phases=(Phase.explicit, Phase.generate), deadline=None)
@given(st.data())
def test_records_of_random_kinds_pass_every_step_alike_however_cut(data: Any) -> None:
    cells = data.draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=6))
    name = data.draw(st.sampled_from(sorted(STEPS)))
    records = records_of(cells)
    together = outcome(STEPS[name], records, cut=False)
    assert repr(together) == repr(outcome(STEPS[name], records, cut=True))


def rows(step: Build, *records: Any) -> list[Any]:
    values = [{"t": i + 1, **r} if isinstance(r, dict) else r for i, r in enumerate(records)]
    return [value for value, _ in outcome(step, values, cut=False)[0]]


def test_numbers_stay_what_they_are_beside_others() -> None:
    assert rows(lambda s: s.select(y=pc.divide(X, 2)), {"x": 3}, {"x": 0.5}) == [
        {"y": 1}, {"y": 0.25},
    ]  # fmt: skip
    found = rows(lambda s: s.sql("SELECT x // 2 AS y FROM stream"), {"x": 3}, {"x": 0.5})
    assert repr(found) == repr([{"y": 1}, {"y": 0.25}])
    found = rows(lambda s: s.select(y=X + 1), {"x": 2**53}, {"x": 0.5})
    assert found == [{"y": 2**53 + 1}, {"y": 1.5}]


def test_a_named_column_is_handed_through_whatever_it_holds() -> None:
    given = [{"x": cell} for cell in KINDS] + [{}]
    expected = [*KINDS, None]
    for step in (lambda s: s.select("x"), lambda s: s.sql("SELECT x FROM stream")):
        assert repr(rows(step, *given)) == repr([{"x": cell} for cell in expected])


def test_a_star_stands_for_the_columns_of_each_record() -> None:
    found = rows(lambda s: s.sql("SELECT *, 1 AS one FROM stream"), {"a": 1}, {"b": [1, "x"]})
    assert found == [{"t": 1, "a": 1, "one": 1}, {"t": 2, "b": [1, "x"], "one": 1}]


def test_a_key_that_one_record_lacks_is_that_records_error_behind_sql() -> None:
    def step(s: Any) -> Any:
        return s.sql("SELECT * FROM stream").dedup(("k", "p"), within="0us", errors=to("dead"))

    records = [{"t": 1, "k": "a"}, {"t": 2, "k": "a", "p": "x"}]
    together, apart = (outcome(step, records, cut=cut) for cut in (False, True))
    assert repr(together) == repr(apart)
    assert [value for value, _ in together[0]] == [records[1]]


def test_wide_integers_pass_sql_and_are_told_by_expressions() -> None:
    query = "SELECT x + 1 AS y, x > 5 AS big FROM stream"
    found = rows(lambda s: s.sql(query), {"x": 2**70}, {"x": 5}, {"x": 2**63})
    assert found == [
        {"y": 2**70 + 1, "big": True}, {"y": 6, "big": False}, {"y": 2**63 + 1, "big": True},
    ]  # fmt: skip
    _, dead = outcome(
        lambda s: s.filter(X > 5, errors=to("dead")),
        [{"t": 1, "x": 7}, {"t": 2, "x": 2**63}],
        cut=False,
    )
    assert dead == [
        (
            {"t": 2, "x": 2**63},
            "InvalidRecord: column 'x': an integer of 64 bits is too wide for it",
        )
    ]


def test_only_the_record_that_overflows_goes_aside() -> None:
    records = [{"t": i + 1, "x": 2**63 - 1 if i in (3, 70) else i} for i in range(100)]
    for step in (
        lambda s: s.select("x", y=X + 1, errors=to("dead")),
        lambda s: s.sql("SELECT x, x + 1 AS y FROM stream", errors=to("dead")),
        lambda s: s.map_table(
            lambda t: t.append_column("y", pc.add_checked(t["x"], 1)), errors=to("dead")
        ),
    ):
        made, dead = outcome(step, records, cut=False)
        assert [value["x"] for value, _ in made] == [i for i in range(100) if i not in (3, 70)]
        assert [value["t"] for value, _ in dead] == [4, 71]
        assert all("verflow" in error for _, error in dead)


def test_what_an_expression_cannot_take_is_told_with_the_record() -> None:
    for step in (lambda s: s.filter(X > 1), lambda s: s.sql("SELECT x + 1 AS y FROM stream")):
        p = Pipeline("forms")
        step(p.read("in", sources.memory([], timestamp="t")))
        with Harness(p) as h, pytest.raises(UserCodeError, match=r"record \{'t': 2, 'x': 'text'\}"):
            h.send("in", {"t": 1, "x": 1}, {"t": 2, "x": "text"})
            h.settle()


def test_errors_of_a_condition_are_of_records_that_reach_it() -> None:
    def step(s: Any) -> Any:
        return s.split(text=pc.field("kind") == "text", big=X > 1, rest=None)["rest"]

    values = [{"t": 1, "kind": "text", "x": "a"}, {"t": 2, "kind": "n", "x": 0}]
    p = Pipeline("forms")
    step(p.read("in", sources.memory([], timestamp="t")))
    with Harness(p) as h:
        h.send("in", *values)
        assert (h.read("in.text"), h.read("in.rest")) == ([values[0]], [values[1]])


def test_a_functions_tables_are_runs_of_one_form() -> None:
    seen: list[tuple[list[Any], int]] = []

    def look(table: pa.Table) -> pa.Table:
        seen.append((table.schema.types[1:-1], table.num_rows))
        return table

    cells = [1, 2, "a", None, 3, 4.0, 2**63]
    records = [{"t": i + 1, "x": cell} for i, cell in enumerate(cells)]
    p = Pipeline("forms")
    p.read("in", sources.memory([], timestamp="t")).map_table(look, errors=to("dead")).named("out")
    with Harness(p, picklable=False) as h:
        h.send("in", *records)
        assert h.read("out") == records[:-1]
        assert len(h.read("dead")) == 1
    kinds = [pa.int64(), pa.string(), pa.null(), pa.int64(), pa.float64()]
    assert seen[:5] == [([kind], n) for kind, n in zip(kinds, (2, 1, 1, 1, 1), strict=True)]


def test_values_that_are_no_dicts_are_a_column_value() -> None:
    p = Pipeline("forms")
    s = p.read("in", sources.memory([]))
    s.filter(pc.starts_with(pc.field("value"), "a"), errors=to("dead")).named("filtered")
    s.select("value").named("selected")
    s.sql("SELECT * FROM stream").named("queried")
    values = ["ab", "b", 5, {"value": "a"}, [1, "x"]]
    with Harness(p) as h:
        h.send("in", *values)
        assert h.read("filtered") == ["ab", {"value": "a"}]
        assert [letter["value"] for letter in h.read("dead")] == [5, [1, "x"]]
        as_columns = [v if isinstance(v, dict) else {"value": v} for v in values]
        assert h.read("selected") == h.read("queried") == as_columns


COLUMNS = pa.table({
    "x": pa.array([1, None], pa.int8()), "d": [Decimal("1.50"), None],
    "day": [date(2024, 1, 1), None], "timestamp": [1, 1],
})  # fmt: skip


@pytest.mark.parametrize("keyed", [False, True])
def test_columns_keep_their_values_beside_packed_ones(keyed: bool) -> None:
    p = Pipeline("forms")
    s = p.read("in", sources.memory([], timestamp="t"))
    columns = s.filter(pc.field("n") == 0).map_table(lambda t: COLUMNS)
    both = columns.union(s.filter(pc.field("n") == 1).named("ones")).named("both")
    if keyed:  # they travel in one parcel then
        both = both.dedup(lambda v: str(v.get("x")), within="1us").named("once")
    both.select("x", "d", "day", y=pc.if_else(X.is_null(), 0, 1)).named("out")
    both.sql("SELECT d, day FROM stream WHERE x IS NOT NULL").named("queried")
    with Harness(p) as h:
        h.send("in", {"t": 2, "n": 1, "x": "a", "d": 2**70}, {"t": 1, "n": 0})
        h.end()
        rows = [
            {"x": "a", "d": 2**70, "day": None, "y": 1},
            {"x": 1, "d": Decimal("1.50"), "day": date(2024, 1, 1), "y": 1},
            {"x": None, "d": None, "day": None, "y": 0},
        ]
        assert repr(sorted(h.read("out"), key=repr)) == repr(sorted(rows, key=repr))
        assert [row["d"] for row in h.read("queried")] in (
            [2**70, Decimal("1.50")],
            [Decimal("1.50"), 2**70],
        )


def test_queries_name_columns_in_any_case_and_may_use_their_own_names() -> None:
    given = {"Price": 2, "x": 5}
    query = "SELECT PRICE * 2 AS twice, twice + 1 AS more, x + 1 AS x, price FROM stream s"
    found = rows(lambda s: s.sql(query), given, {"PRICE": 1.5}, {"twice": 10, "price": 3})
    assert repr(found) == repr(
        [
            {"twice": 4, "more": 5, "x": 6, "price": 2},
            {"twice": 3.0, "more": 4.0, "x": None, "price": 1.5},
            {"twice": 6, "more": 11, "x": None, "price": 3},
        ]
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT s.x, s.a.b AS c FROM stream s",
        "SELECT list_transform(l, lambda v: v + 1) AS m FROM stream",
        "SELECT COLUMNS('x|l') FROM stream",
        "SELECT * REPLACE (x + 1 AS x) FROM stream",
        "SELECT x AS y, y + 1 AS z FROM stream WHERE z > 1",
        "SELECT a.*, x FROM stream",
    ],
)
def test_queries_that_only_duckdb_understands_go_by_form_too(query: str) -> None:
    records = [
        {"t": i + 1, "x": cell, "a": {"b": cell}, "l": [cell, cell]}
        for i, cell in enumerate([1, 2.5, 2**40, None])
    ]
    together, apart = (
        outcome(lambda s: s.sql(query, errors=to("dead")), records, cut=cut)
        for cut in (False, True)
    )
    assert repr(together) == repr(apart)
    assert together[0]


def test_a_column_called_twice_is_that_records_error() -> None:
    made, dead = outcome(
        lambda s: s.sql("SELECT *, 1 AS x FROM stream", errors=to("dead")),
        [{"t": 1, "x": 0}, {"t": 2, "y": 0}],
        cut=False,
    )
    assert made == [({"t": 2, "y": 0, "x": 1}, 2)]
    assert [value for value, _ in dead] == [{"t": 1, "x": 0}]
    assert "two columns are called 'x'" in dead[0][1]


@pytest.mark.parametrize(
    ("expression", "names", "plain"),
    [
        (X, ("x",), "x"),
        (pc.scalar(1), (), None),
        (pc.field("a b") + pc.field("it's"), ("a b", "it's"), None),
        (pc.field("s", "t", "u") + X, ("s", "x"), None),
        (pc.if_else(pc.field("s", "t") > 1, pc.field("q", "r"), X), ("s", "q", "x"), None),
        (X.isin([1, 2]) & X.is_valid(), ("x",), None),
        (X.cast("int32"), ("x",), None),
        (pc.field("x" * 500) + pc.field("a\nb"), ("x" * 500, "a\nb"), None),
    ],
)
def test_the_columns_of_an_expression_are_known(
    expression: pc.Expression, names: tuple[str, ...], plain: str | None
) -> None:
    assert set(columns_read(expression)) == set(names)
    assert is_column(expression) == plain


def test_forms_of_sparse_records_keep_the_order_of_records() -> None:
    cells = list(itertools.islice(itertools.cycle([1, None, 2.5, "a", 4]), 500))
    records = [{"t": i + 1, "x": cell} for i, cell in enumerate(cells)]
    made, dead = outcome(lambda s: s.select("t", y=X * 2, errors=to("dead")), records, cut=False)
    assert [value["t"] for value, _ in made] == [i + 1 for i, c in enumerate(cells) if c != "a"]
    assert [value["t"] for value, _ in dead] == [i + 1 for i, c in enumerate(cells) if c == "a"]


def test_a_step_has_the_usual_options() -> None:
    p = Pipeline("forms")
    s = p.read("in", sources.memory([], timestamp="t"))
    with pytest.raises(InvalidPipeline, match="eror"):
        s.sql("SELECT 1 AS n FROM stream", erors=to("dead"))
    assert InvalidRecord is not UserCodeError
