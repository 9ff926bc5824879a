"""A checkpoint interval on Spark: what was only written is lost, and made again by workers (M5)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import Checkpoint, Computation, Context, Pipeline, Record, sinks, sources, state
from headrace.engine.history.recovery import recover
from headrace.log.epochlog import EpochLog
from headrace.store.disk import DiskStore

pytestmark = pytest.mark.spark

RECORDS, KEYS, PER_EPOCH = 3_000, 60, 300


class Hoard(Computation):
    """Counts, and keeps some kilobytes that change with every record."""

    n: int = state(0)
    much: str = state("")

    def process_record(self, record: Record[int], ctx: Context) -> None:
        self.n += 1
        self.much = f"{self.n} " * 800
        ctx.produce({"key": ctx.key % 7, "n": self.n})


class Sum(Computation):
    """A second level: its repair needs the first."""

    total: int = state(0)
    much: str = state("")

    def process_record(self, record: Record[dict[str, int]], ctx: Context) -> None:
        self.total += record.value["n"]
        self.much = f"{self.total} " * 4000


def hoarding() -> Pipeline:
    p = Pipeline("hoarding")
    p.read("numbers", sources.memory(list(range(RECORDS)), timestamps=range(RECORDS)))
    p.compute(Hoard, inputs={"numbers": by_key}, outputs="counts")
    p.compute(Sum, inputs={"counts": "key"}, outputs="sums")
    p.stream("counts").write(sinks.memory())
    return p


def by_key(number: int) -> int:
    return number % KEYS


def state_of(directory: Path) -> tuple[dict[int, int], dict[int, int]]:
    checkpoint = Checkpoint(directory)
    return (
        {key: fields["n"] for key, fields in checkpoint.scan("Hoard")},
        {key: fields["total"] for key, fields in checkpoint.scan("Sum")},
    )


def test_a_power_loss_is_made_good_by_workers(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "state"
    options = {"slots": 2, "epoch_records": PER_EPOCH, "checkpoint_every": 4, "balance": "off"}
    notices: list[str] = []
    job = hoarding().start(checkpoint=directory, spark=spark, until="end", **options)
    while job.status().epoch < 6:
        time.sleep(0.02)
    job.leave()  # ends the driver, and not the pipeline: nothing is made durable for that
    job.wait()
    store = DiskStore(directory)
    ledger = recover(EpochLog(store), 1).ledger
    lost = {
        entry.segment
        for slots in ledger.slots.values()
        for slot in slots.values()
        for entry in slot.entries
        if entry.written
    }
    assert lost, "some epochs are only written"
    for name in lost:
        (directory / name).unlink()
    hoarding().run(
        checkpoint=directory,
        spark=spark,
        on_notice=lambda notice: notices.append(notice.text),
        **options,
    )
    assert any("are made again" in text for text in notices), notices
    hoards, sums = state_of(directory)
    each = RECORDS // KEYS
    assert hoards == dict.fromkeys(range(KEYS), each)
    assert sum(sums.values()) == KEYS * each * (each + 1) // 2
