"""What sinks write is what Spark reads back; functions get DataFrames; weak rows come early."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace import (
    Computation,
    Context,
    Pipeline,
    Record,
    UserCodeError,
    failpoints,
    sinks,
    sources,
    state,
)

pytestmark = pytest.mark.spark

RECORDS = [
    {
        "id": number, "name": ["naïve", 'say "hi", twice', "two\nlines", "", None][number % 5],
        "share": number / 7, "ts": 1_700_000_000_000_000 + number,
    }
    for number in range(60)
]  # fmt: skip


class Pass(Computation):
    """Hands records on, counted."""

    seen: int = state(0)

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.seen += 1
        ctx.produce({**record.value, "seen": self.seen})


def passed(records: list[dict[str, Any]]) -> Pipeline:
    p = Pipeline("passed")
    p.read("records", sources.memory(records, timestamp="ts"))
    p.compute(Pass, inputs={"records": lambda value: value["id"] % 4}, outputs="passed")
    return p


EXPECTED = sorted(
    (r["id"], r["name"], r["share"], r["ts"], r["id"] // 4 + 1, r["ts"]) for r in RECORDS
)


def test_spark_reads_back_from_parquet_csv_and_jsonl_what_was_produced(
    spark: SparkSession, tmp_path: Path
) -> None:
    p = passed(RECORDS)
    given = {"parquet": sinks.parquet, "csv": sinks.csv, "json": sinks.jsonl}
    for name, sink in given.items():
        p.stream("passed").write(sink(tmp_path / name, timestamp="at"), name=name)
    p.run(checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2, epoch_records=25)
    schema = "id long, name string, share double, ts long, seen long, at long"
    for name in given:
        reader = spark.read.option("header", True).option("multiLine", name == "csv")
        reader = reader.option("escape", '"').option("emptyValue", "")
        if name != "parquet":
            reader = reader.schema(f"{schema}, epoch int")
        found = reader.format(name).load(str(tmp_path / name))
        assert "epoch" in found.columns, "directories tell the epoch"
        # Spark's CSV reader takes a quoted empty cell for a missing one.
        expected = [(r[0], r[1] or None, *r[2:]) for r in EXPECTED] if name == "csv" else EXPECTED
        # Parquet has real timestamps; text has their microseconds.
        at = "unix_micros(at)" if name == "parquet" else "at"
        rows = found.selectExpr("id", "name", "share", "ts", "seen", at).collect()
        assert sorted(tuple(row) for row in rows) == expected, name
        assert {row[0] for row in found.select("epoch").distinct().collect()} == {1, 2, 3}


def test_a_function_gets_each_epoch_once_as_a_spark_dataframe(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: dict[int, list[tuple[Any, ...]]] = {}

    def take(frame: DataFrame, epoch: int) -> None:
        assert isinstance(frame, DataFrame)
        assert epoch not in calls
        calls[epoch] = [tuple(row) for row in frame.select("id", "seen").collect()]

    p = passed(RECORDS)
    p.stream("passed").write(sinks.foreach(take))
    p.run(checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2, epoch_records=25)
    assert [len(rows) for rows in calls.values()] == [25, 25, 10]
    assert sorted(row for rows in calls.values() for row in rows) == [
        row[:1] + row[4:5] for row in EXPECTED
    ]


def test_parquet_is_partitioned_by_a_column(spark: SparkSession, tmp_path: Path) -> None:
    p = passed([{**r, "day": str(datetime.date(2026, 3, 1 + r["id"] % 2))} for r in RECORDS])
    p.stream("passed").write(sinks.parquet(tmp_path / "out", partition_by="day"))
    p.run(checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2)
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert frame.where("day = '2026-03-02'").count() == 30
    assert sorted(r[0] for r in frame.select("id").collect()) == [r["id"] for r in RECORDS]


class Alarm(Computation):
    """Tells of every record; to be told twice does no harm."""

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        ctx.produce({"id": record.value["id"]})


class Fail(Computation):
    """Fails in the second epoch."""

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        if record.value["id"] == 40:
            raise ValueError("no forties here")
        ctx.produce(record.value)


def alarms(weak: Any, strong: Any) -> Pipeline:
    p = Pipeline("alarms")
    p.read("records", sources.memory(RECORDS, timestamp="ts"))
    p.compute(Alarm, inputs={"records": "id"}, outputs="alarms", strong=False)
    p.compute(Pass, inputs={"records": lambda value: value["id"] % 4}, outputs="passed")
    p.stream("alarms").write(weak)
    p.stream("passed").write(strong)
    return p


def test_weak_productions_are_out_before_the_commit_and_strong_ones_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    weak, strong = sinks.memory(), sinks.memory()
    seen: list[tuple[int, int]] = []
    failpoints.arm("before-commit-write", lambda: seen.append((len(weak.rows), len(strong.rows))))
    try:
        alarms(weak, strong).run(
            checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2, epoch_records=25
        )
    finally:
        failpoints.disarm()
    assert seen[:3] == [(25, 0), (50, 25), (60, 50)]
    assert sorted(row["id"] for row in weak.rows) == [r["id"] for r in RECORDS]
    assert sorted(row["id"] for row in strong.rows) == [r["id"] for r in RECORDS]


def test_weak_files_can_be_read_though_their_epoch_never_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    p = alarms(sinks.jsonl(tmp_path / "weak"), sinks.jsonl(tmp_path / "strong"))

    class Stopped(Exception):
        """In the place of a crash."""

    def stop() -> None:
        raise Stopped

    failpoints.arm("before-commit-write", stop)
    try:
        with pytest.raises(Stopped):
            p.run(checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2, epoch_records=25)
    finally:
        failpoints.disarm()
    assert spark.read.json(str(tmp_path / "weak")).count() == 25
    assert not list((tmp_path / "strong").glob("epoch=*"))


def test_an_error_in_a_keyed_computation_leaves_nothing_of_its_epoch_in_a_sink(
    spark: SparkSession, tmp_path: Path
) -> None:
    p = Pipeline("failing")
    p.read("records", sources.memory(RECORDS, timestamp="ts"))
    p.compute(Fail, inputs={"records": "id"}, outputs="kept")
    p.stream("kept").write(sinks.parquet(tmp_path / "out"))
    with pytest.raises(UserCodeError, match="no forties here"):
        p.run(checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2, epoch_records=25)
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row[0] for row in frame.select("id").collect()) == list(range(25))
