"""The same answers as plain Python, however the input is cut, ordered and spread over slots."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.reference.exchange import exchange as plain_exchange
from tests.reference.word_count import word_count as plain_word_count
from tests.spark.pipelines import exchange, make_trades, word_count, write_trades
from tests.spark.support import bag, rows, run_local, state_of, write_jsonl

from headrace import Pipeline, RunSummary, sources
from headrace.demo.queries import LATENESS, make_log, write_log
from headrace.demo.reference import Finding, reference, region_counts
from headrace.demo.zeitgeist import log_source, zeitgeist

ONE_EPOCH = 1_000_000
SLOTS = [1, 2, 5]
LINES = [
    line
    for number in range(60)
    for line in (
        "The mill-race runs, the mill wheel turns;",
        "" if number % 7 else "Don't let the wheel stop. THE END",
        f"stone {'grinds ' * (number % 5)}grain number {number} é ü",
    )
]


def run(
    spark: SparkSession | None, pipeline: Pipeline, checkpoint: Path, **options: Any
) -> RunSummary:
    if spark is None:
        return run_local(pipeline, checkpoint, **options)
    return pipeline.run(checkpoint=str(checkpoint), spark=spark, **options)


def check_word_count(spark: SparkSession | None, where: Path, **options: Any) -> RunSummary:
    books = where / "books"
    books.mkdir()
    (books / "one.txt").write_text("\n".join(LINES[:100]))
    (books / "two.txt").write_text("\n".join(LINES[100:]) + "\n")
    pipeline = word_count(sources.text(str(books / "*.txt")), where / "out")
    summary = run(spark, pipeline, where / "checkpoint", **options)
    expected = plain_word_count(LINES)
    told = rows(where / "out")
    assert {row["word"]: row["count"] for row in told} == expected
    assert len(told) == len(expected), "no word is told twice"
    counts = state_of(where / "checkpoint")["WordCount"]
    assert {word: fields["count"] for word, fields in counts.items()} == expected
    assert summary.records == len(LINES)
    return summary


def check_exchange(
    spark: SparkSession | None, where: Path, trades: dict[str, list[dict[str, Any]]], **options: Any
) -> RunSummary:
    pipeline = exchange(write_trades(trades, where / "in"), where / "out")
    summary = run(spark, pipeline, where / "checkpoint", **options)
    closed, payments, totals = plain_exchange(trades)
    assert bag(rows(where / "out" / "closed")) == bag(closed)
    assert bag(rows(where / "out" / "payments")) == bag(payments)
    state = state_of(where / "checkpoint")
    assert {account: fields["paid"] for account, fields in state["Pay"].items()} == totals
    assert (summary.late, summary.notes) == (0, ())
    assert max(payment["step"] for payment in payments) >= 3, "the loop goes round"
    return summary


@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("epoch_records", [ONE_EPOCH, 7])
def test_word_count_agrees_with_plain_python(
    tmp_path: Path, slots: int, epoch_records: int
) -> None:
    summary = check_word_count(None, tmp_path, slots=slots, epoch_records=epoch_records)
    assert summary.epochs == 2 if epoch_records == ONE_EPOCH else summary.epochs > 20


@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("epoch_records", [ONE_EPOCH, 200, 23])
@pytest.mark.parametrize("disorder", [0, 1_900_000], ids=["in-order", "out-of-order"])
def test_a_diamond_and_a_loop_agree_with_plain_python(
    tmp_path: Path, slots: int, epoch_records: int, disorder: int
) -> None:
    trades = make_trades(7, count=500, disorder=disorder)
    moved = sum(a["ts"] > b["ts"] for rows in trades.values() for a, b in pairwise(rows))
    assert (moved > 100) == bool(disorder)
    check_exchange(None, tmp_path, trades, slots=slots, epoch_records=epoch_records)


def test_a_diamond_of_five_slots_in_one_level_and_one_in_another_agrees(tmp_path: Path) -> None:
    trades = make_trades(8, count=600, files=3, disorder=1_500_000)
    pipeline = exchange(write_trades(trades, tmp_path / "in"), tmp_path / "out")
    topology = pipeline.freeze()
    assert [topology.level[n] for n in ("Book", "Volume", "Close", "Pay")] == [1, 1, 2, 3]
    for name, slots in {"Book": 5, "Volume": 1, "Close": 3, "Pay": 2}.items():
        node = pipeline.catalog.nodes[name]
        object.__setattr__(node, "slots", slots)
    run_local(pipeline, tmp_path / "checkpoint", epoch_records=50)
    closed, payments, _ = plain_exchange(trades)
    assert bag(rows(tmp_path / "out" / "closed")) == bag(closed)
    assert bag(rows(tmp_path / "out" / "payments")) == bag(payments)


def check_zeitgeist(spark: SparkSession | None, where: Path, **options: Any) -> RunSummary:
    log = make_log()
    write_log(log, where / "in")
    pipeline = zeitgeist(log_source(where / "in"), where / "out")
    summary = run(spark, pipeline, where / "checkpoint", **options)
    on_time = list(log.records(late=False))
    findings = [*rows(where / "out" / "spikes"), *rows(where / "out" / "dips")]
    found = [Finding.of(row) for row in findings]
    assert sorted(found) == reference(on_time)
    regions = {(r["region"], r["bucket"]): r["count"] for r in rows(where / "out" / "regions")}
    assert regions == region_counts(on_time)
    assert len(rows(where / "out" / "late")) == log.late
    return summary


@pytest.mark.slow
def test_zeitgeist_agrees_with_plain_python(tmp_path: Path) -> None:
    check_zeitgeist(None, tmp_path, slots=5, epoch_records=20_000)


def test_zeitgeist_of_chosen_queries_agrees_in_one_epoch_and_out_of_order(tmp_path: Path) -> None:
    log = make_log()
    chosen = {event.query for event in log.planted}
    on_time = [r for r in log.records(late=False) if r["query"] in chosen]
    write_jsonl(tmp_path / "in" / "all.jsonl", on_time)
    source = sources.jsonl(str(tmp_path / "in"), timestamp="ts", lateness=LATENESS)
    run_local(zeitgeist(source, tmp_path / "out"), tmp_path / "checkpoint", slots=2,
              epoch_records=ONE_EPOCH)  # fmt: skip
    found = [Finding.of(r) for s in ("spikes", "dips") for r in rows(tmp_path / "out" / s)]
    assert sorted(found) == reference(on_time)


@pytest.mark.spark
def test_word_count_on_spark_agrees_with_plain_python(spark: SparkSession, tmp_path: Path) -> None:
    check_word_count(spark, tmp_path, slots=5, epoch_records=40)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("slots", "epoch_records", "disorder"), [(2, ONE_EPOCH, 1_900_000), (5, 400, 1_900_000)]
)
def test_a_diamond_and_a_loop_on_spark_agree_with_plain_python(
    spark: SparkSession, tmp_path: Path, slots: int, epoch_records: int, disorder: int
) -> None:
    trades = make_trades(9, count=1000, disorder=disorder)
    check_exchange(spark, tmp_path, trades, slots=slots, epoch_records=epoch_records)


@pytest.mark.spark
def test_zeitgeist_on_spark_agrees_with_plain_python(spark: SparkSession, tmp_path: Path) -> None:
    check_zeitgeist(spark, tmp_path, slots=2, epoch_records=60_000)
