"""Joins, schemas, look-ups and SQL on real Spark: the way through the shuffle and the pickles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.support import environment

from headrace import InvalidPipeline, Pipeline, interval, sinks, sources, tumbling

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parent.parent.parent


class Left(msgspec.Struct):
    k: int
    t: int


class Right(msgspec.Struct):
    k: int
    s: int


def test_the_example_of_joins_runs_on_spark(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "payments.py")],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rows = [
        json.loads(line)
        for path in sorted(tmp_path.glob("out/paid/epoch=*/*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert sorted((r["order"], r["name"], r["cents"], r["paid"]) for r in rows) == [
        ("o1", "Black tea", 250, 720_000_000),
        ("o2", "Black tea", 270, 1_800_000_000),
        ("o3", "Sea salt", 90, None),
    ]


def test_typed_streams_join_on_spark_and_sql_sums_up_each_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    left = [{"k": i % 5, "t": i * 100} for i in range(200)]
    right = [{"k": i % 5, "s": i * 100 + 50} for i in range(200)]
    names = spark.createDataFrame([(k, f"key {k}") for k in range(4)], "k long, name string")
    found: list[tuple[Any, ...]] = []

    def take(frame: DataFrame, epoch: int) -> None:
        assert isinstance(frame, DataFrame)
        found.extend(tuple(row) for row in frame.collect())

    p = Pipeline("joined")
    a = p.read("a", sources.memory(left, timestamp="t"), schema=Left)
    b = p.read("b", sources.memory(right, timestamp="s"), schema=Right)
    pairs = a.key_by("k").join(b.key_by("k"), within=interval("-1ms", "1ms"), how="full")
    summed = "SELECT name, count(*), count(t) FROM {stream} WHERE s > 0 GROUP BY name"
    pairs.lookup(names, on="k").write(sinks.foreach(take, sql=summed))
    windows = a.key_by("k").join(b.key_by("k"), window=tumbling("1ms")).named("windows")
    windows.write(sinks.parquet(str(tmp_path / "windows")))
    p.run(checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2, epoch_records=60)

    expected: dict[Any, int] = {}
    for x in left:
        for y in right:
            if x["k"] == y["k"] and abs(x["t"] - y["s"]) <= 1000:
                name = f"key {x['k']}" if x["k"] < 4 else None
                expected[name] = expected.get(name, 0) + 1
    sums: dict[Any, int] = {}
    for name, pairs_of, with_left in found:
        assert with_left <= pairs_of
        sums[name] = sums.get(name, 0) + with_left
    assert sums == expected
    together = sum(
        x["k"] == y["k"] and x["t"] // 1000 == y["s"] // 1000 for x in left for y in right
    )
    assert spark.read.parquet(str(tmp_path / "windows")).count() == together


def test_a_query_must_name_the_stream() -> None:
    with pytest.raises(InvalidPipeline, match=r"FROM \{stream\}"):
        sinks.foreach(print, sql="SELECT 1")
