"""Backups of a pipeline on Spark, taken while 10,000 records a second flow through it.

Two computations see every record, by different keys. Their sums are equal after each epoch, and at
no other moment: a backup that mixed two epochs would show it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.servers.stores import ALWAYS, server_of
from tests.spark.conftest import start_spark

from headrace import Backup, Checkpoint, Computation, Map, Pipeline, Record, sources, state

RATE = 10_000


class Sum(Computation):
    """How many records a key has had, by a hundredth of them."""

    count: int = state(0)
    hundredths: Map[int, int] = state()

    def process_record(self, record: Record[Any], ctx: Any) -> None:
        self.count += 1
        n = record.value["n"] % 100
        self.hundredths[n] = self.hundredths.get(n, 0) + 1


def flowing() -> Pipeline:
    def record(n: int, random: Any) -> dict[str, int]:
        return {"n": n, "a": n % 1009, "b": n * 31 % 499}

    p = Pipeline("flowing")
    p.read("in", sources.generate(record, rate=RATE, paced=True))
    p.compute(Sum, inputs={"in": "a"}, name="A")
    p.compute(Sum, inputs={"in": "b"}, name="B")
    return p


def sums(checkpoint: Checkpoint, name: str) -> tuple[int, int]:
    """The sum of all counts, and of all entries of all maps."""
    states = [state for _, state in checkpoint.scan(name)]
    entries = sum(sum(each["hundredths"].values()) for each in states)
    return sum(each["count"] for each in states), entries


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize("where", ["disk", "s3", "log"])
def test_each_backup_is_one_epoch_while_ten_thousand_records_a_second_flow(
    spark: SparkSession, spark_scratch: Path, tmp_path: Path, where: str
) -> None:
    place, backups = str(tmp_path / "state"), str(tmp_path / "backups")
    if where == "s3":
        server = server_of(ALWAYS)
        place, backups = server.new_url(), server.new_url()
        spark.stop()  # its workers have no credentials
        spark = start_spark(spark_scratch, workers=server.environment)
    job = flowing().start(
        checkpoint=place, spark=spark, slots=2, retain_epochs=1, epoch_target="300ms",
        straggler_after=None,  # a limited slot would carry records over, and be behind
        state="log" if where == "log" else "segments",
    )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while job.status().epoch < 4 and time.monotonic() < until:
            time.sleep(0.2)
        reports = [Checkpoint(place).backup(backups) for _ in range(4)]
        query = "SELECT (SELECT sum(count) FROM A) a, (SELECT sum(count) FROM B) b"
        [row] = Checkpoint(place).sql(query).to_pylist()
        assert row["a"] == row["b"] > 0, "a query over two computations is one epoch, too"
        found = Checkpoint(place).verify()
        assert found.problems == []
    finally:
        job.stop()
        if where == "s3":
            spark.stop()
    assert job.checkpoint() >= reports[-1].epoch > 0
    for report in reports:
        to = tmp_path / f"again-{report.epoch}"
        if not to.exists():
            Backup(backups).restore(to, report.epoch)
        again = Checkpoint(to)
        assert again.epoch == report.epoch
        a, b = sums(again, "A"), sums(again, "B")
        assert a == b == (a[0], a[0]) and a[0] > 0
        assert again.verify().problems == []
    assert Backup(backups).verify().problems == []


@pytest.mark.spark
def test_a_restored_pipeline_goes_on_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    p = Pipeline("counted")
    p.read("in", sources.generate(lambda n, random: {"n": n, "k": n % 7}, count=500, rate=100))
    p.compute(Sum, inputs={"in": "k"}, name="K")
    p.run(checkpoint=tmp_path / "state", spark=spark, until="end", epoch_records=100)
    Checkpoint(tmp_path / "state", at=2).backup(tmp_path / "backups")
    Backup(tmp_path / "backups").restore(tmp_path / "again")
    p.run(checkpoint=tmp_path / "again", spark=spark, until="end", epoch_records=100)
    assert dict(Checkpoint(tmp_path / "again").scan("K")) == dict(
        Checkpoint(tmp_path / "state").scan("K")
    )
