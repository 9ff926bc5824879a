"""The Spark substrate: one epoch is one Spark job, a chain of shuffles, one per level.

Only the DataFrame API is used. Our jobs run in a session of their own, so the
user's settings stay as they are; adaptive execution is off there, as it would
merge partitions and so break slots.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import xxhash
from pyspark import cloudpickle
from pyspark.sql.functions import col

from headrace.engine.local import read_all, reports_in, run_epoch
from headrace.engine.modules import modules_of
from headrace.engine.tasks import (
    ROW_SCHEMA,
    WORK_PROPERTY,
    FirstLevelFunction,
    LevelFunction,
    ReadFunction,
    Shipment,
    WorkOrder,
)
from headrace.errors import InvalidPipeline, StoreError
from headrace.log import paths
from headrace.log.store import Store
from headrace.pipeline.topology import Topology
from headrace.plan.epoch import Report, TaskPlan
from headrace.state.cache import WorkerCache
from headrace.state.segment import digest_of
from headrace.worker.envelope import Envelope, pack_header, partitions, unpack_header
from headrace.worker.runtime import Runtime

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    # Our own check of one output per producer replaces Spark's (protocol B4).
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}


class SparkSubstrate:
    """Runs epochs on a Spark session."""

    def __init__(self, spark: SparkSession, topology: Topology, store: Store) -> None:
        self.spark = spark
        self._session = spark.newSession()
        for name, value in _SETTINGS.items():
            self._session.conf.set(name, value)
        self.parallelism = _parallelism(spark)
        _probe(self._session, self.parallelism, store)
        # The driver takes the short way with a runtime of its own.
        self._runtime = Runtime(topology, store, WorkerCache())
        self._store = store
        self._shipment: Shipment | None = None
        self._chains: dict[tuple[bool, tuple[int, ...]], DataFrame] = {}

    def run(self, task: TaskPlan) -> Sequence[Report]:
        """One epoch, one job."""
        topology, plan = self._runtime.topology, task.plan
        if topology.depth == 0 and plan.short:
            return run_epoch(self._runtime, task)
        here: list[Envelope] = []
        order = WorkOrder(task)
        if plan.short:
            self._ship()  # before setup() runs here: the clients that it opens do not travel
            rows = read_all(self._runtime, task)
            here = [row for row in rows if row.header.level > topology.depth]
            order = WorkOrder(
                task,
                [
                    (row.partition, pack_header(row.header), row.body)
                    for row in rows
                    if row.header.level <= topology.depth
                ],
            )
        first = 1 if plan.short else 0
        sizes = tuple(partitions(topology, plan, at) for at in range(first, topology.depth + 1))
        arrived = (
            Envelope(row[0], unpack_header(bytes(row[1])), bytes(row[2]))
            for row in self._collect(plan.short, sizes, order)
        )
        return reports_in([*here, *arrived])

    def _collect(self, short: bool, sizes: tuple[int, ...], order: WorkOrder) -> list[Any]:
        data = msgspec.msgpack.encode(order)
        context = _context(self.spark)
        if context is None:  # Spark Connect: the order travels with the functions
            return self._chain(short, sizes, self._ship(data)).collect()
        chain = self._chains.get((short, sizes))
        if chain is None:
            chain = self._chains[short, sizes] = self._chain(short, sizes, self._ship())
        epoch = order.task.plan.epoch
        name = f"{paths.WORK}/{paths.content_name(epoch, 'order', digest_of(data))}"
        self._store.write_volatile(name, data)
        try:
            context.setLocalProperty(WORK_PROPERTY, name)
            # A new frame over the same plan: it is executed anew, shuffles and all, but neither
            # built nor analysed anew. Collecting the old frame would skip stages it has seen.
            return chain.select("*").collect()
        finally:
            self._store.delete(name)

    def _chain(self, short: bool, sizes: tuple[int, ...], shipment: Shipment) -> DataFrame:
        """The frames of an epoch: one level over numbers, each further one behind a shuffle."""
        numbers = self._session.range(0, sizes[0], 1, sizes[0])
        function = FirstLevelFunction(shipment) if short else ReadFunction(shipment)
        frame = numbers.mapInArrow(function, ROW_SCHEMA)
        for level, slots in enumerate(sizes[1:], 2 if short else 1):
            frame = frame.repartitionById(slots, col("partition")).mapInArrow(
                LevelFunction(shipment, level), ROW_SCHEMA
            )
        return frame

    def _ship(self, order: bytes | None = None) -> Shipment:
        """The pipeline, pickled once: at the first epoch, when sources are prepared."""
        if self._shipment is None:
            pipeline = pickled(self._runtime.topology)
            digest = xxhash.xxh3_128_hexdigest(pipeline)
            self._shipment = Shipment(pipeline, digest, self._store.root or "")
        if order is None:
            return self._shipment
        known = self._shipment
        return Shipment(known.pipeline, known.pipeline_digest, known.root, order)

    def close(self) -> None:
        """The session belongs to the user."""


def _probe(session: SparkSession, tasks: int, store: Store) -> None:
    """Refuses a checkpoint path that executors do not see; on one machine they do."""
    master = session.conf.get("spark.master", None) or "local"
    if master.startswith("local") or store.root is None:
        return
    name, word = f".probe-{secrets.token_hex(6)}.tmp", secrets.token_bytes(16)
    store.make_directory("")
    store.write(name, word)
    path = f"{store.root}/{name}"

    def look(batches: Any) -> Any:
        for batch in batches:
            seen = os.path.exists(path) and Path(path).read_bytes() == word
            yield pa.RecordBatch.from_pydict({"seen": [seen] * batch.num_rows})

    try:
        frame = session.range(0, tasks, 1, tasks).mapInArrow(look, "seen boolean")
        seen = all(row[0] for row in frame.collect())
    finally:
        store.delete(name)
    if not seen:
        raise StoreError(
            f"executors do not see the checkpoint path {store.root}: choose a directory that the "
            "driver and all executors share, such as a network filesystem"
        )


def runs_user_code_while_reading(topology: Topology) -> bool:
    """Whether reading alone runs computations, as keyless ones live where their input is made."""
    return any(
        host in topology.graph.injectors
        for node in topology.fused
        for given in node.inputs
        for host in topology.hosts[given.stream]
    )


def pickled(topology: Topology) -> bytes:
    """The pipeline by value: its own modules travel along, so workers need not have them."""
    modules = {name for node in topology.graph.nodes.values() for name in modules_of(node)}
    sent = []
    for name in modules:
        module = sys.modules.get(name)
        if module is not None and name != "__main__" and not name.startswith("headrace"):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
            sent.append(module)
    try:
        return bytes(cloudpickle.dumps(topology))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise InvalidPipeline(
            f"pipeline {topology.graph.name!r} cannot be sent to workers: {error}. "
            "Open clients and files in setup(), not in __init__"
        ) from error
    finally:
        for module in sent:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _context(spark: SparkSession) -> SparkContext | None:
    """The session's context; Spark Connect has none."""
    try:
        return spark.sparkContext
    except Exception:
        return None


def _parallelism(spark: SparkSession) -> int:
    context = _context(spark)
    if context is not None:
        return max(1, int(context.defaultParallelism))
    return max(1, int(spark.conf.get("spark.default.parallelism", "2") or 2))
