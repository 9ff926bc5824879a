"""SQL over state: which queries are refused, and what they are told."""

from __future__ import annotations

import pytest

from headrace import Checkpoint, Computation, Map, Pipeline, sources, state
from headrace.errors import InvalidPipeline
from headrace.testing import Harness


class Pages(Computation):
    n: int = state(0)
    m: Map[str, int] = state()

    def process_record(self, record, ctx):
        self.n += record.value["n"]
        self.m["q"] = self.n


def checkpoint(*names: str) -> Checkpoint:
    """A checkpoint with a computation of each name."""
    p = Pipeline("pages")
    p.read("in", sources.memory([], timestamp="t"))
    for name in names:
        p.compute(Pages, inputs={"in": "k"}, name=name)
    with Harness(p) as h:
        h.send("in", {"k": "a", "n": 1, "t": 1}, {"k": "b", "n": 3, "t": 1})
        h.settle()
        return Checkpoint(h.store)


def test_columns_of_one_name_are_refused_in_rows_and_both_are_in_a_table() -> None:
    found = checkpoint("Pk")
    query = "SELECT a.*, b.* FROM Pk a JOIN Pk b ON a.n < b.n"
    with pytest.raises(InvalidPipeline, match="called 'key'.*give one an alias"):
        list(found.rows(query))
    assert found.sql(query).num_columns == 6
    aliased = "SELECT a.key, b.key AS other FROM Pk a JOIN Pk b ON a.n < b.n"
    assert list(found.rows(aliased)) == [{"key": "a", "other": "b"}]


@pytest.mark.parametrize("name", ["state", "State"])
def test_a_computation_called_state_is_not_taken_for_the_one_that_was_named(name: str) -> None:
    found = checkpoint(name, "Orders")
    with pytest.raises(InvalidPipeline, match=f"is called '{name}'.*leave NAME out"):
        list(found.rows("SELECT sum(n) AS n FROM state", "Orders"))
    for computation in (None, name):
        assert list(found.rows("SELECT sum(n) AS n FROM state", computation)) == [{"n": 4}]
    assert list(found.rows("SELECT sum(n) AS n FROM Orders")) == [{"n": 4}]


def test_a_query_that_fails_in_a_late_row_is_refused_as_one_that_fails_at_once() -> None:
    """Whether rows come before the error depends on how DuckDB's threads run."""
    found = checkpoint("Pk")
    late = "CAST(CASE WHEN i = 600000 THEN 'x' ELSE '1' END AS INT)"
    query = f"SELECT {late} AS c FROM range(600001) t(i)"
    for ask in (lambda: found.sql(query), lambda: sum(1 for _ in found.rows(query))):
        with pytest.raises(InvalidPipeline, match=r"'x'[^$]*tables are .*\"Pk\""):
            ask()


@pytest.mark.parametrize("query", ["", " ", ";", "-- nothing", "/* nothing */ ;"])
@pytest.mark.parametrize("computation", [None, "Pk"])
def test_an_empty_query_is_refused_with_the_tables(query: str, computation: str | None) -> None:
    found = checkpoint("Pk")
    for ask in (
        lambda: found.sql(query, computation),
        lambda: list(found.rows(query, computation)),
    ):
        with pytest.raises(InvalidPipeline, match='the query is empty.*"Pk"'):
            ask()


def test_what_is_no_sql_is_told_with_the_tables() -> None:
    with pytest.raises(InvalidPipeline, match='(?s)syntax error.*"Pk"'):
        checkpoint("Pk").sql("SELECT (")
