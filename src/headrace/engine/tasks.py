"""The functions that Spark's Python workers run, and what they keep between tasks.

They are pickled for every job, so they carry bytes that were made once: the
pipeline (unpickled once per process, found by its digest) and the epoch's small
plan. Spark reuses Python workers; caches live in this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.types import BinaryType, IntegerType, StructType

from headrace.log.store import DiskStore
from headrace.pipeline.topology import Topology
from headrace.plan.epoch import TaskPlan
from headrace.state.cache import WorkerCache
from headrace.worker.envelope import Envelope, pack_header, unpack_header
from headrace.worker.level import run_level
from headrace.worker.reading import run_reader
from headrace.worker.runtime import Runtime

# As an object: a schema given as text is parsed by the JVM, once per stage and epoch.
ROW_SCHEMA = (
    StructType()
    .add("partition", IntegerType())
    .add("header", BinaryType())
    .add("body", BinaryType())
)
_ARROW_SCHEMA = pa.schema(
    [("partition", pa.int32()), ("header", pa.binary()), ("body", pa.binary())]
)
_BATCH_BYTES = 32 << 20

_plan_decoder = msgspec.msgpack.Decoder(TaskPlan)
_cache = WorkerCache()
_runtimes: dict[tuple[str, str], Runtime] = {}
_plans: dict[str, TaskPlan] = {}


class Shipment:
    """What every task of an epoch gets: the pipeline, the place of the state, the plan."""

    __slots__ = ("pipeline", "pipeline_digest", "plan", "plan_digest", "root")

    def __init__(self, pipeline: bytes, pipeline_digest: str, root: str) -> None:
        self.pipeline = pipeline
        self.pipeline_digest = pipeline_digest
        self.root = root
        self.plan = b""
        self.plan_digest = ""

    def with_plan(self, task: TaskPlan) -> Shipment:
        """The same pipeline with an epoch's plan."""
        shipment = Shipment(self.pipeline, self.pipeline_digest, self.root)
        shipment.plan = msgspec.msgpack.encode(task)
        shipment.plan_digest = f"{self.root} {task.plan.epoch} {task.plan.seed}"
        return shipment

    def open(self) -> tuple[Runtime, TaskPlan]:
        """The pipeline and the plan in this process."""
        where = (self.pipeline_digest, self.root)
        runtime = _runtimes.get(where)
        if runtime is None:
            topology: Topology = cloudpickle.loads(self.pipeline)
            runtime = _runtimes[where] = Runtime(topology, DiskStore(self.root), _cache)
        task = _plans.get(self.plan_digest)
        if task is None:
            _plans.clear()
            task = _plans[self.plan_digest] = _plan_decoder.decode(self.plan)
        return runtime, task


class ReadFunction:
    """Level 0: each row of the input is the number of a reader task."""

    def __init__(self, shipment: Shipment) -> None:
        self.shipment = shipment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        runtime, task = self.shipment.open()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if number < len(task.plan.reads):
                    yield from to_batches(run_reader(runtime, task, number))


class FirstLevelFunction:
    """Level 1 where the driver has read and routed itself: rows come with the function."""

    def __init__(self, shipment: Shipment, rows: list[tuple[int, bytes, bytes]]) -> None:
        self.shipment = shipment
        self.rows = rows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        runtime, task = self.shipment.open()
        for batch in batches:
            for slot in batch.column(0).to_pylist():
                mine = (
                    Envelope(p, unpack_header(header), body)
                    for p, header, body in self.rows
                    if p == slot
                )
                yield from to_batches(run_level(runtime, task, 1, slot, mine))


class LevelFunction:
    """A level behind a shuffle: the partition's number is the slot."""

    def __init__(self, shipment: Shipment, level: int) -> None:
        self.shipment = shipment
        self.level = level

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        runtime, task = self.shipment.open()
        context: Any = TaskContext.get()
        slot = context.partitionId()
        rows = [row for batch in batches for row in from_batch(batch)]
        yield from to_batches(run_level(runtime, task, self.level, slot, rows))


def from_batch(batch: pa.RecordBatch) -> Iterator[Envelope]:
    """Rows from Arrow."""
    columns = (batch.column(i).to_pylist() for i in range(3))
    for partition, header, body in zip(*columns, strict=True):
        yield Envelope(partition, unpack_header(header), body)


def to_batches(rows: Iterable[Envelope]) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches of bounded size."""
    held: list[Envelope] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.body)
        if size >= _BATCH_BYTES:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def _batch(rows: list[Envelope]) -> pa.RecordBatch:
    columns = [
        pa.array([row.partition for row in rows], pa.int32()),
        pa.array([pack_header(row.header) for row in rows], pa.binary()),
        pa.array([row.body for row in rows], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)
