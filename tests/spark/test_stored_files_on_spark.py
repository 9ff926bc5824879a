"""Sources and sinks on a store, on real Spark: tasks read and write the store by themselves."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipelines import Pathless

from headrace import Computation, Context, Pipeline, Record, read_output, sinks, sources, state
from headrace.model.source import Workspace
from headrace.model.values.arrow import dicts
from headrace.store.disk import DiskStore

pytestmark = pytest.mark.spark

FILES, LINES = 5, 40


class Count(Computation):
    """Counts the records of a key."""

    count: int = state(0)

    def process_record(self, record: Record[dict[str, int]], ctx: Context) -> None:
        self.count += 1
        ctx.produce({"key": ctx.key, "count": self.count})


def counted(source: sources.Source, *outs: sinks.Sink) -> Pipeline:
    p = Pipeline("counted")
    p.read("lines", source)
    p.compute(Count, inputs={"lines": lambda value: value["n"] % 7}, outputs="counts")
    for number, out in enumerate(outs):
        p.stream("counts").write(out, name=f"out {number}")
    return p


EXPECTED = sorted(
    (key, count) for key in range(7) for count in range(1, len(range(key, FILES * LINES, 7)) + 1)
)


def test_a_pipeline_reads_from_a_store_and_writes_to_stores(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = DiskStore(tmp_path / "in")
    given.make_directory("deep")
    numbers = iter(range(FILES * LINES))
    for file in range(FILES):
        lines = [json.dumps({"n": next(numbers)}) for _ in range(LINES)]
        given.write(f"deep/{file}.jsonl", ("\n".join(lines) + "\n").encode())
    places = [DiskStore(tmp_path / name) for name in ("lines", "cells", "columns")]
    outs = [
        sinks.jsonl(places[0]),
        sinks.csv(places[1]),
        sinks.parquet(places[2], partition_by="key"),
    ]
    p = counted(sources.jsonl(given), *outs)
    p.run(spark=spark, checkpoint=str(tmp_path / "state"), epoch_records=60, slots=2)
    for place in places:
        output = read_output(place)
        rows = output.table().to_pylist()
        assert sorted((row["key"], row["count"]) for row in rows) == EXPECTED
        assert [epoch.number for epoch in output] == list(range(1, len(output) + 1))
    assert not list((tmp_path / "state" / "staged").rglob("0*"))


def test_a_spark_frame_is_copied_into_a_store_without_paths_by_its_workers(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "id", "timestamp_micros(id) AS at", "CAST(id AS string) AS name"
    )
    source = sources.dataframe(frame, timestamp="at")
    workspace = Workspace(Pathless(DiskStore(tmp_path / "state")), spark)
    source.prepare(workspace)
    first = source.plan("dataframe", 0, 300)
    assert first is not None
    rest = source.plan("dataframe", first.end, 10_000)
    assert rest is not None and rest.last
    copy = pickle.loads(pickle.dumps(source))
    rows = [
        row for planned in (first, rest) for row in dicts(copy.read("dataframe", planned).columns)
    ]
    assert [row["id"] for row in rows] == list(range(1000))
    assert [source.timing.micros(row["at"]) for row in rows] == list(range(1000))
    again = sources.dataframe(spark.range(3))
    again.prepare(workspace)
    assert again.plan("dataframe", 0, 300) == first
