"""Lookup tables that refresh: the plan names the version, so every rerun and replay agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.engine.support import driver_of, run
from tests.unit.systems import limited

from headrace import Checkpoint, InvalidPipeline, Pipeline, SourceError, sinks, sources
from headrace.engine.primitives.backups.restoring import restore_backup
from headrace.engine.primitives.backups.taking import back_up
from headrace.operators.lookup.refreshing import RETRY_US, next_try, tables_due
from headrace.plan.fingerprint import fingerprint
from headrace.store.memory import MemoryStore
from headrace.testing import Harness


class Prices:
    """A table outside, which changes."""

    def __init__(self) -> None:
        self.rows: Any = {"tea": {"price": 1}}
        self.reads = 0

    def __call__(self) -> Any:
        self.reads += 1
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows


PRICES = Prices()


@pytest.fixture(autouse=True)
def prices() -> Prices:
    PRICES.__init__()  # type: ignore[misc]
    return PRICES


def read_prices() -> Any:
    return PRICES()


def pipeline(table: Any = read_prices, refresh: Any = "10m") -> Pipeline:
    p = Pipeline("shop")
    sold = p.read("sold", sources.memory([], timestamp="t"))
    sold.lookup(table, on="product", refresh=refresh).named("priced")
    return p


def sale(t: int, product: str = "tea") -> dict[str, Any]:
    return {"product": product, "t": t}


def paid(h: Harness) -> list[Any]:
    return [row["price"] for row in h.read("priced")]


def test_a_table_is_read_again_after_its_time_and_not_before(prices):
    with Harness(pipeline()) as h:
        h.send("sold", sale(1))
        assert paid(h) == [1]
        prices.rows = {"tea": {"price": 2}}
        h.advance("9m")
        h.send("sold", sale(2))
        assert paid(h) == [1, 1] and prices.reads == 1
        h.advance("2m")
        h.send("sold", sale(3))
        h.send("sold", sale(4))
        assert paid(h) == [1, 1, 2, 2] and prices.reads == 2


@pytest.mark.parametrize(
    "at",
    [
        "before-plan-write",
        "after-plan-write",
        "after-job",
        "before-commit-write",
        "after-commit-write",
    ],
)
def test_a_rerun_uses_the_version_that_its_plan_names(at, prices):
    with Harness(pipeline()) as h:
        h.send("sold", sale(1))
        prices.rows = {"tea": {"price": 2}}
        h.settle()
        h.advance("11m")
        h.send("sold", sale(2))
        h.crash(at=at)
        h.settle()
        found = paid(h)
        assert found == [1, 2] and h.crashes == 1
        epochs = h.epoch
        prices.rows = {"tea": {"price": 3}}
        for epoch in range(1, epochs + 1):
            assert not h.replay(epoch).differences
        h.send("sold", sale(3))
        assert paid(h) == [1, 2, 2]


def test_an_equal_table_makes_no_new_version(prices):
    with Harness(pipeline()) as h:
        for t in range(4):
            h.send("sold", sale(t))
            h.advance("11m")
        assert paid(h) == [1] * 4 and prices.reads == 5
        (directory,) = h.store.list("tables")
        assert len(h.store.list(f"tables/{directory}")) == 1


def test_a_table_that_is_away_does_not_stop_the_pipeline(prices, caplog):
    with Harness(pipeline()) as h:
        h.send("sold", sale(1))
        prices.rows = ConnectionError("no route")
        h.advance("11m")
        h.send("sold", sale(2))
        assert paid(h) == [1, 1] and "could not be read again (ConnectionError" in caplog.text
        h.send("sold", sale(3))
        assert prices.reads == 2, "it is not tried at every epoch"
        prices.rows = {"tea": {"price": 5}}
        h.advance("11s")
        h.send("sold", sale(4))
        assert paid(h) == [1, 1, 1, 5]


def test_other_columns_stop_it(prices):
    with pytest.raises(SourceError, match="had the columns product, price, and now has product"):
        with Harness(pipeline()) as h:
            h.send("sold", sale(1))
            prices.rows = {"tea": {"cost": 2}}
            h.advance("11m")
            h.send("sold", sale(2))


def test_other_types_and_no_rows_are_taken_as_they_are(prices):
    with Harness(pipeline()) as h:
        h.send("sold", sale(1))
        prices.rows = pd.DataFrame({"product": ["tea"], "price": ["dear"]})
        h.advance("11m")
        h.send("sold", sale(2))
        h.settle()
        prices.rows = pd.DataFrame({"product": pd.Series([], dtype=str), "price": []})
        h.advance("11m")
        h.send("sold", sale(3))
        assert paid(h) == [1, "dear", None]


EMPTY: list[Any] = [
    [],
    {},
    pd.DataFrame({"product": [], "price": []}),
    pd.DataFrame(),
    pa.table({"product": pa.array([], pa.int64()), "price": pa.array([], pa.string())}),
]


@pytest.mark.parametrize("empty", EMPTY, ids=["list", "dict", "pandas", "no columns", "arrow"])
def test_a_version_without_rows_matches_nothing_and_keeps_the_columns(empty, prices):
    with Harness(pipeline()) as h:
        h.send("sold", sale(1))
        for rows in (empty, {"tea": {"price": 3}}):
            prices.rows = rows
            h.advance("11m")
            h.send("sold", sale(2), sale(3))
            h.settle()
        assert paid(h) == [1, None, None, 3, 3]


@pytest.mark.parametrize("empty", EMPTY, ids=["list", "dict", "pandas", "no columns", "arrow"])
def test_a_first_version_without_rows_matches_nothing_until_there_are_rows(empty, prices):
    prices.rows = empty
    with Harness(pipeline()) as h:
        h.send("sold", sale(1))
        for rows in ({"tea": {"price": 3}}, empty, {"tea": {"price": 4}}):
            prices.rows = rows
            h.advance("11m")
            h.send("sold", sale(2))
            h.settle()
        first, *others = h.read("priced")
        assert first.get("price") is None and [row["price"] for row in others] == [3, None, 4]
        prices.rows = {"tea": {"cost": 2}}
        h.advance("11m")
        with pytest.raises(SourceError, match="had the columns product, price, and now has"):
            h.send("sold", sale(5))
            h.settle()
        prices.rows = {"tea": {"price": 4}}


def test_an_empty_table_that_names_other_columns_is_refused(prices):
    prices.rows = pd.DataFrame({"produce": [], "price": []})
    with pytest.raises(InvalidPipeline, match="no column 'product'"):
        pipeline()


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_bounded_source_is_read_again(kind, tmp_path: Path):
    file = tmp_path / f"prices.{kind}"

    def write(price: int) -> None:
        frame = pd.DataFrame({"product": ["tea"], "price": [price]})
        if kind == "jsonl":
            file.write_text(json.dumps({"product": "tea", "price": price}) + "\n")
        elif kind == "csv":
            frame.to_csv(file, index=False)
        else:
            frame.to_parquet(file)

    write(1)
    with Harness(pipeline(getattr(sources, kind)(str(file)))) as h:
        h.send("sold", sale(1))
        write(2)
        h.advance("11m")
        h.send("sold", sale(2))
        assert [int(price) for price in paid(h)] == [1, 2]


def written(refresh: str = "1us") -> tuple[Pipeline, MemoryStore]:
    p = Pipeline("shop")
    sold = p.read("sold", sources.memory([sale(t) for t in range(12)], timestamp="t"))
    sold.lookup(read_prices, on="product", refresh=refresh).write(sinks.memory())
    limits = {"collect_every_epochs": 1, "snapshot_every_epochs": 3, "log_directory_entries": 4}
    return p, MemoryStore(limited(**limits))


def test_versions_are_kept_as_long_as_a_retained_epoch_needs_them(prices):
    p, store = written()
    driver = driver_of(p.freeze(), store, retain_epochs=3, epoch_records=1)
    names: list[set[str]] = []
    for n in range(10):
        prices.rows = {"tea": {"price": n}}
        run(driver, 1)
        (directory,) = store.list("tables")
        names.append(set(store.list(f"tables/{directory}")))
    assert 2 <= len(names[-1]) <= 5, "old versions are collected, those of the window stay"
    assert len(set().union(*names)) >= 8
    assert Checkpoint(store).verify().problems == []


def test_backups_have_the_version_and_a_new_driver_goes_on_with_it(prices):
    p, store = written("10m")
    driver = driver_of(p.freeze(), store, epoch_records=3)
    run(driver, 2)
    prices.rows = {"tea": {"price": 9}}
    place, to = MemoryStore(), MemoryStore()
    back_up(store, place)
    restore_backup(place, to)
    assert to.list("tables") and Checkpoint(to).verify().problems == []


def test_a_start_with_an_empty_table_goes_on_with_the_columns_of_the_last_version(prices):
    p, store = written()
    before = p.freeze()
    run(driver_of(before, store, epoch_records=3), 2)
    prices.rows = []
    p, _ = written()
    topology = p.freeze()
    assert fingerprint(topology.graph) == fingerprint(before.graph)
    driver = driver_of(topology, store, epoch_records=3)
    run(driver, 1)
    prices.rows = {"tea": {"cost": 2}}
    with pytest.raises(SourceError, match="had the columns product, price, and now has"):
        run(driver, 2)
    [outlet] = topology.graph.outlets.values()
    assert {row["price"] for row in outlet.sink.rows} == {1, None}


def test_a_start_with_other_columns_reads_the_table_before_its_time(prices, caplog):
    p, store = written("10m")
    run(driver_of(p.freeze(), store, epoch_records=3), 1)
    prices.rows = {"tea": {"price": 2, "cost": 5}}
    p, _ = written("10m")
    topology = p.freeze()
    prices.rows = ConnectionError("no route")
    run(driver_of(topology, store, epoch_records=3), 1)
    assert "could not be read again" in caplog.text
    prices.rows = {"tea": {"price": 3, "cost": 6}}
    reads = prices.reads
    run(driver_of(topology, store, epoch_records=3), 2)
    [outlet] = topology.graph.outlets.values()
    *_, last = outlet.sink.rows
    assert (last["price"], last["cost"]) == (3, 6) and prices.reads == reads + 1


@pytest.mark.parametrize(
    ("table", "refresh", "message"),
    [
        ({"tea": {"price": 1}}, "10m", "refresh= needs a table that can be read again"),
        (read_prices, "0s", "refresh= is longer than nothing"),
        (lambda: 3, "10m", "a lookup table is a pandas"),
    ],
)
def test_what_cannot_be_refreshed_is_refused(table, refresh, message):
    with pytest.raises(InvalidPipeline, match=message):
        pipeline(table, refresh)


def test_when_a_table_is_due():
    every = {"a": 50}
    assert tables_due({"a": None}, every, {}, 100) == ["a"]
    assert tables_due({"a": 100}, every, {}, 149) == []
    assert tables_due({"a": 100}, every, {}, 150) == ["a"]
    assert tables_due({"a": 100}, every, {"a": 160}, 150) == []
    assert next_try(0, 50) == 50 and next_try(0, 10 * RETRY_US) == RETRY_US
