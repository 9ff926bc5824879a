"""The functions that Spark's Python workers run, and what they keep between tasks.

A function is pickled with the pipeline, which a worker unpickles once and then finds by its digest.
The data that differs between epochs, the *work order*, is the text of a local property of the job;
if it is large, it lies in a file of the checkpoint, which that property names. So Spark gets the
same frames every time, and need not analyse, pickle and plan them again.
Spark reuses Python workers; their caches are in this module.
"""

from __future__ import annotations

import os
import platform
import secrets
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.types import BinaryType, IntegerType, StructType

from headrace.engine.jobs.order_parts import PartsReader, SentOrder
from headrace.engine.spark.notes import collect_notes, leave_notes
from headrace.engine.spark.python_worker import acknowledge_at_once, spare_collection
from headrace.engine.spark.segment_copies import near_store, store_on_executor
from headrace.errors import HeadraceError
from headrace.log import paths
from headrace.log.content import verify
from headrace.log.holding import HoldingStore
from headrace.log.rings import ring_of
from headrace.pipeline.graph.topology import Topology
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import WorkOrder
from headrace.plan.progress import StoreUse
from headrace.plan.state.applied import SEGMENTS
from headrace.plan.state.choice import StateChoice
from headrace.plan.summary import asked_of
from headrace.plan.units import slots_of_task
from headrace.state.backends.opening import opener_of
from headrace.state.cache import WorkerCache
from headrace.store.store import Store
from headrace.worker.exchange.envelope import Envelope, Header, pack_header, unpack_header
from headrace.worker.level import run_level
from headrace.worker.overload.marks import Marks
from headrace.worker.reader import run_reader
from headrace.worker.runtime import Runtime

WORK_PROPERTY = "headrace.work"
ORDER_BYTES_MAX = 16 << 10
"""A work order of at most this size travels in the property: every task of the job carries it."""
_IN_TEXT = "order:"
_DEFLATED_MAX = 16
"""More than this is not compressed in vain: names of segments hold digests."""
PLACE = "place"
"""The kind of a row that says where a task of the last level ran."""

# An object, because a schema given as text is parsed by the JVM once per stage.
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


class SparkOrder(msgspec.Struct, frozen=True):
    """What every task of an epoch must know: the plan and, on the short way, the routed rows."""

    sent: SentOrder
    rows: list[tuple[int, bytes, bytes]] = []
    guards: dict[int, list[int]] = {}
    """Task -> tasks for which its executor is a replica, at every level."""


class Place(msgspec.Struct, frozen=True):
    """Where a task of the last level ran, and what its process has asked of stores so far."""

    executor: str
    process: str = ""
    """Names the process, and the store that it has opened."""
    use: StoreUse = StoreUse()
    notes: list[SlotNote] = []
    """What was measured in slots of this task, and in those of tasks of lower levels (K2)."""


class OpenOrder(NamedTuple):
    """A work order in a worker, with what its slots start from."""

    task: WorkOrder
    rows: list[tuple[int, bytes, bytes]]
    guards: dict[int, list[int]]


_order_decoder = msgspec.msgpack.Decoder(SparkOrder)
_runtimes: dict[tuple[str, str, int, bool], Runtime] = {}
_processes: WeakKeyDictionary[Store, str] = WeakKeyDictionary()
"""A store that this process has opened -> a name for the two together."""
_orders: dict[str, OpenOrder] = {}
_parts: WeakKeyDictionary[Store, PartsReader] = WeakKeyDictionary()
"""Parts of work orders that this process has read from a store."""


class Shipment:
    """The pipeline and the location of its store; without local properties, also the work order."""

    __slots__ = ("holds", "location", "near_bytes", "order", "pipeline", "pipeline_digest", "state")

    def __init__(
        self,
        pipeline: bytes,
        pipeline_digest: str,
        location: str,
        order: bytes | None = None,
        near_bytes: int = 0,
        state: str = SEGMENTS,
        *,
        holds: bool = False,
    ) -> None:
        """`near_bytes`: how many bytes of local copies an executor keeps; 0 for none. `holds`:
        deltas that are only written lie on its disk, and not in the store (M2).

        `state`: where fields and map entries are kept. It may have a password, so it travels with
        the code, and is written nowhere.
        """
        self.pipeline = pipeline
        self.pipeline_digest = pipeline_digest
        self.location = location
        self.order = order
        self.near_bytes = near_bytes
        self.state = state
        self.holds = holds

    def with_order(self, order: bytes) -> Shipment:
        """The same, with a work order."""
        return Shipment(
            self.pipeline, self.pipeline_digest, self.location, order, self.near_bytes, self.state,
            holds=self.holds,
        )  # fmt: skip

    def open(self) -> tuple[Runtime, OpenOrder]:
        """Opens the pipeline and the work order in this process."""
        where = (self.pipeline_digest, self.location, self.near_bytes, self.holds)
        runtime = _runtimes.get(where)
        if runtime is None:
            topology: Topology = cloudpickle.loads(self.pipeline)
            # Cached objects carry the code of their class, so each version of a pipeline has its
            # own cache, and those of earlier versions are dropped.
            for other in [known for known in _runtimes if known[1] == self.location]:
                del _runtimes[other]
            store = store_on_executor(self.location, self.near_bytes, holds=self.holds)
            opens = opener_of(StateChoice(self.state), store)
            runtime = _runtimes[where] = Runtime(topology, store, WorkerCache(), opens)
            runtime.watched = Marks(runtime.store).over
        if self.order is not None:
            return runtime, _opened(runtime.store, self.order)
        context: Any = TaskContext.get()
        given = context.getLocalProperty(WORK_PROPERTY)
        known = f"{self.location}/{given}"
        order = _orders.get(known)
        if order is None:
            data = order_in(given)
            if data is None:
                data = runtime.store.read(given)
                verify(given, data)
            _orders.clear()
            order = _orders[known] = _opened(runtime.store, data)
        return runtime, order


def _opened(store: Store, data: bytes) -> OpenOrder:
    order = _order_decoder.decode(data)
    reader = _parts.setdefault(store, PartsReader())
    return OpenOrder(reader.open(store, order.sent), order.rows, order.guards)


def order_text(data: bytes) -> str | None:
    """A work order as the text of a property; None if it is too large for that."""
    if len(data) > _DEFLATED_MAX * ORDER_BYTES_MAX:
        return None
    packed = zlib.compress(data, 1)
    return _IN_TEXT + b64encode(packed).decode() if len(packed) <= ORDER_BYTES_MAX else None


def order_in(text: str) -> bytes | None:
    """The work order that is this text; None if the text names a file instead."""
    if not text.startswith(_IN_TEXT):
        return None
    return zlib.decompress(b64decode(text.removeprefix(_IN_TEXT)))


class ReadFunction:
    """Level 0: the partition number is the number of the reader task; its input has no data."""

    def __init__(self, shipment: Shipment) -> None:
        self.shipment = shipment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        acknowledge_at_once()
        runtime, order = self.shipment.open()
        number = partition()
        if number < len(order.task.plan.reads):
            yield from to_batches(_read(runtime, order, number))
        drain(batches)
        spare_collection()


class FirstLevelFunction:
    """Level 1 if the driver has read and routed by itself: the rows are in the work order."""

    def __init__(self, shipment: Shipment) -> None:
        self.shipment = shipment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        acknowledge_at_once()
        runtime, order = self.shipment.open()
        number = partition()
        mine = (
            Envelope(to, unpack_header(header), body)
            for to, header, body in order.rows
            if to == number
        )
        yield from to_batches(_run(runtime, order, 1, number, mine))
        drain(batches)
        spare_collection()


class LevelFunction:
    """A level behind a shuffle: the partition number is the number of the task."""

    def __init__(self, shipment: Shipment, level: int) -> None:
        self.shipment = shipment
        self.level = level

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        acknowledge_at_once()
        runtime, order = self.shipment.open()
        number = partition()
        # No list of rows is kept here: those of a slot are freed before the next slot runs.
        rows = (row for batch in batches for row in from_batch(batch))
        yield from to_batches(_run(runtime, order, self.level, number, rows))
        spare_collection()


def partition() -> int:
    """The partition number of this task, which frames make equal to the number of the unit."""
    context: Any = TaskContext.get()
    return int(context.partitionId())


def executor_name() -> str:
    """A name for the executor of this Python worker: its block directory, which is unique."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return os.path.basename(first) or f"{platform.node()}-{os.getppid()}"


def tell_place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Says on which executor a task runs. A new worker has then imported what epochs need."""
    drain(batches)
    task = pa.array([partition()], pa.int32())
    yield pa.RecordBatch.from_arrays([task, pa.array([executor_name()])], ["task", "executor"])


def drain(batches: Iterator[pa.RecordBatch]) -> None:
    """Reads an input without data, after the work: waiting for it first would cost time."""
    for _ in batches:
        pass


def _read(runtime: Runtime, order: OpenOrder, number: int) -> Iterator[Envelope]:
    yield from run_reader(runtime, order.task, number)
    notes = runtime.take_notes()
    if runtime.topology.depth == 0:
        yield _place(runtime, 0, number, notes)
    else:
        leave_notes(order.task.checkpoint, notes)


def _run(
    runtime: Runtime, order: OpenOrder, level: int, number: int, rows: Iterable[Envelope]
) -> Iterator[Envelope]:
    for guarded in order.guards.get(number, ()):
        _stand_by(runtime, order.task, level, guarded)
    yield from run_level(runtime, order.task, level, number, rows)
    _sweep_copies(runtime, order.task, level)
    notes = runtime.take_notes()
    if level == runtime.topology.depth:
        notes += collect_notes(order.task.checkpoint)
        yield _place(runtime, level, number, notes)
    else:
        leave_notes(order.task.checkpoint, notes)


def _place(runtime: Runtime, level: int, number: int, notes: Sequence[SlotNote] = ()) -> Envelope:
    """Where this ran, and how long it took.

    Only rows of the last level go straight to the driver, and no other row may contain what differs
    between attempts (B4).
    """
    store = runtime.store
    if store not in _processes:
        _processes[store] = secrets.token_hex(8)
    use = asked_of(store, runtime.topology.graph)
    if (near := near_store(store)) is not None:
        use = StoreUse(use.requests, near.near_reads, near.far_reads)
    place = Place(executor_name(), _processes[store], use, list(notes))
    return Envelope(0, Header(level + 1, number, PLACE, ""), msgspec.msgpack.encode(place))


def _stand_by(runtime: Runtime, task: WorkOrder, level: int, guarded: int) -> None:
    """Keeps replicas of the slots of another executor's task, as the last commit left them."""
    for name in runtime.topology.levels[level]:
        for slot in slots_of_task(task, name, guarded):
            base = task.base(name, slot)
            if isinstance(runtime.store, HoldingStore) and any(e.written for e in base.entries):
                continue  # these lie on the other executor's disk, until the next checkpoint
            try:
                records = ring_of(runtime.store, task, name).records(slot)
                runtime.cache.open(runtime.store, task.checkpoint, name, slot, base, records)
            except (OSError, HeadraceError):
                continue  # the executor that takes over reads the store and reports the error


def _sweep_copies(runtime: Runtime, task: WorkOrder, level: int) -> None:
    """Drops local copies that no plan names: every slot writes some, replica or not."""
    if isinstance(runtime.store, HoldingStore):
        runtime.store.release(task.held_from)
    near = near_store(runtime.store)
    if near is None:
        return
    for name in runtime.topology.levels[level]:
        named = (e.segment for base in task.bases.get(name, {}).values() for e in base.entries)
        near.drop_copies(paths.state_directory(name), named, task.plan.epoch)


def from_batch(batch: pa.RecordBatch) -> Iterator[Envelope]:
    """Rows from Arrow."""
    columns = (batch.column(i).to_pylist() for i in range(batch.num_columns))
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
