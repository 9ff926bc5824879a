"""The floor: a Spark job of the same stages as a trivial epoch, with nothing in it.

No design that runs one Spark job per epoch can be faster than this, so the difference is Headrace's
own overhead. The job is built again for every epoch, as an engine must do whose plan differs from
epoch to epoch. It runs in a session of its own without adaptive execution, which an engine with
fixed slots must switch off.

`BareJob` is public so that it can be interleaved with another system's epochs in
one process, the fairest comparison a noisy machine allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.bench.frame.session import bench_session
from headrace.bench.frame.system import BARE, BARE_ONE_STAGE, Measurement, Task
from headrace.errors import HeadraceError


class BareJob:
    """A Spark job with one or two Python stages that moves one row per slot."""

    def __init__(self, spark: SparkSession, slots: int, stages: int) -> None:
        if stages not in (1, 2):
            raise HeadraceError(f"a bare job has 1 or 2 stages, not {stages}")
        self._spark = spark.newSession()
        self._spark.conf.set("spark.sql.adaptive.enabled", "false")
        self._spark.conf.set("spark.sql.shuffle.partitions", str(slots))
        self._slots = slots
        self._stages = stages

    def run_once_ms(self) -> float:
        """Build the job, run it, collect its rows, and return the milliseconds taken."""
        start = perf_counter()
        rows = self._job().collect()
        elapsed_ms = (perf_counter() - start) * 1_000
        if len(rows) != self._slots:
            raise HeadraceError(f"the bare job returned {len(rows)} rows from {self._slots} slots")
        return elapsed_ms

    def _job(self) -> DataFrame:
        slots = self._slots
        # Made for every epoch, as an engine ships each epoch's plan with its function.

        def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                slot = batch.column(0)
                blob = pa.array([b"blob"] * batch.num_rows, pa.binary())
                yield pa.RecordBatch.from_arrays([slot, blob], names=["slot", "blob"])

        job = self._spark.range(0, slots, 1, slots).mapInArrow(pass_on, "slot bigint, blob binary")
        if self._stages == 2:
            job = job.selectExpr("CAST(slot AS INT) AS slot", "blob")
            job = job.repartitionById(slots, "slot").mapInArrow(pass_on, "slot int, blob binary")
        return job


@dataclass(frozen=True)
class BareSpark:
    """The bare job as a system: one job per epoch, no records, no counts."""

    name: str
    stages: int

    def run(self, task: Task) -> Measurement:
        """Run one bare job per warm-up and measured epoch; the input is ignored."""
        workload = task.workload
        with bench_session(task, self.name) as spark:
            job = BareJob(spark, workload.slots, self.stages)
            for _ in range(workload.warmup_epochs):
                job.run_once_ms()
            epoch_ms = tuple(job.run_once_ms() for _ in range(workload.epochs))
        return Measurement(epoch_ms=epoch_ms, notes={"stages": str(self.stages)})


SPARK_BARE = BareSpark(name=BARE, stages=2)
SPARK_BARE_ONE_STAGE = BareSpark(name=BARE_ONE_STAGE, stages=1)
